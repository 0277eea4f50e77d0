#!/usr/bin/env python3
"""Pipeline parallelism: a net in stages has the loss curve and weights of the whole net, up
to the order of float32 sums; its checkpoints resume in any other layout; and a stage that is
killed is named."""

import array
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from deaths import report_seconds

BIN = os.environ["DLCORE_BIN"]
ITERATIONS = 24  # half of it is a multiple of `display`
# Relative to the largest element of a tensor, after ITERATIONS: 1e-6 is usual, but a relu
# whose input is near zero may change sides. tests/unit/core/parallel/pipeline compares gradients more
# closely.
CLOSE = 1e-3

DATA = """
[net]
name = {name}
[data]
source = synthetic
shape = {shape}
classes = 6
samples = 960
batch = 24
transforms = normalize(scale=0.00390625)
[data.test]
source = synthetic
shape = {shape}
classes = 6
samples = 130
first = 2000
batch = 32
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.03
momentum = 0.9
weight_decay = 0.0005
[train]
threads = 1
iterations = {iterations}
display = 4
test_interval = 10
"""

LENET = """
[conv1]
type = convolution
num_output = 8
kernel_size = 5
weight_filler = xavier
[pool1]
type = pooling
method = average
kernel_size = 2
stride = 2
[conv2]
type = convolution
num_output = 12
kernel_size = 3
weight_filler = xavier
[pool2]
type = pooling
method = average
kernel_size = 2
stride = 2
[ip1]
type = inner_product
num_output = 20
weight_filler = xavier
[relu1]
type = relu
[drop1]
type = dropout
ratio = 0.25
[ip2]
type = inner_product
num_output = 6
weight_filler = xavier
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip2
"""

# Skips over one cut or several, and a second loss in the middle.
RESIDUAL = """
[conv1]
type = convolution
num_output = 8
kernel_size = 3
pad = 1
weight_filler = msra
[relu1]
type = relu
[conv2]
type = convolution
num_output = 8
kernel_size = 3
pad = 1
weight_filler = msra
[relu2]
type = relu
[conv3]
type = convolution
num_output = 8
kernel_size = 3
pad = 1
weight_filler = msra
[sum1]
type = eltwise
input = conv3, relu1
[relu3]
type = relu
[aside]
type = inner_product
num_output = 6
weight_filler = xavier
[loss_aside]
type = softmax_loss
loss_weight = 0.3
[conv4]
type = convolution
num_output = 8
kernel_size = 3
pad = 1
weight_filler = msra
input = relu3
[sum2]
type = eltwise
input = conv4, relu1
[relu4]
type = relu
[pool]
type = pooling
method = average
kernel_size = 2
stride = 2
[ip]
type = inner_product
num_output = 6
weight_filler = xavier
[accuracy]
type = accuracy
input = ip
[loss]
type = softmax_loss
input = ip
"""

NETS = {"lenet": ("1,16,16", LENET), "residual": ("3,10,10", RESIDUAL)}


def read_tensors(path):
    """The float32 tensors of a safetensors file by name."""
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = array.array("f", whole[8 + length + begin:8 + length + end])
    return tensors


