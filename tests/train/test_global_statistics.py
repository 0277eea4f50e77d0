#!/usr/bin/env python3
"""batch_norm with statistics = global: the loss curve of a residual net depends neither on
the number of ranks nor on how they split the batch, on a CPU and on a device with queues,
and ranks that wait for each other in a pass notice a death."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from deaths import report_seconds

BIN = os.environ["DLCORE_BIN"]
ASYNC_PLUGINS = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"
ITERATIONS = 20
WITHIN = 1e-4  # of the loss in each iteration; in 100 iterations 2e-5 were seen

NET = """[net]
name = small-resnet
[data]
source = synthetic
shape = 3,16,16
classes = 10
samples = 2048
batch = 32
transforms = normalize(mean=128, scale=0.016)
[solver]
type = sgd
learning_rate = 0.005
momentum = 0.9
[train]
display = 1
[block conv_bn]
params = width, kernel
stride = 1
pad = 0
[conv_bn.conv]
type = convolution
num_output = $width
kernel_size = $kernel
stride = $stride
pad = $pad
bias = false
weight_filler = msra
[conv_bn.bn]
type = batch_norm
statistics = {statistics}
[stem]
block = conv_bn
width = 16
kernel = 3
pad = 1
[relu1]
type = relu
[a1]
block = conv_bn
width = 16
kernel = 3
pad = 1
[a1relu]
type = relu
[a2]
block = conv_bn
width = 16
kernel = 3
pad = 1
[a_sum]
type = eltwise
input = a2, relu1
[a_relu]
type = relu
[b1]
block = conv_bn
width = 32
kernel = 3
pad = 1
stride = 2
[b1relu]
type = relu
[b_side]
block = conv_bn
input = a_relu
width = 32
kernel = 1
stride = 2
[b_sum]
type = eltwise
input = b_side, b1relu
[b_relu]
type = relu
[pool]
type = pooling
method = average
global = true
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""

SPLITS = {
    "two ranks": ["--ranks=2"],
    "four ranks": ["--ranks=4"],
    "uneven": ["--ranks=2", "--set=parallel.batch_split=3,1"],
    # A rank that has no samples, while updates of weights wait for the next forward.
    "none": ["--ranks=3", "--set=parallel.batch_split=0,1,2",
             "--set=transport.overlap_forward=yes", "--set=transport.bucket_bytes=4K"],
    "recompute": ["--ranks=2", "--set=train.recompute=yes", "--transport=host-staged"],
    "tensor groups": ["--ranks=4", "--set=parallel.tensor=2", "--set=parallel.data=2",
                      "--set=parallel.tensor_schedule=whole_batch"],
}

# On the device with queues: values are gathered in the order of a queue, or by messages.
STREAM_ORDERED = ["--transport=async", "--set=transport.overlap_forward=no",
                  # One bucket: shards would leave a rest, the second.
                  "--set=transport.bucket_bytes=1M", "--set=transport.shard_optimizer=no"]
ON_QUEUES = {
    "one rank": [],
    "stream-ordered": ["--ranks=2", *STREAM_ORDERED],
    "four ranks": ["--ranks=4", *STREAM_ORDERED],
    "messages": ["--ranks=2", "--transport=host-staged"],
    "uneven": ["--ranks=2", "--set=parallel.batch_split=3,1", *STREAM_ORDERED],
    "none": SPLITS["none"],
    "recompute": ["--ranks=2", "--set=train.recompute=yes", *STREAM_ORDERED],
    # Reductions of layers and of buckets, which take turns on each rank as they come.
    "buckets": ["--ranks=3", "--set=parallel.batch_split=0,1,2",
                "--set=transport.overlap_forward=no", "--set=transport.shard_optimizer=yes",
                "--set=transport.bucket_bytes=4K"],
    "tensor groups": SPLITS["tensor groups"],
}


