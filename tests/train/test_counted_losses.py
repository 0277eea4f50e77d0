#!/usr/bin/env python3
"""Losses are means over what counts in the whole batch: classes that are missing, pixels that
are ignored, numbers that are NaN, however ranks, micro-batches and accumulation steps divide
the batch. Expected weights are computed here, from the definition: the mean that PyTorch's
cross_entropy(ignore_index=...), and its other losses over the elements that are not NaN, give
for the whole batch; gradients are differences of that, in double precision."""

import array
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import unittest
import unittest.mock

from test_fields import tensors

BIN = os.environ["DLCORE_BIN"]
SAMPLES, BATCH, PIXELS, IN, CLASSES, HIDDEN = 24, 8, 6, 12, 3, 4
IGNORED, RATE = 255, 0.2
CLOSE = 1e-5  # float32, and differences in place of derivatives

HEAD = f"""
[net]
name = counted
[data]
source = npy
path = arrays
image = x
label = y
vector = t
labels = s
mask = m
shuffle = no
batch = {BATCH}
[solver]
type = sgd
learning_rate = {RATE}
momentum = 0
weight_decay = 0
[train]
epochs = 1
"""
PIXEL_LOSS = f"""
[pixel]
type = convolution
num_output = {CLASSES}
kernel_size = 1
weight_filler = gaussian(0.5)
[pixels]
type = softmax_loss
label = mask
ignore_label = {IGNORED}
"""
CLASS_LOSS = f"""
[ip1]
type = inner_product
input = data
num_output = {HIDDEN}
weight_filler = gaussian(0.5)
[relu1]
type = relu
[class]
type = inner_product
num_output = {CLASSES}
weight_filler = gaussian(0.5)
[classes]
type = softmax_loss
label = label
"""
OTHER_LOSSES = """
[number]
type = inner_product
input = relu1
num_output = 2
weight_filler = gaussian(0.5)
[numbers]
type = euclidean_loss
label = vector
normalize = sample
loss_weight = 0.5
[several]
type = inner_product
input = relu1
num_output = 2
weight_filler = gaussian(0.5)
[several_loss]
type = sigmoid_cross_entropy_loss
label = labels
normalize = element
loss_weight = 2
"""
NETS = {"one": HEAD + CLASS_LOSS, "two": HEAD + PIXEL_LOSS + CLASS_LOSS,
        "four": HEAD + PIXEL_LOSS + CLASS_LOSS + OTHER_LOSSES}

# The labels of the first batch are those of a rank that has hardly any, beside one that has all;
# those of the second batch are with its last rank; in the third only one is missing.
LABELS = [-1, -1, -1, 2, 0, 1, 2, 1,
          -1, -1, -1, -1, -1, -1, 1, 2,
          0, 1, 2, -1, 1, 1, 0, 2]


def write_npy(path, kind, shape, values):
    header = repr({"descr": kind, "fortran_order": False, "shape": shape})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                     + array.array({"<f4": "f", "<i4": "i", "|u1": "B"}[kind], values).tobytes())


class Samples:
    """Values, and which of them count, of unlike parts of the batches."""

    def __init__(self):
        draw = random.Random(37)
        missing = [0.9 if n % BATCH < 3 else 0.5 if n % BATCH < 5 else 0 for n in range(SAMPLES)]
        self.x = [[[struct.unpack("f", struct.pack("f", draw.uniform(-1, 1)))[0] for _ in range(PIXELS)]
                   for _ in range(2)] for _ in range(SAMPLES)]
        self.y = LABELS
        self.m = [[IGNORED if draw.random() < gone else draw.randrange(CLASSES) for _ in range(PIXELS)]
                  for gone in missing]
        self.t = [[math.nan if draw.random() < gone else draw.randrange(-4, 5) / 4 for _ in range(2)]
                  for gone in missing]
        self.s = [[IGNORED if draw.random() < gone else draw.randrange(2) for _ in range(2)]
                  for gone in missing]

    def write(self, folder):
        folder.mkdir()
        flat = lambda rows: [value for row in rows for value in row]
        write_npy(folder / "x.npy", "<f4", (SAMPLES, 2, 2, 3), flat(map(flat, self.x)))
        write_npy(folder / "y.npy", "<i4", (SAMPLES,), self.y)
        write_npy(folder / "m.npy", "|u1", (SAMPLES, 2, 3), flat(self.m))
        write_npy(folder / "t.npy", "<f4", (SAMPLES, 2), flat(self.t))
        write_npy(folder / "s.npy", "|u1", (SAMPLES, 2), flat(self.s))


