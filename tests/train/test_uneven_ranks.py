#!/usr/bin/env python3
"""Ranks with different numbers of samples train like one rank with the whole batch,
whatever layouts their layers choose; and a run is a function of its batch split."""

import array
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

from test_solvers import DEVICES
from test_transports import tensors_digest

BIN = os.environ["DLCORE_BIN"]
MODELS = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "models"
ITERATIONS = 4
# Relative to the largest change of a tensor's elements: sums in another order, and other
# roundings where layers use other algorithms for other batches. Seen: 1e-5 to 2e-4.
WITHIN = 2e-3
IN_ORDER = ("host-staged", "p2p-tree", "ucx")

DATA = """[data]
source = synthetic
shape = {shape}
samples = 5000
batch = 100
transforms = normalize(scale=0.01)
"""

# Convolutions like those of ResNet-18, without batch_norm, whose statistics are of one
# rank's samples.
RESIDUAL = """[net]
name = residual
{data}
[solver]
type = sgd
learning_rate = 0.002
momentum = 0.9
[train]
[conv1]
type = convolution
num_output = 64
kernel_size = 7
stride = 2
pad = 3
weight_filler = msra
[relu1]
type = relu
[conv2a]
type = convolution
num_output = 64
kernel_size = 3
pad = 1
weight_filler = msra
[relu2]
type = relu
[conv2b]
type = convolution
num_output = 64
kernel_size = 3
pad = 1
weight_filler = gaussian(0.01)
[sum2]
type = eltwise
input = conv2b, relu1
[conv3]
type = convolution
num_output = 128
kernel_size = 3
stride = 2
pad = 1
weight_filler = msra
[side3]
type = convolution
num_output = 128
kernel_size = 1
stride = 2
input = sum2
weight_filler = gaussian(0.01)
[sum3]
type = eltwise
input = conv3, side3
[relu3]
type = relu
[pool]
type = pooling
method = average
kernel_size = 4
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""

# With running averages, and so small that the slow rank's pauses are most of the time.
# With 30 samples on each rank, the equal split, weights have other layouts than with most
# other splits.
NORMED = """[net]
name = normed
[data]
source = synthetic
shape = 1,16,16
classes = 4
samples = {samples}
batch = 90
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.05
momentum = 0.9
weight_decay = 0.0005
[train]
[conv1]
type = convolution
num_output = 8
kernel_size = 5
[norm1]
type = batch_norm
[relu1]
type = relu
[conv2]
type = convolution
num_output = 20
kernel_size = 3
[ip1]
type = inner_product
num_output = 16
[drop1]
type = dropout
ratio = 0.25
[ip2]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


def with_made_up_data(model, shape):
    """A net of models/ that reads 100 made-up samples in each iteration."""
    text = (MODELS / f"{model}.ini").read_text()
    text = re.sub(r"\[data\.test\].*?(?=\n\[)", "", text, flags=re.S)
    text = re.sub(r"\[data\].*?(?=\n\[)", DATA.format(shape=shape), text, flags=re.S)
    return re.sub(r"\[run\].*?(?=\n\[)", "[train]\n", text, flags=re.S)


