#!/usr/bin/env python3
"""Tensor parallelism (parallel = tensor): a split net trains like the unsplit one, on any
number of ranks and any transport; its checkpoints do not depend on the split; and a rank
that dies is named."""

import array
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from deaths import report_seconds

BIN = os.environ["DLCORE_BIN"]
RANKS = (2, 3, 4)
ITERATIONS = 12
# Sums in another order, in float32, relative to a tensor's largest element.
WITHIN = 2e-5

NET = """\
[net]
name = split
[data]
source = synthetic
samples = 2400
shape = 2,12,12
classes = 10
batch = 24
transforms = normalize(scale=0.00390625)
[data.test]
source = synthetic
samples = 70
first = 2400
shape = 2,12,12
classes = 10
batch = 16
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.02
momentum = 0.9
weight_decay = 0.001
[train]
threads = 1
test_first = yes
[parallel]
scaling = strong
[conv1]
type = convolution
num_output = 8
kernel_size = 3
[relu1]
type = relu
[pool1]
type = pooling
method = max
kernel_size = 2
stride = 2
[conv2]
type = convolution
num_output = 13
kernel_size = 3
[tanh2]
type = tanh
[ip1]
type = inner_product
num_output = 41
[relu3]
type = relu
[drop3]
type = dropout
[ip2]
type = inner_product
num_output = 10
bias_lr_mult = 2
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip2
"""

LAST = ("ip1", "ip2")
ALL = ("conv1", "conv2", "ip1", "ip2")


def model(layers):
    return [f"--set={layer}.parallel=tensor" for layer in layers]