# ---- The definition ------------------------------------------------------------------------

def layer(weights, name, values):
    w, b = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return [b[o] + sum(w[o * len(values) + i] * value for i, value in enumerate(values))
            for o in range(len(b))]


def cross_entropy(scores, label):
    top = max(scores)
    return top + math.log(sum(math.exp(score - top) for score in scores)) - scores[label]


def mean(values):
    return sum(values) / len(values) if values else 0


def loss(weights, samples, batch):
    """The weighted sum of the net's means over the batch."""
    pixels, classes, numbers, several = [], [], [], []
    for n in batch:
        x = samples.x[n]
        if "pixel.weight" in weights:
            pixels += [cross_entropy(layer(weights, "pixel", [plane[p] for plane in x]), label)
                       for p, label in enumerate(samples.m[n]) if label != IGNORED]
        hidden = [max(0, value) for value in layer(weights, "ip1", [v for plane in x for v in plane])]
        if samples.y[n] >= 0:
            classes.append(cross_entropy(layer(weights, "class", hidden), samples.y[n]))
        if "number.weight" not in weights:
            continue
        far = [(value - target) ** 2 / 2
               for value, target in zip(layer(weights, "number", hidden), samples.t[n]) if target == target]
        if far:
            numbers.append(sum(far))
        several += [math.log(1 + math.exp(score)) - target * score
                    for score, target in zip(layer(weights, "several", hidden), samples.s[n])
                    if target != IGNORED]
    return mean(pixels) + mean(classes) + 0.5 * mean(numbers) + 2 * mean(several)


def gradient(weights, samples, batch):
    step, slopes = 1e-5, {}
    for name, values in weights.items():
        slopes[name] = []
        for i, value in enumerate(values):
            values[i] = value + step
            above = loss(weights, samples, batch)
            values[i] = value - step
            slopes[name].append((above - loss(weights, samples, batch)) / (2 * step))
            values[i] = value
    return slopes


def descend(weights, samples):
    """The weights after an epoch, and the mean of its losses."""
    weights = {name: list(values) for name, values in weights.items()}
    losses = []
    for first in range(0, SAMPLES, BATCH):
        batch = range(first, first + BATCH)
        losses.append(loss(weights, samples, batch))
        for name, slopes in gradient(weights, samples, batch).items():
            weights[name] = [value - RATE * slope for value, slope in zip(weights[name], slopes)]
    return weights, mean(losses)


# ---- Jobs ----------------------------------------------------------------------------------

