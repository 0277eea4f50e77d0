#!/usr/bin/env python3
"""Tests what a user sees in the first hour: options that other programs have, warnings about
what is rarely meant, what training says while it is set up and when it is stopped, and lines
that fit a terminal."""

import fcntl
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

BIN = os.environ["DLCORE_BIN"]

NET = """[net]
name = tiny
[data]
source = synthetic
shape = 3,12,12
classes = 4
samples = 48
batch = 12
transforms = normalize(scale=0.004)
{test}[solver]
type = sgd
learning_rate = 0.01
[train]
threads = 1
device = cpu
{train}
[conv1]
type = convolution
num_output = 6
kernel_size = 3
[relu1]
type = relu
[ip1]
type = inner_product
num_output = 4
{layers}[loss]
type = softmax_loss
"""
TEST = """[data.test]
source = synthetic
shape = 3,12,12
classes = 4
samples = 24
first = 1000
batch = 12
transforms = normalize(scale=0.004)
"""
ACCURACY = "[accuracy]\ntype = accuracy\ninput = ip1\n"


class User(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.write()

    def write(self, test="", train="", layers=""):
        (self.folder / "net.ini").write_text(NET.format(test=test, train=train, layers=layers))

    def run_it(self, *words, code=0, **environment):
        done = subprocess.run([BIN, *words], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, check=False, cwd=self.folder,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def warned(self, sentence, *options):
        """By check and by train; without the options there is no warning."""
        self.assertIn(sentence, self.run_it("check", "net.ini", *options).stderr)
        self.assertIn(sentence, self.run_it("train", "net.ini", "--iterations=0", "--run-dir=" +
                                            tempfile.mkdtemp(dir=self.folder), *options).stderr)

    def start(self, *words, until):
        """A command that runs; what it has printed on stderr so far is in the file `said`."""
        with open(self.folder / "said", "w", encoding="utf-8") as said:
            job = subprocess.Popen([BIN, *words], stdin=subprocess.DEVNULL, cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=said)
        self.addCleanup(lambda: (job.kill(), job.wait()))
        deadline = time.monotonic() + 60
        while until not in self.said():
            self.assertIsNone(job.poll(), self.said())
            self.assertLess(time.monotonic(), deadline, self.said())
            time.sleep(0.01)
        return job

    def said(self):
        return (self.folder / "said").read_text()

    def on_terminal(self, *words, columns=80, messages=False, **environment):
        """The results of a command on a terminal, or its messages."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        job = subprocess.Popen([BIN, *words], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL if messages else its,
                               stderr=its if messages else subprocess.DEVNULL, cwd=self.folder, env={**os.environ, "TERM": "xterm", **environment})
        os.close(its)
        text = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            text += more
        os.close(ours)
        job.wait(60)
        return text.decode()

    # ---- Options ---------------------------------------------------------------------

    def test_names_of_other_programs(self):
        for names in (("--lr=0.5", "--batch-size=6"), ("--learning-rate=0.5", "--batch=6")):
            done = self.run_it("train", "net.ini", "--iterations=1", *names, "--run-dir=" +
                               tempfile.mkdtemp(dir=self.folder))
            self.assertIn("learning rate 0.5\n", done.stderr)
            self.assertIn("effective batch 6 ", done.stderr)

    def test_short_help(self):
        for words in ((), ("train",), ("plugin",), ("data",)):
            short, long = (self.run_it(*words, option).stdout for option in ("-h", "--help"))
            self.assertEqual(short, long)
            self.assertIn("Usage: dlcore", short)

    # ---- Warnings --------------------------------------------------------------------

    def test_nothing_to_warn_of(self):
        self.write(test=TEST, layers=ACCURACY, train="target_accuracy = 0.9")
        done = self.run_it("check", "net.ini")
        self.assertEqual(done.stderr, "")

    def test_softmax_before_its_loss(self):
        self.write(layers="[prob]\ntype = softmax\n")
        self.warned("warning: net.ini:28: [loss] reads [prob], a softmax, but computes the "
                    "softmax itself")

    def test_sigmoid_before_its_loss(self):
        text = NET.format(test="", train="", layers="[prob]\ntype = sigmoid\n")
        (self.folder / "net.ini").write_text(
            text.replace("softmax_loss", "sigmoid_cross_entropy_loss")
            .replace("classes = 4", "classes = 4\nmulti_label = yes"))
        done = subprocess.run([BIN, "check", "net.ini"], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, check=False)
        if "multi_label" not in done.stderr:
            self.assertIn("reads [prob], a sigmoid, but computes the sigmoid itself", done.stderr)

    def test_batch_beyond_the_samples(self):
        self.warned("[data] batch = 96 is more than the 48 samples", "--batch=96")

    def test_large_learning_rate(self):
        self.warned("[solver] learning_rate = 10 is very large", "--lr=10")
        done = self.run_it("check", "net.ini", "--lr=10", "--solver=lars")
        self.assertNotIn("very large", done.stderr)

    def test_a_test_of_the_training_data(self):
        (self.folder / "table.csv").write_text("a,b,y\n" + "1,2,0\n4,5,1\n" * 12)
        (self.folder / "other.csv").write_text("a,b,y\n" + "1,2,0\n4,5,1\n" * 12)
        source = "source = csv\nfile = table.csv\nvector = a..b\nlabel = y\nbatch = 4\n"
        net = (f"[data]\n{source}[data.test]\n{source}[solver]\ntype = sgd\n"
               "learning_rate = 0.01\n[train]\ndevice = cpu\nthreads = 1\n"
               "[ip]\ntype = inner_product\nnum_output = 2\n[loss]\ntype = softmax_loss\n")
        (self.folder / "net.ini").write_text(net)
        self.warned("warning: net.ini:8: [data.test] reads the samples of [data]")
        done = self.run_it("check", "net.ini", "--set=data.test.file=other.csv")
        self.assertNotIn("reads the samples", done.stderr)

    def test_a_goal_that_nothing_measures(self):
        self.write(train="target_accuracy = 0.9")
        done = self.run_it("train", "net.ini", code=2)
        self.assertIn("net.ini:16: [train] target_accuracy ends the training when a test reaches "
                      "it, but there is no [data.test]", done.stderr)
        self.write(train="target_accuracy = 0.9", test=TEST)
        done = self.run_it("train", "net.ini", code=2)
        self.assertIn("but the net has no layer of type accuracy", done.stderr)

    # ---- Training --------------------------------------------------------------------

    def test_set_up_is_shown(self):
        said = self.run_it("train", "net.ini", "--iterations=1").stderr
        for stage in ("building the net", "reading the first samples"):
            self.assertIn(f"set-up: {stage}\n", said)

    def test_short_run(self):
        """No speed that was not measured, and one line for the checkpoint."""
        done = self.run_it("train", "net.ini", "--iterations=1")
        self.assertNotIn(" 0 images/s", done.stdout + done.stderr)
        self.assertEqual((done.stdout + done.stderr).count("checkpoint: "), 1)
        self.assertIn("learning rate 0.01\n", done.stderr)
        self.write(train="checkpoint_last = no")
        done = self.run_it("train", "net.ini", "--iterations=0")
        self.assertRegex(done.stdout, r"(?m)^done after 0 iterations, [\d.]+ s$")

    def test_interrupt(self):
        for ranks in ("1", "2"):
            job = self.start("train", "net.ini", "--iterations=1000000000", f"--ranks={ranks}",
                             f"--run-dir=run{ranks}", until="training for")
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(60), 128 + signal.SIGINT, self.said())
            self.assertEqual(self.said().count("stopping after this iteration; again to end now"),
                             1, self.said())
            self.assertTrue((self.folder / f"run{ranks}" / "last").exists())

    def test_interrupt_during_set_up(self):
        """A set-up of many large layers ends, and leaves no folder."""
        layers = "".join(f"[wide{i}]\ntype = inner_product\nnum_output = 3000\n"
                         "weight_filler = gaussian(0.01)\n" for i in range(24))
        (self.folder / "net.ini").write_text(
            NET.format(test="", train="", layers="").replace("[ip1]", layers + "[ip1]"))
        for ranks in ("1", "2"):
            job = self.start("train", "net.ini", f"--ranks={ranks}", "--run-dir=run",
                             "--overcommit", until="set-up: building the net")
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(60), 128 + signal.SIGINT, self.said())
            self.assertNotIn("training for", self.said())
            self.assertNotIn("error", self.said())
            self.assertFalse((self.folder / "run").exists())

    # ---- Lines -----------------------------------------------------------------------

    def test_lines_fit(self):
        self.write(test=TEST, layers=ACCURACY)
        done = self.run_it("train", "net.ini", "--epochs=2", "--run-dir=run")
        self.assertIn("epoch 2.00", done.stdout)
        for line in done.stdout.splitlines():
            if line.startswith("epoch"):
                self.assertLessEqual(len(line), 80, line)
        for words in (("check", "net.ini"),
                      ("predict", "net.ini", "--weights=run", "--data=test")):
            text = self.on_terminal(*words)
            self.assertGreater(len(text.splitlines()), 5)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, line)
        whole = self.run_it("predict", "net.ini", "--weights=run", "--data=test").stdout
        self.assertEqual(len(whole.splitlines()), 25)
        self.assertEqual(text.split(), whole.split())

    def test_colors(self):
        bad = ("check", "none.ini")
        self.assertIn("\033[1;31merror: \033[m", self.on_terminal(*bad, messages=True))
        self.assertNotIn("\033[1", self.on_terminal(*bad, messages=True, NO_COLOR="1"))
        self.assertNotIn("\033[1", self.on_terminal(*bad, messages=True, TERM="dumb"))
        self.assertNotIn("\033", self.run_it(*bad, code=2).stderr)

    # ---- Other commands --------------------------------------------------------------

    def test_plan_prints_its_result_alone(self):
        done = self.run_it("plan", "net.ini", "--passes=5", "--ranks=2")
        self.assertNotIn("epoch", done.stdout)
        self.assertNotIn("training for", done.stderr)

    def test_doctor_has_a_verdict(self):
        self.assertTrue(self.run_it("doctor").stdout.endswith("\nNets can be trained here.\n"))

    def test_plugins_are_described(self):
        listed = json.loads(self.run_it("plugin", "list", "--json").stdout)
        out = self.run_it("plugin", "list").stdout
        usable = [feature for plugin in listed["plugins"] for feature in plugin["features"]
                  if feature["state"] == "usable"]
        self.assertTrue(usable)
        for feature in usable:
            self.assertIn(f"usable: {feature['help']}", out)

    def test_overall_figures(self):
        self.write(test=TEST)
        self.run_it("train", "net.ini", "--epochs=1", "--run-dir=run")
        words = ("test", "net.ini", "--weights=run", "--confusion")
        report = json.loads(self.run_it(*words, "--json").stdout)
        right = sum(row[i] for i, row in enumerate(report["confusion"]))
        self.assertEqual(report["accuracy"], right / 24)
        self.assertRegex(self.run_it(*words).stdout,
                         rf"(?m)^all classes +24 +{right / 24:.4f}$")

    def test_errors_of_a_regression(self):
        """The net predicts the first two pixels; a target that is missing does not count."""
        rows = [(1, 2, 1.5, 2), (3, 0, 3, -1), (2, 2, 4, "nan"), (0, 5, 0, 5), (7, 1, 6, 2)]
        (self.folder / "table.csv").write_text(
            "p0,p1,p2,p3,x,y\n" + "".join(f"{a},{b},0,0,{x},{y}\n" for a, b, x, y in rows))
        source = ("source = csv\nfile = table.csv\nimage = p0..p3\nvector = x, y\n"
                  "batch = 2\n")
        (self.folder / "net.ini").write_text(
            f"[data]\n{source}[data.test]\n{source}[solver]\ntype = sgd\nlearning_rate = 0.01\n"
            "[train]\ndevice = cpu\nthreads = 1\n[ip]\ntype = inner_product\nnum_output = 2\n"
            "bias = no\n[loss]\ntype = euclidean_loss\nlabel = vector\n")
        values = struct.pack("<8f", 1, 0, 0, 0, 0, 1, 0, 0)
        header = json.dumps({"ip.weight": {"dtype": "F32", "shape": [2, 4],
                                           "data_offsets": [0, 32]}}).encode()
        (self.folder / "w.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header + values)
        pairs = [(out, float(target)) for a, b, x, y in rows for out, target in ((a, x), (b, y))
                 if target != "nan"]
        errors = [out - target for out, target in pairs]
        mean = sum(target for _, target in pairs) / len(pairs)
        variance = sum((target - mean) ** 2 for _, target in pairs) / len(pairs)
        square = sum(error * error for error in errors) / len(pairs)
        for ranks in ("1", "2"):
            words = ("test", "net.ini", "--weights=w.safetensors", f"--ranks={ranks}")
            found = json.loads(self.run_it(*words, "--json").stdout)["regression"]
            for name, value in (("mean_absolute_error", sum(map(abs, errors)) / len(pairs)),
                                ("root_mean_square_error", square ** 0.5),
                                ("r2", 1 - square / variance)):
                self.assertAlmostEqual(found[name], value, 12)
            self.assertRegex(self.run_it(*words).stdout,
                             r"(?m)^mean absolute error [\d.]+\nroot mean square error [\d.]+\nR2 ")


if __name__ == "__main__":
    unittest.main()