class Pipeline(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name):
        shape, layers = NETS[name]
        net = self.folder / f"{name}.ini"
        net.write_text(DATA.format(name=name, shape=shape, iterations=ITERATIONS) +
                       layers)
        return net

    def start(self, net, *options):
        return [BIN, "train", str(net), "--json", *options]

    def refuse(self, net, *options):
        done = subprocess.run(self.start(net, *options), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def train(self, net, folder, *options):
        """The report, the logged losses, and the final weights."""
        log = self.folder / f"{folder}.log"
        log.unlink(missing_ok=True)  # it would be added to
        if "--resume=auto" not in options:
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        done = subprocess.run(
            self.start(net, f"--run-dir={self.folder / folder}",
                       f"--log-file={log}", *options),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        losses = [event["training_loss"] for event in events if event["event"] == "train"]
        report["stderr"] = done.stderr
        return report, losses, read_tensors(pathlib.Path(report["checkpoint"]))

    def check_same(self, one, other):
        """Reports, losses and weights of two layouts."""
        self.assertEqual(len(one[1]), len(other[1]))
        for a, b in zip(one[1], other[1]):
            self.assertAlmostEqual(a, b, delta=CLOSE * (1 + abs(a)))
        self.assertAlmostEqual(one[0]["test_loss"], other[0]["test_loss"], delta=CLOSE)
        self.assertAlmostEqual(one[0]["accuracy"], other[0]["accuracy"], delta=0.016)
        self.assertEqual(list(one[2]), list(other[2]))
        for name, a in one[2].items():
            b = other[2][name]
            self.assertEqual(len(a), len(b), name)
            most = max(abs(x) for x in a)
            off = max(abs(x - y) for x, y in zip(a, b))
            self.assertLessEqual(off, CLOSE * most, name)

    def test_as_the_whole_net(self):
        for name in NETS:
            net = self.write(name)
            whole = self.train(net, "whole")
            self.assertLess(whole[1][-1], 0.96 * whole[1][0])
            for options in (["--ranks=2", "--set=parallel.pipeline=2"],
                            ["--ranks=3", "--set=parallel.pipeline=auto",
                             "--set=parallel.micro_batches=4"],
                            ["--ranks=4", "--set=parallel.pipeline=4",
                             "--set=parallel.micro_batches=12"],
                            ["--ranks=4", "--set=parallel.pipeline=2", "--scaling=strong"]):
                with self.subTest(net=name, options=options):
                    report = self.train(net, "stages", *options)
                    self.check_same(whole, report)
                    self.assertEqual(report[0]["effective_batch"], 24)
                    self.assertEqual(report[0]["mesh"]["pipeline"],
                                     3 if "--ranks=3" in options
                                     else int(options[1][-1]))
                    self.assertGreater(report[0]["bubble"], 0)
                    self.assertLess(report[0]["bubble"], 1)
                    self.assertIn("were bubbles", report[0]["stderr"])

    def test_adding_up_gradients_is_work(self):
        """Micro-batches of one size: with several, a layer that is mostly weights has more to do."""
        net = self.write("lenet")
        shares = []
        for count in (1, 4):
            done = subprocess.run(
                [BIN, "check", str(net), "--ranks=2", "--set=parallel.pipeline=ip1",
                 "--set=ip1.num_output=5000", f"--set=data.batch={2 * count}",
                 f"--set=parallel.micro_batches={count}"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
            shares.append(int(re.search(r"stage 2, .* about (\d+) % of the work", done.stderr)[1]))
        self.assertGreater(shares[1], shares[0])

    def micro_batches(self, net, *options):
        """What check chooses, and says of it."""
        done = subprocess.run([BIN, "check", str(net), *options], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=True)
        return int(re.search(r"micro_batches = (\d+), the fewest of about the least work; "
                             r"next best: \d+, [-+]", done.stderr)[1])

    def test_number_of_micro_batches(self):
        """A stage that is mostly weights has most of its work in each micro-batch; convolutions over
        many samples are split, so that no stage waits."""
        net = self.write("lenet")
        stages = ["--ranks=2", "--set=parallel.pipeline=ip1"]
        heavy = [*stages, "--set=ip1.num_output=5000", "--set=data.batch=4"]
        self.assertEqual(self.micro_batches(net, *heavy), 1)
        many = ["--ranks=2", "--set=parallel.pipeline=2", "--set=data.batch=512"]
        self.assertGreater(self.micro_batches(net, *many), 2)

    def test_number_of_micro_batches_is_no_measurement(self):
        """check, which measures nothing, and training choose the same, however stages are cut, and
        whatever ranks share a stage."""
        net = self.write("lenet")
        for options in (["--ranks=2", "--set=parallel.pipeline=2"],
                        ["--ranks=2", "--set=parallel.pipeline=ip1", "--set=data.batch=96"],
                        ["--ranks=4", "--set=parallel.pipeline_ranks=3,1"]):
            with self.subTest(options=options):
                report, _, _ = self.train(net, "m", *options, "--iterations=2")
                self.assertEqual(report["micro_batches"], self.micro_batches(net, *options))

    def test_unequal_parts(self):
        """Micro-batches, and what the ranks of a stage get of them, need not be equal."""
        for name in NETS:
            net = self.write(name)
            whole = self.train(net, "whole")
            for options in (["--ranks=2", "--set=parallel.pipeline=2",
                             "--set=parallel.micro_batches=7"],
                            ["--ranks=4", "--set=parallel.pipeline=2", "--scaling=strong",
                             "--set=parallel.batch_split=2,1,1,3"],
                            ["--ranks=4", "--set=parallel.pipeline_ranks=3,1",
                             "--scaling=strong", "--set=parallel.batch_split=5,13,6,1",
                             "--set=parallel.micro_batches=5"]):
                with self.subTest(net=name, options=options):
                    report = self.train(net, "stages", *options)
                    self.check_same(whole, report)
                    self.assertEqual(report[0]["effective_batch"], 24)

    def test_repeats_to_the_bit(self):
        net = self.write("residual")
        options = ["--ranks=3", "--set=parallel.pipeline=relu2,conv4"]
        one = self.train(net, "one", *options)
        other = self.train(net, "other", *options)
        self.assertEqual(one[2], other[2])
        self.assertEqual(one[1], other[1])

    def test_checkpoints_go_on_in_every_layout(self):
        net = self.write("residual")
        layouts = ([], ["--ranks=2", "--set=parallel.pipeline=conv4"],
                   ["--ranks=4", "--set=parallel.pipeline=2", "--scaling=strong",
                    "--set=parallel.batch_split=3,1,1,2", "--set=parallel.micro_batches=5"],
                   ["--ranks=2", "--scaling=strong"])
        whole = self.train(net, "whole")
        for first in layouts:
            half = self.train(net, "half", f"--iterations={ITERATIONS // 2}", *first)
            for second in layouts:
                with self.subTest(first=first, second=second):
                    rest = self.train(net, "rest",
                                      f"--resume={half[0]['checkpoint']}", *second)
                    self.assertEqual(rest[0]["iterations"], ITERATIONS)
                    self.check_same((whole[0], whole[1][-len(rest[1]):], whole[2]),
                                    rest)

    def test_memory_is_bounded_by_the_stages(self):
        net = self.write("residual")
        options = ["--ranks=3", "--set=parallel.pipeline=relu2,conv4", "--iterations=2"]
        bytes_of = {}
        for batch in (12, 24, 48):
            report, _, _ = self.train(net, "m", *options, f"--set=data.batch={batch}",
                                      f"--set=parallel.micro_batches={batch // 4}")
            bytes_of[batch] = report["stage_bytes"]
            self.assertEqual(len(report["stage_bytes"]), 3)
        self.assertEqual(bytes_of[12], bytes_of[24])
        self.assertEqual(bytes_of[12], bytes_of[48])
        report, _, _ = self.train(net, "m", *options, "--set=parallel.micro_batches=1")
        self.assertGreater(report["stage_bytes"][0], bytes_of[24][0])

    def test_several_passes_an_update(self):
        net = self.write("lenet")
        options = ["--set=solver.accumulation_steps=2"]
        whole = self.train(net, "whole", *options)
        self.check_same(whole, self.train(net, "stages", "--ranks=2",
                                          "--set=parallel.pipeline=ip1", *options))

    def test_killed_stage_is_named(self):
        net = self.write("residual")
        for stage in range(3):
            job = subprocess.Popen(
                self.start(net, "--ranks=3", "--set=parallel.pipeline=auto",
                           "--iterations=1000000", "--set=train.display=1"),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, cwd=self.folder)
            said = ""
            while "iteration 4," not in said:
                line = job.stderr.readline()
                self.assertTrue(line, said)
                said += line
            children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
            ranks = sorted(int(pid) for pid in children.read_text().split())
            self.assertEqual(len(ranks), 3)
            began = time.monotonic()
            os.kill(ranks[stage], signal.SIGKILL)
            while "was killed by signal 9" not in said:
                line = job.stderr.readline()
                self.assertTrue(line, said)
                said += line
            took = time.monotonic() - began
            said += job.communicate(timeout=30)[1]
            self.assertEqual(job.returncode, 5, said)
            self.assertIn(f"rank {stage} ", said)
            self.assertIn(" during ", said)
            self.assertLess(took, report_seconds())

    def test_stopped_job_goes_on(self):
        net = self.write("lenet")
        job = subprocess.Popen(
            self.start(net, "--ranks=2", "--set=parallel.pipeline=2", "--iterations=1000000",
                       "--set=train.display=1", f"--run-dir={self.folder / 's'}"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        while "iteration 4," not in job.stderr.readline():
            pass
        job.send_signal(signal.SIGTERM)
        out, said = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, said)
        report = json.loads(out)
        self.assertTrue(report["stopped"])
        end = report["iterations"] + 3
        report, _, _ = self.train(net, "s", "--resume=auto", f"--iterations={end}")
        self.assertEqual(report["iterations"], end)

    def test_refused(self):
        net = self.write("lenet")
        for options, sentence in (
                (["--ranks=3", "--set=parallel.pipeline=2"],
                 "3 ranks cannot be split among 2 stages"),
                (["--ranks=2", "--set=parallel.pipeline=con2"], "did you mean conv2?"),
                (["--ranks=3", "--set=parallel.pipeline=ip1,conv2"], "in the order of the net"),
                (["--ranks=2", "--set=parallel.pipeline=pool1x"], "did you mean pool1?"),
                (["--ranks=8", "--set=parallel.pipeline=auto"],
                 "layers with weights for 4 stages, not for 8"),
                (["--ranks=2", "--set=parallel.pipeline=2", "--set=parallel.micro_batches=25"],
                 "the 24 samples of a batch cannot be divided into 25 micro-batches"),
                (["--ranks=4", "--set=parallel.pipeline=2", "--set=parallel.batch_split=1,2"],
                 "batch_split has 2 proportions, but there are 4 ranks"),
                (["--ranks=4", "--set=parallel.pipeline=2",
                  "--set=parallel.batch_split=1,0,1,1"], "gives rank 1 no samples")):
            with self.subTest(options=options):
                self.assertIn(sentence, self.refuse(net, *options))


if __name__ == "__main__":
    unittest.main(verbosity=2)
