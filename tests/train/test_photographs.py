#!/usr/bin/env python3
"""The whole way of someone with a folder of photographs: count them, look at what the net is
shown, train, fine-tune on other classes with a few of their own, test, and predict new files.
The photographs are the clothes of Fashion-MNIST, as PNG files."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from test_sources import fashion, png

BIN = os.environ["DLCORE_BIN"]
NAMES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
         "Ankle boot"]
CLOTHES = ("Bag", "Dress", "Sneaker", "Trouser")
OTHERS = ("Ankle boot", "Coat", "Sandal")
SIDE = 28
NET = """[net]
name = photos
[data]
source = images
folder = {name}/train
transforms = random_crop(28, padding=1), mirror, normalize(mean=100, std=80)
batch = 16
[data.test]
source = images
folder = {name}/test
transforms = resize(28), center_crop(28), normalize(mean=100, std=80)
batch = 25
[solver]
type = adam
learning_rate = 0.003
[train]
epochs = 3
threads = 1
device = cpu
[conv1]
type = convolution
num_output = 12
kernel_size = 5
stride = 2
weight_filler = msra
[relu1]
type = relu
[pool1]
type = pooling
kernel_size = 2
stride = 2
[head]
type = inner_product
num_output = {classes}
weight_filler = xavier
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = head
"""


def parameters(path):
    """The bytes of each parameter of a checkpoint."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
            for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"}


class Photographs(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        photographs = {name: [] for name in NAMES}
        for label, pixels in fashion(2000):
            photographs[NAMES[label]].append(png(pixels * 3, 3, SIDE))
        self.write("clothes", CLOTHES, photographs, 90)
        self.write("others", OTHERS, photographs, 8)

    def write(self, name, classes, photographs, most):
        """Writes a folder of each class: so many to train on, 25 for tests, 10 that are new."""
        for kind in classes:
            rest = iter(photographs[kind])
            for part, count in (("train", most), ("test", 25), ("new", 10)):
                folder = self.folder / name / part / kind
                folder.mkdir(parents=True)
                for i in range(count):
                    (folder / f"{i}.png").write_bytes(next(rest))
        (self.folder / f"{name}.ini").write_text(NET.format(name=name, classes=len(classes)))

    def run_it(self, *words):
        done = subprocess.run([BIN, *map(str, words)], cwd=self.folder, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def answer(self, *words):
        return json.loads(self.run_it(*words, "--json"))

    def check_answers(self, name, classes, weights, least):
        """The table of mistakes is of all samples; most of the new files are recognised."""
        tested = self.answer("test", f"{name}.ini", "--weights", weights, "--confusion")
        self.assertEqual([sum(row) for row in tested["confusion"]], [25] * len(classes))
        right = sum(tested["confusion"][i][i] for i in range(len(classes))) / 25 / len(classes)
        self.assertAlmostEqual(right, tested["accuracy"], 5)
        self.assertGreater(right, least)
        lines = self.run_it("predict", f"{name}.ini", "--weights", weights, f"{name}/new",
                            "--json").splitlines()
        found = [json.loads(line) for line in lines]
        self.assertEqual(len(found), 10 * len(classes))
        named = [one["top"][0]["name"] == pathlib.Path(one["sample"]).parent.name
                 for one in found]
        self.assertGreater(sum(named) / len(named), least)

    def test_whole_way(self):
        found = self.answer("data", "stats", "clothes.ini")
        self.assertEqual([(c["name"], c["samples"]) for c in found["classes"]],
                         [(name, 90) for name in CLOTHES])
        self.assertEqual(found["bad"], 0)
        self.run_it("data", "preview", "clothes.ini", "-o", "seen.png", "--count=9")
        seen = (self.folder / "seen.png").read_bytes()
        self.assertEqual(seen[:8] + seen[12:16], b"\x89PNG\r\n\x1a\nIHDR")
        self.assertGreater(min(struct.unpack(">2I", seen[16:24])), 3 * SIDE)

        trained = self.answer("train", "clothes.ini", "--run-dir=run")
        weights = self.folder / trained["checkpoint"]
        self.check_answers("clothes", CLOTHES, weights, 0.8)

        tuned = self.answer("train", "others.ini", "--run-dir=tuned", "--weights", weights,
                            "--weights-skip=head.*", "--set=conv1.frozen=yes",
                            "--epochs=20")
        tuned = self.folder / tuned["checkpoint"]
        before, after = parameters(weights), parameters(tuned)
        self.assertEqual(before["conv1.weight"], after["conv1.weight"])
        self.check_answers("others", OTHERS, tuned, 0.7)


if __name__ == "__main__":
    unittest.main()
