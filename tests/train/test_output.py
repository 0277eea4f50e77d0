#!/usr/bin/env python3
"""Tests the output of a training run: results on stdout, everything else on stderr; one
line of results per epoch, which stays on the screen; which loss is shown; and what happens
when output can no longer be written."""

import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ["DLCORE_BIN"]

NET = """[net]
name = told
[data]
source = synthetic
shape = 3,16,16
classes = 4
samples = 96
batch = 24
transforms = normalize(scale=0.01)
{test}
[solver]
type = sgd
learning_rate = 0.01
[train]
keep_best = no
{run}
[conv1]
type = convolution
num_output = 8
kernel_size = 3
[ip1]
type = inner_product
num_output = 4
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip1
"""
TEST = """[data.test]
source = synthetic
shape = 3,16,16
classes = 4
samples = 48
first = 96
batch = 24
transforms = normalize(scale=0.01)
"""
TESTED = re.compile(r"^epoch (\d+\.\d\d), iteration (\d+): loss \d+\.\d{4}, "
                    r"test loss \d+\.\d{4}, accuracy \d\.\d{4}$", re.M)
UNTESTED = re.compile(r"^epoch (\d+\.\d\d), iteration (\d+): loss \d+\.\d{4}$", re.M)
DONE = re.compile(r"^done after 12 iterations, [\d.]+ s: training loss \d+\.\d{4}, "
                  r"test loss \d+\.\d{4}, test accuracy \d\.\d{4}, \d+ images/s$", re.M)


def screen(text):
    """The lines that a terminal shows after this output."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in re.split(r"(\r|\033\[K)", line):
            if part == "\r":
                shown = "\r" + shown.lstrip("\r")  # the cursor is at the beginning of the line
            elif part == "\033[K":
                shown = "" if shown.startswith("\r") else shown
            elif part:
                old = shown[1:] if shown.startswith("\r") else ""
                shown = part + old[len(part):] if old else shown.lstrip("\r") + part
        lines.append(shown.lstrip("\r"))
    return lines


class Output(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)

    def net(self, run="epochs = 3", test=TEST):
        path = self.folder / "net.ini"
        path.write_text(NET.format(run=run, test=test))
        return str(path)

    def train(self, *options, **how):
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.run([BIN, "train", *options], stdin=subprocess.DEVNULL, text=True,
                              cwd=self.folder, timeout=120, **how)

    def checkpoints(self):
        return list(self.folder.rglob("*.safetensors"))

    def test_results_are_on_stdout(self):
        for ranks in ("1", "2"):
            done = self.train(self.net("epochs = 3\ndisplay = 1\n[parallel]\nscaling = strong"),
                              "--ranks=" + ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([found.groups() for found in TESTED.finditer(done.stdout)],
                             [("1.00", "4"), ("2.00", "8"), ("3.00", "12")], done.stdout)
            self.assertRegex(done.stdout, DONE)
            self.assertRegex(done.stdout, r"(?m)^checkpoint: ")
            self.assertEqual(len(done.stdout.splitlines()), 5, done.stdout)
            # Progress goes to stderr.
            self.assertRegex(done.stderr, r"(?m)^iteration 5, epoch 1\.25: loss "
                                          r"\d+\.\d{4}, learning rate 0\.01, ")
            self.assertNotRegex(done.stderr, TESTED)

    def test_without_a_test_set(self):
        done = self.train(self.net("epochs = 2", test=""))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([found.groups() for found in UNTESTED.finditer(done.stdout)],
                         [("1.00", "4"), ("2.00", "8")], done.stdout)
        self.assertRegex(done.stdout, r"(?m)^done after 8 iterations, [\d.]+ s: training loss "
                                      r"\d+\.\d{4}, \d+ images/s$")

    def test_training_loss_is_the_mean_of_its_epoch(self):
        log = self.folder / "log"
        done = self.train(self.net("epochs = 2\ndisplay = 1"), "--json", f"--log-file={log}")
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        losses = [event["training_loss"] for event in events if event["event"] == "train"]
        tests = [event for event in events if event["event"] == "test"]
        self.assertEqual((len(losses), len(tests)), (8, 2))
        for i, test in enumerate(tests):
            self.assertAlmostEqual(test["training_loss"], sum(losses[4 * i:4 * i + 4]) / 4)
            self.assertEqual(test["test_loss"], test["metrics"]["loss"])
            self.assertNotEqual(test["test_loss"], test["training_loss"])
        report = json.loads(done.stdout)
        for key in ("training_loss", "test_loss", "accuracy"):
            self.assertEqual(report[key], tests[1][key])
        # Only the JSON document goes to stdout.
        self.assertRegex(done.stderr, TESTED)

    def test_several_losses(self):
        """The test loss is the weighted sum that training minimizes, in every line; its parts are named."""
        for more, names in (("[more]\ntype = softmax_loss\ninput = ip1\nloss_weight = 2\n", ["loss", "more"]),
                            ("", ["loss"])):
            with open(self.net("iterations = 4"), "a", encoding="utf-8") as net:
                net.write("loss_weight = 0.5\n" + more)
            done = self.train("net.ini", f"--run-dir=run{len(names)}")
            self.assertEqual(done.returncode, 0, done.stderr)
            parts = ", ".join(rf"{name} (\d+\.\d{{4}})" for name in names)
            total, *losses = map(float, re.search(rf"test loss (\d+\.\d{{4}}) \({parts}\), accuracy ",
                                                  done.stdout).groups())
            self.assertAlmostEqual(total, sum(weight * loss for weight, loss in zip((0.5, 2), losses)), 3)
            self.assertIn(f"test loss {total:.4f}, test accuracy", done.stdout.partition("done after")[2])
            weights = max(self.checkpoints(), key=os.path.getmtime)
            tested = subprocess.run([BIN, "test", "net.ini", f"--weights={weights}"], cwd=self.folder, text=True,
                                    capture_output=True, timeout=60, check=True).stdout
            self.assertIn(f"total loss {total:.4f}\n", tested)
            self.assertIn(f"\nloss {losses[0]:.4f}\n", tested)

    def test_where_nothing_counts(self):
        """A test without a label has no loss and no accuracy, rather than ones of 0."""
        rows = ["".join(f"p{i}," for i in range(768)) + "l"] + ["1," * 768 + "-1"] * 3
        (self.folder / "test.csv").write_text("\n".join(rows))
        done = self.train(self.net("iterations = 4", test="""[data.test]