SPLIT = ["--set=class.parallel=tensor", "--set=number.parallel=tensor", "--set=several.parallel=tensor"]
SSP = ["--set=consistency.type=ssp", "--set=consistency.staleness=0"]
MODES = {
    1: [["--set=data.batch=4", "--set=solver.accumulation_steps=2"],
        ["--set=data.batch=1", "--set=solver.accumulation_steps=8"]],
    2: [[], ["--set=data.batch=4", "--scaling=weak"], ["--set=parallel.batch_split=3,5"],
        ["--set=parallel.batch_split=0,1"], ["--set=transport.shard_optimizer=yes"],
        ["--set=transport.overlap_forward=yes", "--transport=host-staged"],
        ["--set=data.batch=4", "--set=solver.accumulation_steps=2"],
        ["--set=train.recompute=yes"],
        ["--set=solver.clip_gradients=1e6"],
        ["--set=parallel.pipeline=class", "--set=parallel.micro_batches=4"],
        ["--set=parallel.pipeline=class", "--set=parallel.micro_batches=3"],
        ["--set=data.batch=4", "--set=parallel.pipeline=class", "--set=parallel.micro_batches=2",
         "--set=solver.accumulation_steps=2"],
        [*SPLIT, "--set=parallel.tensor_schedule=whole_batch"], SSP],
    3: [[], [*SSP, "--set=consistency.servers=1"], ["--set=data.batch=4", "--set=solver.accumulation_steps=2"]],
    4: [[], [*SPLIT, "--set=parallel.tensor=2", "--set=parallel.tensor_schedule=whole_batch"],
        ["--set=parallel.pipeline=class", "--set=parallel.pipeline_ranks=2,2",
         "--set=parallel.micro_batches=2"]],
}


class CountedLosses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.samples = Samples()
        cls.samples.write(cls.folder / "arrays")
        cls.runs = 0
        cls.wanted = {}
        for net, text in NETS.items():
            (cls.folder / f"{net}.ini").write_text(text)
            _, begin = cls.train(net, "--set=solver.learning_rate=1e-30", "--iterations=1")
            cls.wanted[net] = descend(begin, cls.samples)

    @classmethod
    def train(cls, net, *arguments):
        cls.runs += 1
        run = cls.folder / f"run{cls.runs}"
        scaling = [] if any("--scaling" in a for a in arguments) else ["--scaling=strong"]
        done = subprocess.run([BIN, "train", f"{net}.ini", "--json", "-q", "--threads=1", f"--run-dir={run}",
                               *scaling, *arguments], cwd=cls.folder, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{arguments}: {done.stderr}")
        found = tensors(max(run.glob("*.safetensors")))
        return json.loads(done.stdout), {name: found[name] for name in found if "/" not in name}

    def check(self, *arguments, net="four"):
        said, weights = self.train(net, *arguments)
        wanted, loss_of_all = self.wanted[net]
        with self.subTest(net=net, arguments=arguments):
            self.assertAlmostEqual(said["training_loss"], loss_of_all, delta=CLOSE)
            self.assertEqual(weights.keys(), wanted.keys())
            for name, values in weights.items():
                far = max(abs(a - b) for a, b in zip(values, wanted[name]))
                self.assertLess(far, CLOSE, name)

    def test_alone(self):
        self.check()
        for mode in MODES[1]:
            self.check(*mode)

    def test_two_ranks(self):
        for mode in MODES[2]:
            self.check("--ranks=2", *mode)

    def test_more_ranks(self):
        for ranks in (3, 4):
            for mode in MODES[ranks]:
                self.check(f"--ranks={ranks}", *mode)

    def test_batch_chunks(self):
        """Tensor-parallel layers that get the samples of all ranks bit by bit."""
        for ranks in (2, 3):
            for schedule in ("by_rank", "chunked"):
                self.check(f"--ranks={ranks}", "--set=class.parallel=tensor",
                           f"--set=parallel.tensor_schedule={schedule}", net="one")

    def test_device_with_queues(self):
        """Iterations are queued before those ahead of them have ended."""
        plugins = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"
        self.assertTrue((plugins / "device-async.so").exists())
        environment = unittest.mock.patch.dict(os.environ, DLCORE_PLUGIN_PATH=str(plugins))
        environment.start()
        self.addCleanup(environment.stop)
        for mode in ([], ["--ranks=2"], ["--ranks=3"],
                     ["--ranks=2", "--set=data.batch=4", "--set=solver.accumulation_steps=2"],
                     ["--ranks=2", "--set=parallel.pipeline=class", "--set=parallel.micro_batches=4"],
                     ["--ranks=2", *SSP]):
            self.check("--device=async", *mode, net="two")


if __name__ == "__main__":
    unittest.main()
