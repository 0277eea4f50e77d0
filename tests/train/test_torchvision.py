#!/usr/bin/env python3
"""Tests that torchvision's state dicts load into the nets of models/ by the rules beside them:
every tensor once, and where the net has it."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from test_combinations import read_tensors

BIN = os.environ["DLCORE_BIN"]
MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
NAMES = {"scale": "weight", "mean": "running_mean", "variance": "running_var"}


class StateDict(dict):
    """Names and shapes in torchvision's order, which is that of forward."""

    def conv(self, name, out, inputs, kernel, bias=False):
        self[f"{name}.weight"] = [out, inputs, kernel, kernel]
        if bias:
            self[f"{name}.bias"] = [out]

    def linear(self, name, out, inputs):
        self[f"{name}.weight"], self[f"{name}.bias"] = [out, inputs], [out]

    def norm(self, name, channels):
        for part in ("weight", "bias", "running_mean", "running_var"):
            self[f"{name}.{part}"] = [channels]
        self[f"{name}.num_batches_tracked"] = []

    def conv_norm(self, conv, norm, out, inputs, kernel):
        self.conv(conv, out, inputs, kernel)
        self.norm(norm, out)


def resnet(blocks, expansion):
    made, inputs = StateDict(), 64
    made.conv_norm("conv1", "bn1", 64, 3, 7)
    for layer, count in enumerate(blocks, 1):
        width = 32 << layer
        for block in range(count):
            name = f"layer{layer}.{block}"
            shapes = ([(width, inputs, 3), (width, width, 3)] if expansion == 1 else
                      [(width, inputs, 1), (width, width, 3), (4 * width, width, 1)])
            for i, shape in enumerate(shapes, 1):
                made.conv_norm(f"{name}.conv{i}", f"{name}.bn{i}", *shape)
            if block == 0 and inputs != width * expansion:
                made.conv_norm(f"{name}.downsample.0", f"{name}.downsample.1",
                               width * expansion, inputs, 1)
            inputs = width * expansion
    made.linear("fc", 1000, inputs)
    return made


def vgg16():
    """Of images of 32 x 32, whose last feature map is 1 x 1."""
    made, inputs, at = StateDict(), 3, 0
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            made.conv(f"features.{at}", width, inputs, 3, bias=True)
            inputs, at = width, at + 2
        at += 1
    for name, out, inputs in (("0", 4096, 512), ("3", 4096, 4096), ("6", 1000, 4096)):
        made.linear(f"classifier.{name}", out, inputs)
    return made


def mobilenet_v2():
    made, inputs, feature = StateDict(), 32, 1
    made.conv_norm("features.0.0", "features.0.1", 32, 3, 3)
    for expand, out, count in ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3),
                               (6, 160, 3), (6, 320, 1)):
        for _ in range(count):
            name, wide, at = f"features.{feature}.conv", expand * inputs, 0
            if expand > 1:
                made.conv_norm(f"{name}.0.0", f"{name}.0.1", wide, inputs, 1)
                at = 1
            made.conv_norm(f"{name}.{at}.0", f"{name}.{at}.1", wide, 1, 3)
            made.conv_norm(f"{name}.{at + 1}", f"{name}.{at + 2}", out, wide, 1)
            inputs, feature = out, feature + 1
    made.conv_norm("features.18.0", "features.18.1", 1280, 320, 1)
    made.linear("classifier.1", 1000, 1280)
    return made


def write(path, tensors):
    """Each tensor has a value of its own. Returns the values and sizes of those that are
    parameters, layer by layer."""
    header, values, at = {}, {}, 0
    for name, shape in tensors.items():
        count = 1
        for size in shape:
            count *= size
        is_counter = name.endswith("num_batches_tracked")
        size = 8 if is_counter else 4 * count
        header[name] = {"dtype": "I64" if is_counter else "F32", "shape": shape,
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for number, (name, entry) in enumerate(header.items(), 1):
            begin, end = entry["data_offsets"]
            if entry["dtype"] == "I64":
                file.write(bytes(8))
                continue
            layer, _, param = name.rpartition(".")
            values.setdefault(layer, {})[param] = (float(number), (end - begin) // 4)
            file.write(struct.pack("<f", number) * ((end - begin) // 4))
    return list(values.values())


class Torchvision(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_it(self, *words):
        return subprocess.run([BIN, *words], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300, check=False, cwd=self.folder)

    def loads(self, net, tensors, rules):
        values = write(self.folder / "other.safetensors", tensors)
        done = self.run_it("train", str(MODELS / f"{net}.ini"), "--json", "--iterations=0",
                           "--device=cpu", "--batch=2", "--set=data.shape=3,32,32",
                           "--set=solver.momentum=0", "--run-dir=run",
                           "--weights=other.safetensors", f"--weights-map=@{MODELS / rules}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("warning", done.stderr)
        got = read_tensors(pathlib.Path(self.folder, json.loads(done.stdout)["checkpoint"]))
        layers = {}
        for name, found in got.items():
            if "/" in name:  # a slot of the solver
                continue
            layer, _, param = name.rpartition(".")
            self.assertEqual((min(found), max(found)), (found[0], found[0]), name)
            layers.setdefault(layer, {})[NAMES.get(param, param)] = (found[0], len(found))
        self.assertEqual(list(layers.values()), values)

    def test_resnet18(self):
        self.loads("resnet18", resnet((2, 2, 2, 2), 1), "torchvision-resnet18.map")

    def test_resnet50(self):
        self.loads("resnet50", resnet((3, 4, 6, 3), 4), "torchvision-resnet50.map")

    def test_mobilenet_v2(self):
        self.loads("mobilenet-v2", mobilenet_v2(), "torchvision-mobilenet-v2.map")

    def test_vgg16(self):
        self.loads("vgg16", vgg16(), "torchvision-vgg16.map")


if __name__ == "__main__":
    unittest.main()