source = csv
file = test.csv
image = p0..p767
shape = 3,16,16
label = l
batch = 2
"""), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("test loss nan, accuracy nan", done.stderr)
        self.assertIsNone(json.loads(done.stdout)["test_loss"])
        self.assertIsNone(json.loads(done.stdout)["accuracy"])

    def test_quiet_says_nothing(self):
        done = self.train(self.net(), "--quiet")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def stop_early(self, *options):
        """Stopped by Ctrl-C before the first test."""
        job = subprocess.Popen(
            [BIN, "train", self.net("iterations = 10000000\ntest_interval = 10000000\n"
                                    "display = 1"), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=self.folder)
        for line in job.stderr:
            if line.startswith("iteration 3,"):
                break
        job.send_signal(signal.SIGINT)
        out, said = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 128 + signal.SIGINT, said)
        self.assertEqual(len(self.checkpoints()), 1)
        return out, said

    def test_stopped_before_the_first_test(self):
        out, said = self.stop_early()
        self.assertNotIn("nan", out + said)
        self.assertRegex(out, r"(?m)^stopped after \d+ iterations, [\d.]+ s: training loss "
                              r"\d+\.\d{4}(, [1-9]\d* images/s)?$")

    def test_stopped_before_the_first_test_json(self):
        out, said = self.stop_early("--json", "--ranks=2")
        report = json.loads(out)
        self.assertGreater(report["training_loss"], 0)
        self.assertIsNone(report["test_loss"])
        self.assertIsNone(report["accuracy"])
        self.assertNotIn("nan", said)

    def on_terminal(self, *command, out=None, term="xterm"):
        """What is written to a terminal that stderr (and stdout) lead to."""
        environment = {key: os.environ[key] for key in os.environ if key != "TERM"}
        if term:
            environment["TERM"] = term
        leader, follower = pty.openpty()
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out or follower,
                               stderr=follower, cwd=self.folder,
                               env=environment)
        os.close(follower)
        text, end = b"", time.monotonic() + 120
        while time.monotonic() < end:
            if not select.select([leader], [], [], 0.1)[0]:
                if job.poll() is not None:
                    break
                continue
            try:
                text += os.read(leader, 65536)
            except OSError:  # the last process has closed it
                break
        os.close(leader)
        self.assertEqual(job.wait(timeout=10), 0, text)
        return text.decode()

    def test_one_line_per_epoch_stays_on_a_terminal(self):
        for test, pattern in ((TEST, TESTED), ("", UNTESTED)):
            # Long enough for the bar to be drawn between epochs.
            text = self.on_terminal(BIN, "train", self.net("epochs = 600", test))
            self.assertIn("\033[K[=", text.replace("\r", ""))
            # 80 columns show the time that is left and the throughput.
            self.assertRegex(text, r"%  left \d+:\d\d  epoch \d+\.\d\d  "
                                   r"training loss \d+\.\d{4}  [1-9]\d* im")
            shown = "\n".join(screen(text))
            self.assertEqual([int(found[2]) for found in pattern.finditer(shown)],
                             [4 * i for i in range(1, 601)])
            self.assertNotIn("[==", shown)
            self.assertNotIn("\niteration ", shown)

    def test_no_bar_where_a_terminal_cannot_redraw_it(self):
        for term in ("", "dumb"):
            text = self.on_terminal(BIN, "train", self.net("epochs = 300"), term=term)
            self.assertNotIn("\033", text)

    def test_results_in_a_file_and_the_bar_on_a_terminal(self):
        with open(self.folder / "out", "w+") as out:
            text = self.on_terminal(BIN, "train", self.net("epochs = 300"), out=out)
            out.seek(0)
            results = out.read()
        self.assertIn("[=", text)
        self.assertEqual(len(TESTED.findall(results)), 300)
        self.assertNotIn("\033", results)
        self.assertNotIn("test accuracy", text)

    def test_full_disk_under_the_log_file(self):
        for ranks in ("1", "3"):
            for checkpoint in self.checkpoints():
                checkpoint.unlink()
            done = self.train(self.net(), "--log-file=/dev/full", "--ranks=" + ranks)
            self.assertEqual(done.returncode, 1, done.stderr)
            warnings = re.findall(r"^(?:\[rank \d\] )?warning: .*", done.stderr, re.M)
            self.assertEqual(len(warnings), 1, done.stderr)
            self.assertIn("log file /dev/full: No space left on device", warnings[0])
            self.assertEqual(done.stderr.splitlines()[-1], "error: log file /dev/full is "
                             "incomplete: No space left on device")
            # The run was completed nevertheless.
            self.assertRegex(done.stdout, "(?m)^done after ")
            self.assertEqual(len(self.checkpoints()), 1)

    def test_a_truncated_line_is_ended(self):
        """A log file may end in the middle of a line, after the disk was full."""
        log = self.folder / "log"

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        done = self.train(self.net("iterations = 5\ncheckpoint_last = no\ncheckpoint_minutes = 0"),
                          f"--log-file={log}", preexec_fn=limit)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(log.stat().st_size, 1000)
        self.assertEqual(done.stderr.count("File too large; events are lost"), 1, done.stderr)
        done = self.train(self.net("iterations = 5"), f"--log-file={log}")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = log.read_text()
        for line in text[:1000].splitlines()[:-1] + text[1001:].splitlines():
            json.loads(line)
        self.assertEqual(text[1000], "\n")

    def test_full_disk_under_stdout(self):
        with open("/dev/full", "w") as full:
            for options in ((), ("--json",)):
                done = self.train(self.net(), *options, stdout=full)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("No space left on device", done.stderr)
                self.assertEqual(done.stderr.count("warning: results cannot be written to "
                                                   "stdout"), 0 if options else 1)
        self.assertEqual(len(self.checkpoints()), 2)

    def test_a_closed_pipe_costs_no_checkpoint(self):
        """Ctrl-C ends `tee` at once, but dlcore still writes its checkpoint."""
        reader, writer = os.pipe()
        os.close(reader)
        done = self.train(self.net(), stdout=writer)
        os.close(writer)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("Broken pipe", done.stderr)
        self.assertEqual(len(self.checkpoints()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