def read_tensors(path):
    """The float32 tensors of a checkpoint, by name."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            tensors[name] = array.array("f", data[begin + first:begin + last])
    return tensors


def largest(numbers):
    return max((abs(n) for n in numbers), default=0)


def slow_down_a_rank(job, log, stop=0.02):
    """Stops the job's last rank most of the time, from its second iteration until the job
    has ended: at least four times as long as it has run before, however late this process
    was to stop it on a busy machine."""
    children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
    while job.poll() is None and not (log.exists() and "\"iteration\":2," in
                                      log.read_text().replace(" ", "")):
        time.sleep(0.01)
    rank = int(children.read_text().split()[-1]) if job.poll() is None else 0
    continued = time.monotonic()
    while rank and job.poll() is None:
        try:
            os.kill(rank, signal.SIGSTOP)
            ran = time.monotonic() - continued
            time.sleep(max(stop, min(4 * ran, 1)))
            os.kill(rank, signal.SIGCONT)
            continued = time.monotonic()
            time.sleep(0.005)
        except ProcessLookupError:
            break


class UnevenRanks(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, text):
        path = self.folder / f"{name}.ini"
        path.write_text(text)
        return path

    def run_it(self, net, *more, iterations=ITERATIONS):
        return subprocess.run(
            [BIN, "train", str(net), "--json", "--threads=1", "--scaling=strong",
             f"--iterations={iterations}",
             f"--run-dir={tempfile.mkdtemp(dir=self.folder)}", *more],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def train(self, net, *more, iterations=ITERATIONS):
        """The report, the log and the checkpoint."""
        done = self.run_it(net, *more, iterations=iterations)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        return report, done.stderr, pathlib.Path(report["checkpoint"])

    def weights(self, net, *more, iterations=ITERATIONS):
        return read_tensors(self.train(net, *more, iterations=iterations)[2])

    def digest(self, net, *more):
        return tensors_digest(self.train(net, *more)[2])

    def check_like(self, start, expected, found):
        for name, values in expected.items():
            zeros = array.array("f", bytes(4 * len(values)))  # momentum starts at 0
            change = largest(a - b for a, b in zip(values, start.get(name, zeros)))
            error = largest(a - b for a, b in zip(values, found[name]))
            self.assertGreater(change, 0, name)
            self.assertLessEqual(error, WITHIN * change, name)

    def check_net(self, net, *lists):
        start = self.weights(net, iterations=0)
        expected = self.weights(net)
        # With 32 samples layers may choose a batch-blocked layout, with others not. One rank has
        # only one sample.
        for split in ("32,32,36", "90,9,1", *lists):
            with self.subTest(net=net.stem, split=split):
                self.check_like(start, expected, self.weights(
                    net, "--ranks=3", "--set", f"parallel.batch_split={split}"))

    def test_lenet(self):
        net = self.write("lenet", with_made_up_data("lenet", "1,28,28"))
        # 34, 33, 33; and a rank without samples.
        self.check_net(net, "equal", "0,1,2")

    def test_cifar10_full(self):
        # Starts from weights that let gradients through, so that all weights change.
        text = with_made_up_data("cifar10-full", "3,32,32")
        text = text.replace("learning_rate = 0.001\n", "learning_rate = 0.01\n", 1)
        text = re.sub(r"weight_filler = .*", "weight_filler = msra", text)
        self.check_net(self.write("cifar10-full", text))

    def test_residual(self):
        self.check_net(self.write("residual", RESIDUAL.format(
            data=DATA.format(shape="3,32,32"))))

    def test_precision(self):
        """Layers that round their weights can keep them plain as well."""
        net = self.write("residual", RESIDUAL.format(data=DATA.format(shape="3,32,32")))
        low = ("--set", "train.precision=bf16")
        done = self.run_it(net, *low, iterations=1)
        if done.returncode != 0 and "bfloat16" in done.stderr:
            self.skipTest("no bfloat16 arithmetic here")
        expected = self.train(net, *low)[0]["training_loss"]
        found = self.train(net, *low, "--ranks=3", "--set", "parallel.batch_split=32,32,36")
        self.assertAlmostEqual(found[0]["training_loss"], expected, delta=0.02 * expected)

    def test_one_order_of_reduction(self):
        net = self.write("lenet", with_made_up_data("lenet", "1,28,28"))
        listed = subprocess.run([BIN, "plugin", "list"], check=True,
                                capture_output=True, text=True).stdout
        digests = {transport: self.digest(net, "--ranks=3", "--set",
                                          "parallel.batch_split=5,3,2", "--set",
                                          f"transport.type={transport}")
                   for transport in IN_ORDER if f" {transport} " in listed}
        self.assertGreater(len(digests), 1)
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_auto_can_be_repeated(self):
        net = self.write("lenet", with_made_up_data("lenet", "1,28,28"))
        report, log, path = self.train(net, "--ranks=3", "--set", "parallel.batch_split=auto")
        first = tensors_digest(path)
        self.assertEqual(sum(report["batch_split"]), 100)
        self.assertGreaterEqual(min(report["batch_split"]), 1)
        found = ",".join(str(count) for count in report["batch_split"])
        self.assertIn(f"--set parallel.batch_split={found}", log)
        self.assertRegex(log, r"rank 2: \d+ samples/s, \d+ samples of each batch")
        self.assertEqual(
            self.digest(net, "--ranks=3", "--set", f"parallel.batch_split={found}"), first)

    def rebalance(self, net, iterations, ranks, stop, more):
        """Its run folder, and the first split and every later one, by iteration."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        whole = tempfile.mkdtemp(dir=self.folder)
        job = subprocess.Popen(
            [BIN, "train", str(net), "--threads=1", "--scaling=strong", f"--ranks={ranks}",
             "--set=parallel.batch_split=auto", f"--log-file={log}", "--set=train.display=1",
             f"--iterations={iterations}", f"--run-dir={whole}", *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(job.kill)
        slow_down_a_rank(job, log, stop)
        self.assertEqual(job.wait(120), 0)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        return whole, {event["iteration"]: event["batch_split"] for event in events
                       if event["event"] == "batch_split"}

    def check_rebalances(self, net, epoch, *more, epochs=3, ranks=3, first=None, stop=0.02):
        """A rank becomes slow in the middle of the run. What then happens can be
        repeated bitwise with lists and checkpoints. `first`: the split before any is
        measured. Returns the last one."""
        for _ in range(3):  # on a busy machine the others may be as slow
            whole, splits = self.rebalance(net, epoch * epochs, ranks, stop, more)
            if first:
                splits[0] = first
            if len(set(splits.values())) > 1:
                break
        self.assertGreater(len(set(splits.values())), 1, splits)
        expected = tensors_digest(
            pathlib.Path(whole) / f"{net.stem}-{epochs * epoch:08}.safetensors")

        resume = []
        for begin in sorted(splits):
            end = min((at for at in splits if at > begin), default=epochs * epoch)
            path = self.train(net, f"--ranks={ranks}", "--set",
                              f"parallel.batch_split={splits[begin]}",
                              *resume, *more, iterations=end)[2]
            resume = [f"--resume={path}"]
        self.assertEqual(tensors_digest(path), expected)
        return splits[max(splits)]

    def test_rebalances(self):
        text = with_made_up_data("lenet", "1,28,28").replace("samples = 5000", "samples = 2500")
        net = self.write("lenet", text.replace("policy = inv\n", "policy = fixed\n"))
        self.check_rebalances(net, 25)

    def test_rebalances_a_stage(self):
        """The ranks of each pipeline stage are balanced."""
        text = with_made_up_data("lenet", "1,28,28")
        net = self.write("lenet", text.replace("policy = inv\n", "policy = fixed\n"))
        last = self.check_rebalances(net, 40, "--set=parallel.pipeline=conv2", epochs=1,
                                     ranks=4, first="50,50,50,50", stop=0.06)
        self.assertLess(int(last.split(",")[3]), 50)

    def test_rebalances_tensor_groups(self):
        """The ranks of a tensor group keep equal parts, as many as the slowest can do."""
        # Checkpoints have the mean of running averages, so that these cannot be repeated.
        text = NORMED.format(samples=3000).replace("[norm1]\ntype = batch_norm\n", "")
        net = self.write("normed", text)
        last = self.check_rebalances(
            net, 30, "--set=data.batch=100", "--set=ip1.parallel=tensor", "--set=parallel.tensor=2",
            "--set=parallel.tensor_schedule=whole_batch", epochs=1, ranks=4,
            first="25,25,25,25")
        counts = [int(count) for count in last.split(",")]
        self.assertEqual((counts[0], counts[2]), (counts[1], counts[3]))
        self.assertLess(counts[3], 25)

    def test_rebalances_on_queues(self):
        """Some iterations wait for the queue, so that their time is known."""
        net = self.write("normed", NORMED.format(samples=90 * 24))
        with unittest.mock.patch.dict(os.environ, DEVICES):
            self.check_rebalances(net, 24, "--device=async", epochs=2, ranks=2)

    def test_rebalances_with_other_settings(self):
        """Accumulated gradients, sharded solver state and running averages are kept, too."""
        adam = NORMED.replace("momentum = 0.9\n", "")
        for text, samples, more in (
                (NORMED, 90 * 48, ("--set=solver.accumulation_steps=2",)),
                (adam, 90 * 24, ("--set=transport.shard_optimizer=yes",
                                 "--set=transport.bucket_bytes=1K", "--solver=adam",
                                 "--set=solver.learning_rate=0.002", "--set=solver.ema=0.75"))):
            with self.subTest(more):
                net = self.write("normed", text.format(samples=samples))
                self.check_rebalances(net, 24, *more)

    def start_slow(self, net, log, *more):
        """A job of three ranks, one of which becomes slow."""
        job = subprocess.Popen(
            [BIN, "train", str(net), "--threads=1", "--scaling=strong", "--ranks=3",
             f"--log-file={log}", "--set=train.display=1", "--set=train.checkpoint_last=no",
             "--set=train.checkpoint_minutes=0",
             "--consistency=ssp", "--set=consistency.staleness=3", *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(job.kill)
        slow_down_a_rank(job, log)
        out, _ = job.communicate(timeout=120)
        self.assertEqual(job.returncode, 0)
        events = [json.loads(line) for line in log.read_text().splitlines()]
        return json.loads(out), [event for event in events if event["event"] == "batch_split"]

    def test_rebalances_with_staleness(self):
        """With bounded staleness ranks rebalance by default, and within an epoch."""
        net = self.write("lenet", with_made_up_data("lenet", "1,28,28").replace(
            "policy = inv\n", "policy = fixed\n"))
        report, events = self.start_slow(net, self.folder / "log", "--json",
                                         "--iterations=40")
        self.assertEqual([event["iteration"] for event in events], [23])
        self.assertEqual(report["batch_split"],
                         [int(x) for x in events[0]["batch_split"].split(",")])
        self.assertEqual(sum(report["batch_split"]), 100)
        self.assertLess(report["batch_split"][2], 33)
        self.assertEqual(len(events[0]["fixed_s"]), 3)
        _, events = self.start_slow(net, self.folder / "even", "--json",
                                    "--iterations=30", "--set=parallel.batch_split=equal")
        self.assertEqual(events, [])

    def test_resumes(self):
        net = self.write("lenet", with_made_up_data("lenet", "1,28,28"))
        uneven = ("--ranks=3", "--set", "parallel.batch_split=5,0,2")
        straight = self.digest(net, *uneven)
        half = self.train(net, *uneven, iterations=2)[2]
        self.assertEqual(self.digest(net, *uneven, f"--resume={half}"), straight)

    def test_weak_scaling(self):
        """The batch of all ranks is that of net.ini times the ranks, however it is split."""
        net = self.write("lenet", with_made_up_data("lenet", "1,28,28"))
        report, log, _ = self.train(net, "--ranks=3", "--scaling=weak", "--set",
                                    "parallel.batch_split=1,1,0.5")
        self.assertEqual(report["effective_batch"], 300)
        self.assertEqual(report["batch_split"], [120, 120, 60])
        self.assertIn("batch of 300 split among the ranks: 120,120,60", log)

    def test_mistakes(self):
        text = with_made_up_data("lenet", "1,28,28")
        for value, says in (("1,1", "has 2 proportions, but there are 3 ranks"),
                            ("1,1,x", "value 3 of \"1,1,x\" is not a number"),
                            ("0,0,0", "no rank has any samples")):
            with self.subTest(value):
                wrong = f"[parallel]\nbatch_split = {value}\n[train]\n"
                net = self.write("wrong", text.replace("[train]\n", wrong))
                line = net.read_text().split("\n").index(f"batch_split = {value}") + 1
                done = self.run_it(net, "--ranks=3")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"wrong.ini:{line}: [parallel] batch_split", done.stderr)
                self.assertIn(says, done.stderr)
                self.assertEqual(done.stderr.count(says), 1, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