class GlobalStatistics(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.net = self.write("global")

    def write(self, statistics):
        path = self.folder / f"{statistics}.ini"
        path.write_text(NET.format(statistics=statistics))
        return path

    def command(self, net, *more, iterations=ITERATIONS):
        run = tempfile.mkdtemp(dir=self.folder)
        return [BIN, "train", str(net), "--threads=1", "--scaling=strong",
                f"--iterations={iterations}", f"--run-dir={run}/run",
                f"--log-file={run}/log", *more], pathlib.Path(run) / "log"

    def curve(self, net, *more, **variables):
        """The loss of each iteration."""
        return self.curve_and_log(net, *more, **variables)[0]

    def curve_and_log(self, net, *more, **variables):
        command, log = self.command(net, *more)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, env={**os.environ, **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        losses = [event["training_loss"] for event in events if event["event"] == "train"]
        self.assertEqual(len(losses), ITERATIONS)
        return losses, done.stderr

    def curve_on_queues(self, *more):
        return self.curve_and_log(self.net, "--set=train.device=async", *more,
                                  DLCORE_PLUGIN_PATH=str(ASYNC_PLUGINS))

    @staticmethod
    def difference(one, other):
        return max(abs(a - b) / a for a, b in zip(one, other))

    def test_same_curve(self):
        one = self.curve(self.net)
        self.assertLess(one[-1], 0.98 * one[0])
        for name, more in SPLITS.items():
            with self.subTest(name):
                self.assertLess(self.difference(one, self.curve(self.net, *more)), WITHIN)

    def test_same_curve_on_queues(self):
        one = self.curve(self.net)
        for name, more in ON_QUEUES.items():
            with self.subTest(name):
                curve, log = self.curve_on_queues(*more)
                self.assertLess(self.difference(one, curve), WITHIN)
                self.assertEqual("are captured as a graph" in log,
                                 not more or "--transport=async" in more, log)

    def test_local_statistics_differ(self):
        """What the others would not notice if nothing were exchanged."""
        net = self.write("local")
        self.assertGreater(self.difference(self.curve(net), self.curve(net, "--ranks=4")),
                           100 * WITHIN)

    def test_accumulation(self):
        more = ["--set=solver.accumulation_steps=2"]
        self.assertLess(self.difference(self.curve(self.net, *more),
                                        self.curve(self.net, *more, "--ranks=2")), WITHIN)

    def test_stages(self):
        """Replicas of a stage reduce micro-batch by micro-batch, while stages exchange
        messages: as one replica whose micro-batches are as large together."""
        more = ["--set=parallel.pipeline=2", "--set=parallel.micro_batches=4"]
        self.assertLess(self.difference(self.curve(self.net, "--ranks=2", *more),
                                        self.curve(self.net, "--ranks=4", *more)), 0.05)
        one = self.curve(self.net, "--ranks=4", *more, "--transport=host-staged")
        self.assertEqual(one, self.curve(self.net, "--ranks=4", *more, "--transport=p2p-tree"))

    def test_stages_on_queues(self):
        """Replicas of a stage, and of a stage of tensor groups."""
        for more in ([], ["--set=parallel.tensor=2"]):
            with self.subTest(more):
                more = ["--ranks=4", "--set=parallel.pipeline=2",
                        "--set=parallel.micro_batches=2", *more]
                self.assertLess(self.difference(self.curve(self.net, *more),
                                                self.curve_on_queues(*more)[0]), WITHIN)

    def test_refuses_staleness(self):
        command, _ = self.command(self.net, "--ranks=2", "--consistency=ssp")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("must be in the same iteration", done.stderr)

    def test_is_shown(self):
        shown = subprocess.run([BIN, "check", str(self.net), "--ranks=2"], check=True,
                               capture_output=True, text=True, timeout=60).stdout
        self.assertIn("global statistics", shown)

    def start(self, *more, **variables):
        """A job whose rank 1 has stopped, and that rank."""
        command, log = self.command(self.net, "--ranks=3", *more, iterations=100000)
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **variables})
        self.addCleanup(job.kill)
        deadline = time.monotonic() + 60
        while not (log.exists() and '"iteration":3,' in log.read_text()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text()
        rank = int(children.split()[1])
        os.kill(rank, signal.SIGSTOP)
        return job, rank

    def check_death(self, *more, **variables):
        job, rank = self.start(*more, **variables)
        time.sleep(0.5)  # the others wait for it
        began = time.monotonic()
        os.kill(rank, signal.SIGKILL)
        log = job.communicate(timeout=60)[1]
        self.assertLess(time.monotonic() - began, report_seconds())
        self.assertEqual(job.returncode, 5, log)
        self.assertRegex(log, r"rank 1 .*(killed|SIGKILL|signal 9)")

    def test_death(self):
        self.check_death()

    def test_death_on_queues(self):
        for transport in ("async", "host-staged"):
            with self.subTest(transport):
                self.check_death("--set=train.device=async", f"--transport={transport}",
                                 DLCORE_PLUGIN_PATH=str(ASYNC_PLUGINS))

    def test_hang(self):
        """A rank that stops while the others are in a pass; now and then it stops in an update."""
        for _ in range(5):
            job, _ = self.start("--set=parallel.hang_timeout=2")
            log = job.communicate(timeout=60)[1]
            self.assertEqual(job.returncode, 5, log)
            self.assertRegex(log, "rank 1")
            if re.search("forward|backward", log):
                return
        self.fail(log)


if __name__ == "__main__":
    unittest.main()
