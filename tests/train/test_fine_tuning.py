#!/usr/bin/env python3
"""Tests the fine-tuning of docs/weights.md: a net that has learned five classes learns five
others from a hundred images, with frozen layers and a new head, far better than from nothing.

The images show shapes that are filled with textures, on noise. The other classes pair the
shapes and textures of the first ones differently, so a hundred images suffice if one knows
the parts."""

import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]
SIDE = 28
SIZES = (7, 8, 9, 10)
SHAPES = (lambda y, x: y * y + x * x < 1,
          lambda y, x: max(abs(y), abs(x)) < 0.85,
          lambda y, x: -0.8 < y < 0.9 and abs(x) < (y + 0.8) / 1.7,
          lambda y, x: min(abs(y), abs(x)) < 0.35 and max(abs(y), abs(x)) < 1,
          lambda y, x: 0.45 < y * y + x * x < 1.1)
TEXTURES = (lambda y, x: y % 4 < 2, lambda y, x: x % 4 < 2,
            lambda y, x: (y // 2 + x // 2) % 2,
            lambda y, x: (y + x) % 5 < 2, lambda y, x: (y - x) % 5 < 2)
LIGHTS = ((40, 180), (80, 220), (180, 40), (220, 80), (60, 255), (255, 60))

NET = """[net]
name = five
[data]
source = idx
images = five-images
labels = five-labels
batch = 50
transforms = normalize(mean=128, scale=0.02)
[data.test]
source = idx
images = five-test-images
labels = five-test-labels
batch = 50
transforms = normalize(mean=128, scale=0.02)
[solver]
type = sgd
learning_rate = 0.02
momentum = 0.9
weight_decay = 0.0005
policy = poly
power = 1
[train]
epochs = 3
threads = 1
device = cpu
keep_best = no
[conv1]
type = convolution
num_output = 16
kernel_size = 5
weight_filler = msra
[pool1]
type = pooling
kernel_size = 2
stride = 2
[relu1]
type = relu
[conv2]
type = convolution
num_output = 32
kernel_size = 5
weight_filler = msra
[pool2]
type = pooling
kernel_size = 2
stride = 2
[relu2]
type = relu
[ip1]
type = inner_product
num_output = 100
weight_filler = msra
[relu3]
type = relu
[ip2]
type = inner_product
num_output = 5
weight_filler = xavier
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip2
"""


def picture(shown):
    """An image as a number, which is quickly combined with others: 255 where it is shown."""
    return int.from_bytes(bytes(255 if shown(y, x) else 0
                                for y in range(SIDE) for x in range(SIDE)), "big")


def shape_of(shape, size):
    """In the corner at the top left."""
    return picture(lambda y, x: max(y, x) < 2 * size and
                   shape((y + 0.5 - size) / size, (x + 0.5 - size) / size))


class Scenes:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.masks = [[shape_of(shape, size) for size in SIZES] for shape in SHAPES]
        self.textures = [[picture(lambda y, x, t=texture, a=a, b=b: t(y + a, x + b))
                          .to_bytes(SIDE * SIDE, "big") for a in range(3) for b in range(3)]
                         for texture in TEXTURES]
        self.lights = [bytes(low + (high - low) * value // 255 for value in range(256))
                       for low, high in LIGHTS]

    def noise(self):
        return int.from_bytes(self.random.randbytes(SIDE * SIDE), "big")

    def draw(self, shape, texture):
        choose = self.random
        size = choose.randrange(len(SIZES))
        room = SIDE - 2 * SIZES[size] + 1
        mask = self.masks[shape][size] >> 8 * (choose.randrange(room) * SIDE +
                                               choose.randrange(room))
        filled = choose.choice(self.textures[texture]).translate(choose.choice(self.lights))
        scene = int.from_bytes(filled, "big") & mask | self.noise() & ~mask
        half = int.from_bytes(b"\x7f" * (SIDE * SIDE), "big")
        return ((scene >> 1 & half) + (self.noise() >> 1 & half)).to_bytes(SIDE * SIDE, "big")

    def write(self, folder, name, count, shift):
        """Class k pairs shape k with texture k + shift."""
        labels = [self.random.randrange(5) for _ in range(count)]
        images = b"".join(self.draw(label, (label + shift) % 5) for label in labels)
        (folder / f"{name}-images").write_bytes(
            struct.pack(">4I", 0x803, count, SIDE, SIDE) + images)
        (folder / f"{name}-labels").write_bytes(
            struct.pack(">2I", 0x801, count) + bytes(labels))


class FineTuning(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        scenes = Scenes(seed=1)
        for name, count, shift in (("five", 10000, 0), ("five-test", 1000, 0),
                                   ("others", 100, 1), ("others-test", 1000, 1)):
            scenes.write(self.folder, name, count, shift)
        (self.folder / "five.ini").write_text(NET)
        (self.folder / "others.ini").write_text(NET.replace("= five", "= others"))

    def train(self, net, *options):
        done = subprocess.run(
            [BIN, "train", net, "--json", f"--run-dir={tempfile.mkdtemp(dir=self.folder)}",
             *options], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_head(self):
        five = self.train("five.ini")
        self.assertGreater(five["accuracy"], 0.8)
        tuned = self.train("others.ini", f"--weights={five['checkpoint']}",
                           "--weights-skip=ip2.*", "--set=conv1.frozen=yes",
                           "--set=conv2.frozen=yes", "--iterations=60")["accuracy"]
        from_nothing = max(
            self.train("others.ini", f"--iterations={iterations}",
                       f"--set=solver.learning_rate={rate}")["accuracy"]
            for iterations, rate in ((60, 0.02), (200, 0.02), (200, 0.005)))
        print(f"accuracy {tuned:.3f}, from nothing {from_nothing:.3f}")
        self.assertGreater(tuned, from_nothing + 0.1)


if __name__ == "__main__":
    unittest.main()