def tensors(path):
    """Name -> elements of a safetensors file, only float32."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    found = {}
    for name, what in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and what["dtype"] == "F32":
            begin, end = (8 + length + at for at in what["data_offsets"])
            found[name] = array.array("f", data[begin:end])
    return found


def is_there(transport):
    if transport != "ucx":
        return True
    listed = subprocess.run([BIN, "plugin", "list", "--json"], check=True,
                            capture_output=True, text=True)
    return '"ucx"' in listed.stdout


class Split(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.net = self.folder / "net.ini"
        self.net.write_text(NET)
        self.runs = 0

    def command(self, ranks, *more):
        self.runs += 1
        self.run_dir = self.folder / f"run{self.runs}"
        return [BIN, "train", str(self.net), "--json", f"--ranks={ranks}",
                f"--run-dir={self.run_dir}", *more]

    def train(self, ranks, *more, iterations=ITERATIONS):
        """The report, and the checkpoint."""
        done = subprocess.run(
            [*self.command(ranks, *more), f"--iterations={iterations}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.log = done.stderr
        report = json.loads(done.stdout)
        return report, pathlib.Path(report["checkpoint"])

    def refused(self, ranks, sentence, *more):
        done = subprocess.run([*self.command(ranks, *more), "--iterations=1"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, sentence)

    def assert_same(self, left, right, within):
        left, right = tensors(left), tensors(right)
        self.assertEqual(list(left), list(right))
        self.assertIn("momentum/ip1.weight", left)
        for name, numbers in left.items():
            self.assertEqual(len(numbers), len(right[name]), name)
            most = max(map(abs, numbers))
            worst = max(abs(a - b) for a, b in zip(numbers, right[name]))
            self.assertLessEqual(worst, within * most, name)

    def test_as_the_unsplit_net(self):
        whole, checkpoint = self.train(1)
        transports = ("p2p-tree", "host-staged", "ucx")
        for ranks in RANKS:
            for number, transport in enumerate(filter(is_there, transports)):
                layers = (ALL, LAST, ("conv2",))[(ranks + number) % 3]
                with self.subTest(ranks=ranks, transport=transport, layers=layers):
                    report, split = self.train(ranks, f"--transport={transport}",
                                               *model(layers))
                    self.assertIn(f"by channels: {', '.join(layers)}", self.log)
                    self.assertAlmostEqual(report["test_loss"], whole["test_loss"], delta=1e-4)
                    self.assertEqual(report["accuracy"], whole["accuracy"])
                    self.assert_same(checkpoint, split, WITHIN)

    def test_uneven_shares(self):
        """Samples and channels are split in the same proportions."""
        _, checkpoint = self.train(1)
        _, split = self.train(3, "--set=parallel.batch_split=3,1,2", *model(ALL))
        self.assert_same(checkpoint, split, WITHIN)

    def test_batch_chunks(self):
        """One rank's samples after another's, or a part of every rank's at a time."""
        whole, checkpoint = self.train(1)
        transports = list(filter(is_there, ("p2p-tree", "host-staged", "ucx")))
        cases = ((2, LAST, ()), (3, ALL, ("--set=parallel.batch_split=3,1,2",)), (4, LAST, ()))
        for number, (ranks, layers, more) in enumerate(cases):
            for way in ("by_rank", "chunked"):
                transport = transports[number % len(transports)]
                with self.subTest(ranks=ranks, way=way, transport=transport):
                    report, split = self.train(
                        ranks, f"--set=parallel.tensor_schedule={way}", f"--transport={transport}",
                        *model(layers), *more)
                    self.assertIn(f"in batch chunks: {way}", self.log)
                    self.assertAlmostEqual(report["test_loss"], whole["test_loss"], delta=1e-4)
                    self.assertEqual(report["accuracy"], whole["accuracy"])
                    self.assert_same(checkpoint, split, WITHIN)
        # Repeated, the run is bitwise identical.
        once = self.train(2, "--set=parallel.tensor_schedule=chunked", *model(LAST))[1]
        again = self.train(2, "--set=parallel.tensor_schedule=chunked", *model(LAST))[1]
        self.assert_same(once, again, 0)

    def test_chosen_schedule(self):
        """The schedule that is logged is the one that is used."""
        self.train(2, *model(LAST), iterations=2)
        said = re.search(r"tensor_schedule = auto: (\w+), because ", self.log)
        rows = re.findall(r"^ {4}(\w+) +\d+ +[\d.]+ ms +[\d.]+ ms", self.log, re.MULTILINE)
        self.assertEqual(rows, ["whole_batch", "by_rank", "chunked"], self.log)
        self.assertEqual("in batch chunks" in self.log, said[1] != "whole_batch")
        # A layer that reads the input of the split layers: only whole_batch is possible.
        self.net.write_text(NET + "[side]\ntype = inner_product\nnum_output = 10\n"
                            "input = conv2\n[beside]\ntype = softmax_loss\n")
        self.refused(2, "layer 'side'.*reads what comes before them; set tensor_schedule = whole_batch",
                     "--set=parallel.tensor_schedule=chunked", *model(["ip2"]))

    def check(self, *more):
        done = subprocess.run([BIN, "check", str(self.net), "--json", *more], check=True,
                              capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    def test_shown_before(self):
        """What the ranks would have adds up to the whole net."""
        whole = self.check()
        split = self.check("--ranks=2", "--set=parallel.tensor_schedule=chunked", *model(LAST))
        self.assertEqual([r["first"] for r in split["ranks"]], [0, 1])
        for key in ("parameters", "multiply_adds"):
            self.assertEqual(split[key], whole[key])
        ip1 = [{layer["name"]: layer for layer in r["layers"]}["ip1"] for r in split["ranks"]]
        self.assertEqual([layer["output"] for layer in ip1], [[12, 20], [12, 21]])
        self.assertEqual(split["peak_bytes"], max(r["peak_bytes"] for r in split["ranks"]))
        staged = self.check("--ranks=4", "--set=parallel.pipeline=ip1", "--set=parallel.micro_batches=4")
        self.assertEqual([(r["first"], r["count"], r["stage"]) for r in staged["ranks"]],
                         [(0, 2, 0), (2, 2, 1)])
        self.assertEqual(staged["ranks"][1]["layers"][0]["output"], [3, 41])
        for key in ("parameters", "multiply_adds"):
            self.assertEqual(staged[key], whole[key])
        text = subprocess.run([BIN, "check", str(self.net), *model(LAST)], check=True,
                              capture_output=True, text=True, timeout=60).stdout
        self.assertIn("--ranks=N shows each", text)

    def test_several_passes(self):
        passes = ("--set=solver.accumulation_steps=3", "--set=data.batch=12")
        _, checkpoint = self.train(1, *passes)
        for way in ("whole_batch", "chunked"):
            _, split = self.train(2, *passes, *model(LAST), f"--set=parallel.tensor_schedule={way}")
            self.assert_same(checkpoint, split, WITHIN)

    def test_with_queues(self):
        """On a device with queues, where a missing wait gives wrong results."""
        plugins = (pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests" / "support" /
                   "async" / "plugins")
        self.assertTrue((plugins / "device-async.so").exists())
        environment = unittest.mock.patch.dict(os.environ, DLCORE_PLUGIN_PATH=str(plugins))
        environment.start()
        self.addCleanup(environment.stop)
        transports = list(filter(is_there, ("p2p-tree", "host-staged", "ucx")))
        ways = ("whole_batch", "by_rank", "chunked")
        for number, (ranks, way) in enumerate(itertools.product((2, 3), ways)):
            how = (*model(ALL), f"--set=parallel.tensor_schedule={way}",
                   f"--transport={transports[number % len(transports)]}")
            with self.subTest(ranks=ranks, how=how):
                _, checkpoint = self.train(ranks, "--device=cpu", *how)
                _, split = self.train(ranks, "--device=async", *how,
                                      f"--set=train.async_seed={number}")
                self.assert_same(checkpoint, split, 0)

    def test_auto(self):
        """What the planner chooses depends on the machine; that its choice is used does not."""
        layers = [f"--set={layer}.parallel=auto" for layer in ALL]
        self.train(2, *layers)
        rows = re.findall(r"^ {4}(\w+) .* (samples|channels)$", self.log, re.MULTILINE)
        self.assertEqual([name for name, _ in rows], list(ALL), self.log)
        chosen = [name for name, choice in rows if choice == "channels"]
        said = re.search(r"by channels: (.*)", self.log)
        self.assertEqual(said[1].split(", ") if said else [], chosen)
        # A layer that cannot be split stays whole, with a reason, and so does a net.
        self.train(2, *layers, "--set=conv1.group=2", iterations=1)
        self.assertRegex(self.log, "layer 'conv1' is not split .*group = 2 cannot be split")

    def test_resume_in_every_layout(self):
        """A checkpoint is bitwise identical after any change of layout, and the run goes on."""
        layouts = [(2, LAST), (3, ()), (1, ()), (4, ("conv2", "ip1")), (2, ALL)]
        _, straight = self.train(1, iterations=4 * len(layouts))
        last, done = None, 0
        for ranks, layers in layouts:
            if last:
                _, again = self.train(ranks, f"--resume={last}", *model(layers),
                                      iterations=done)
                self.assert_same(last, again, 0)
            done += 4
            more = (f"--resume={last}",) if last else ()
            _, last = self.train(ranks, *more, *model(layers), iterations=done)
        self.assert_same(straight, last, WITHIN)

    def test_weights_of_others(self):
        _, checkpoint = self.train(1)
        report, _ = self.train(3, f"--weights={checkpoint}", *model(ALL), iterations=0)
        whole, _ = self.train(1, f"--weights={checkpoint}", iterations=0)
        self.assertAlmostEqual(report["test_loss"], whole["test_loss"], delta=1e-5)

    def test_refused(self):
        self.refused(4, "its 3 channels cannot be split among 4 ranks",
                     "--set=ip1.num_output=3", *model(["ip1"]))
        self.refused(2, "group = 2 cannot be split", "--set=conv1.group=2",
                     *model(["conv1"]))
        self.refused(2, "layers of type 'pooling' do not support it",
                     *model(["pool1"]))

    def test_a_rank_is_killed(self):
        with open(self.folder / "log", "w+", encoding="utf-8") as log:
            job = subprocess.Popen(
                [*self.command(3, *model(ALL)), "--iterations=1000000000",
                 "--set=train.checkpoint_last=no", "--set=train.checkpoint_minutes=0"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
            self.addCleanup(job.kill)
            until = time.monotonic() + 60
            while "iteration" not in (self.folder / "log").read_text():
                self.assertLess(time.monotonic(), until)
                self.assertIsNone(job.poll())
                time.sleep(0.05)
            children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
            pid = int(children.read_text().split()[1])
            os.kill(pid, signal.SIGKILL)
            since = time.monotonic()
            self.assertEqual(job.wait(30), 5)
            self.assertLess(time.monotonic() - since, report_seconds())
            log.seek(0)
            text = log.read()
        self.assertTrue(re.search(rf"rank \d \(host \S+, pid {pid}\).* signal 9", text),
                        text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
