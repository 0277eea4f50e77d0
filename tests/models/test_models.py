#!/usr/bin/env python3
"""Tests that the nets of models/ are the published ones: parameters and multiply-adds
agree with a count from the architecture and with the published numbers."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]
# One grey pixel.
GREY_PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b"
                         "550000000a49444154789c636800000082008177cd72b60000000049454e44ae"
                         "426082")
MODELS = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "models"


def dlcore(*arguments, folder=None):
    return subprocess.run([BIN, *map(str, arguments)], cwd=folder, timeout=300,
                          capture_output=True, text=True)


class Count:
    """Follows one sample through a net: its shape, and the totals so far."""

    def __init__(self, channels, side):
        self.channels, self.side = channels, side
        self.parameters = self.multiply_adds = 0

    def conv(self, width, kernel, stride=1, pad=0, group=1, bias=True, norm=False):
        self.side = (self.side + 2 * pad - kernel) // stride + 1
        weights = width * self.channels // group * kernel * kernel
        self.parameters += weights + (width if bias and not norm else 0)
        self.parameters += 2 * width if norm else 0  # scale and shift
        self.multiply_adds += weights * self.side**2
        self.channels = width

    def pool(self, kernel, stride, pad=0, ceil=True):
        self.side = (self.side + 2 * pad - kernel + (stride - 1) * ceil) // stride + 1

    def dense(self, width):
        inputs = self.channels * self.side**2
        self.parameters += inputs * width + width
        self.multiply_adds += inputs * width
        self.channels, self.side = width, 1

    def side_path(self):
        """Another branch from here, which adds to the same totals."""
        path = Count(self.channels, self.side)
        path.into = self
        return path

    def join(self):
        self.into.parameters += self.parameters
        self.into.multiply_adds += self.multiply_adds


def alexnet(net):
    net.conv(96, 11, stride=4)
    net.pool(3, 2)
    net.conv(256, 5, pad=2, group=2)
    net.pool(3, 2)
    net.conv(384, 3, pad=1)
    net.conv(384, 3, pad=1, group=2)
    net.conv(256, 3, pad=1, group=2)
    net.pool(3, 2)
    for width in (4096, 4096, 1000):
        net.dense(width)


def vgg16(net):
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            net.conv(width, 3, pad=1)
        net.pool(2, 2)
    for width in (4096, 4096, 1000):
        net.dense(width)


def inception(net, width1, reduce3, width3, reduce5, width5, pool):
    for steps in (((width1, 1),), ((reduce3, 1), (width3, 3)),
                  ((reduce5, 1), (width5, 5)), ((pool, 1),)):
        path = net.side_path()
        for width, kernel in steps:
            path.conv(width, kernel, pad=kernel // 2)
        path.join()
    net.channels = width1 + width3 + width5 + pool


def side_loss(net):
    path = net.side_path()
    path.pool(5, 3)
    path.conv(128, 1)
    path.dense(1024)
    path.dense(1000)
    path.join()


def googlenet(net, side_losses=True):
    net.conv(64, 7, stride=2, pad=3)
    net.pool(3, 2)
    net.conv(64, 1)
    net.conv(192, 3, pad=1)
    net.pool(3, 2)
    inception(net, 64, 96, 128, 16, 32, 32)
    inception(net, 128, 128, 192, 32, 96, 64)
    net.pool(3, 2)
    inception(net, 192, 96, 208, 16, 48, 64)
    if side_losses:
        side_loss(net)
    inception(net, 160, 112, 224, 24, 64, 64)
    inception(net, 128, 128, 256, 24, 64, 64)
    inception(net, 112, 144, 288, 32, 64, 64)
    if side_losses:
        side_loss(net)
    inception(net, 256, 160, 320, 32, 128, 128)
    net.pool(3, 2)
    inception(net, 256, 160, 320, 32, 128, 128)
    inception(net, 384, 192, 384, 48, 128, 128)
    net.pool(7, 1)
    net.dense(1000)


def residual(net, steps, stride):
    """`steps`: width and kernel of the convolutions; the stride is that of the first 3 x 3."""
    width = steps[-1][0]
    if stride != 1 or net.channels != width:
        path = net.side_path()
        path.conv(width, 1, stride=stride, norm=True)
        path.join()
    for out, kernel in steps:
        net.conv(out, kernel, stride=stride if kernel == 3 else 1, pad=kernel // 2,
                 norm=True)
        stride = 1 if kernel == 3 else stride


def resnet(net, depths, bottleneck):
    net.conv(64, 7, stride=2, pad=3, norm=True)
    net.pool(3, 2, pad=1, ceil=False)
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        steps = ([(width, 1), (width, 3), (4 * width, 1)] if bottleneck
                 else [(width, 3), (width, 3)])
        for i in range(depth):
            residual(net, steps, 2 if stage and not i else 1)
    net.pool(7, 1)
    net.dense(1000)


def mobilenet_v2(net):
    net.conv(32, 3, stride=2, pad=1, norm=True)
    for factor, width, depth, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2),
                                         (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                         (6, 320, 1, 1)):
        for i in range(depth):
            wide = factor * net.channels
            if factor > 1:
                net.conv(wide, 1, norm=True)
            net.conv(wide, 3, stride=1 if i else stride, pad=1, group=wide, norm=True)
            net.conv(width, 1, norm=True)
    net.conv(1280, 1, norm=True)
    net.pool(7, 1)
    net.dense(1000)


# Side of the image, the architecture, parameters, 10^9 multiply-adds as published
# (rounded there), and where.
#
# torchvision: num_params and _ops in torchvision/models/*.py, the table "Params, GFLOPS"
#     of https://pytorch.org/vision/stable/models.html
# Sze: Sze, Chen, Yang, Emer, "Efficient Processing of Deep Neural Networks", Proceedings
#     of the IEEE 105 (12), 2017, table II: AlexNet has 61 million weights and 724 million
#     multiply-adds.
# Szegedy: "Going Deeper with Convolutions", 2014, section 1: "a computational budget of
#     1.5 billion multiply-adds at inference time". Parameters: bvlc_googlenet.caffemodel,
#     see below.
PUBLISHED = {
    "alexnet": (227, alexnet, 60965224, 0.724, "Sze"),
    "caffenet": (227, alexnet, 60965224, 0.724, "Sze: as AlexNet"),
    "vgg16": (224, vgg16, 138357544, 15.47, "torchvision vgg16"),
    "googlenet": (224, googlenet, 13378280, 1.591, "counted here; Szegedy without sides"),
    "resnet18": (224, lambda net: resnet(net, (2, 2, 2, 2), False), 11689512, 1.814,
                 "torchvision resnet18"),
    "resnet50": (224, lambda net: resnet(net, (3, 4, 6, 3), True), 25557032, 4.089,
                 "torchvision resnet50"),
    "mobilenet-v2": (224, mobilenet_v2, 3504872, 0.301, "torchvision mobilenet_v2"),
}


class Models(unittest.TestCase):
    def test_counts(self):
        for name, (side, walk, parameters, billions, source) in PUBLISHED.items():
            with self.subTest(net=name, source=source):
                done = dlcore("check", "--json", MODELS / f"{name}.ini")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stderr, "")
                found = json.loads(done.stdout)
                counted = Count(3, side)
                walk(counted)
                self.assertEqual(counted.parameters, parameters)
                self.assertEqual(found["parameters"], parameters)
                self.assertEqual(found["multiply_adds"], counted.multiply_adds)
                digits = len(f"{billions}".split(".")[1])
                self.assertEqual(round(counted.multiply_adds / 1e9, digits), billions)
                self.assertEqual(found["net"], name)
                losses = [layer for layer in found["layers"]
                          if layer["type"] == "softmax_loss"]
                self.assertEqual(len(losses), 3 if name == "googlenet" else 1)

    def test_googlenet_without_auxiliary_losses(self):
        """The part that a test runs, which Caffe's file of weights holds, too (4 bytes per
        parameter, and a little for the descriptions of layers)."""
        alone, whole = Count(3, 224), Count(3, 224)
        googlenet(alone, side_losses=False)
        googlenet(whole)
        self.assertEqual(alone.parameters, 6998552)
        self.assertAlmostEqual(alone.multiply_adds / 1e9, 1.5, delta=0.1)
        described = 53533754 - 4 * whole.parameters
        self.assertTrue(0 < described < 65536, described)

    def test_all_are_listed(self):
        """Every net of models/ is valid; missing data does not count as a mistake."""
        for path in sorted(MODELS.glob("*.ini")):
            with self.subTest(net=path.name):
                done = dlcore("check", path)
                if done.returncode != 4:
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_imagenet(self):
        """The net for photographs has the layers of resnet50.ini, and needs two paths."""
        def layers(name):
            text = (MODELS / f"{name}.ini").read_text()
            return text[text.index("[block conv_bn]"):]

        self.assertEqual(layers("imagenet-resnet50"), layers("resnet50"))
        with tempfile.TemporaryDirectory() as folder:
            for i in range(1000):
                (pathlib.Path(folder) / f"n{i:04}").mkdir()
            for name in ("n0000", "n0999"):
                (pathlib.Path(folder) / name / "a.png").write_bytes(GREY_PNG)
            done = dlcore("check", "--json", MODELS / "imagenet-resnet50.ini", "--set", f"data.folder={folder}",
                          "--set", f"data.test.folder={folder}", "--set", "data.batch=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["parameters"], 25557032)

    def test_they_train(self):
        """One iteration and one test on as few samples as possible; of nets with the same
        layers only the smallest."""
        small = [f"--set={setting}" for setting in
                 ("data.batch=2", "data.test.source=synthetic",
                  "data.test.shape=3,224,224", "data.test.classes=1000",
                  "data.test.batch=2", "data.test.samples=2",
                  "train.display=1", "train.checkpoint_last=no", "train.checkpoint_minutes=0")]
        for name in ("googlenet", "resnet18", "mobilenet-v2"):
            with self.subTest(net=name), tempfile.TemporaryDirectory() as folder:
                done = dlcore("train", MODELS / f"{name}.ini", "--json",
                              "--iterations=1", *small, folder=folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(done.stdout)["iterations"], 1)
                # A thousand random classes: each loss is log(1000) = 6.9.
                loss = re.search(r"^iteration 1,.*: loss ([0-9.]+)", done.stderr, re.M)
                self.assertTrue(5 < float(loss[1]) < 50, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
