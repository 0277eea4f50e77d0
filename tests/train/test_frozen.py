#!/usr/bin/env python3
"""Tests frozen layers: they keep every bit of what they were loaded with, the other layers
are trained as if the frozen ones had a learning rate of 0, and memory is saved."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from test_combinations import read_tensors

BIN = os.environ["DLCORE_BIN"]
ASYNC_PLUGINS = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"
ENVIRONMENT = {**os.environ, "DLCORE_PLUGIN_PATH":
               f"{os.environ['DLCORE_PLUGIN_PATH']}:{ASYNC_PLUGINS}"}

NET = """[net]
name = tiny
[data]
source = synthetic
shape = 3,16,16
classes = 4
samples = 240
batch = 12
transforms = normalize(scale=0.00390625)
[data.test]
source = synthetic
shape = 3,16,16
classes = 4
samples = 24
first = 1000
batch = 12
transforms = normalize(scale=0.00390625)
[solver]
type = adam
learning_rate = 0.01
weight_decay = 0.01
[train]
threads = 1
checkpoint_minutes = 0
test_interval = 2
[conv1]
type = convolution
num_output = 6
kernel_size = 3
[bn1]
type = batch_norm
[relu1]
type = relu
[conv2]
type = convolution
num_output = 8
kernel_size = 3
[relu2]
type = relu
[bn2]
type = batch_norm
[scale]
type = scale
[ip1]
type = inner_product
num_output = 16
[relu3]
type = relu
[ip2]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
[accuracy]
type = accuracy
"""

# Each layer's keys that come to the same, but for the memory and the time.
STILL = {
    "conv1": ("weight_lr_mult=0", "bias_lr_mult=0"),
    "bn1": ("scale_lr_mult=0", "bias_lr_mult=0", "use_global_stats=yes"),
    "conv2": ("weight_lr_mult=0", "bias_lr_mult=0"),
    "bn2": ("scale_lr_mult=0", "bias_lr_mult=0", "use_global_stats=yes"),
    "scale": ("scale_lr_mult=0", "bias_lr_mult=0"),
    "ip1": ("weight_lr_mult=0", "bias_lr_mult=0"),
    "ip2": ("weight_lr_mult=0", "bias_lr_mult=0"),
}
BELOW = ("conv1", "bn1", "conv2")          # nothing below them is trained
BETWEEN = ("conv2", "bn2", "scale", "ip1") # conv1 is trained through them


def frozen(layers):
    return [f"--set={layer}.frozen=yes" for layer in layers]


def still(layers):
    return [f"--set={layer}.{key}" for layer in layers for key in STILL[layer]]


class Frozen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.net = cls.folder / "tiny.ini"
        cls.net.write_text(NET)
        cls.weights = cls.train_it("--iterations=3")
        cls.loaded = read_tensors(cls.weights)

    @classmethod
    def run_it(cls, command, *options):
        if not any(option.startswith("--device") for option in options):
            options = ["--device=cpu", *options]
        return subprocess.run([BIN, command, str(cls.net), "--json", *options],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False, env=ENVIRONMENT)

    @classmethod
    def train_it(cls, *options):
        done = cls.run_it("train", f"--run-dir={tempfile.mkdtemp(dir=cls.folder)}", *options)
        if done.returncode:
            raise AssertionError(f"{options}: {done.stderr}")
        return pathlib.Path(json.loads(done.stdout)["checkpoint"])

    def tune(self, *options, iterations=4):
        return read_tensors(self.train_it(f"--weights={self.weights}", "--scaling=strong",
                                          f"--iterations={iterations}", *options))

    def check_kept(self, layers, tensors):
        """The frozen layers are as loaded, and have no slots; the others have changed."""
        for name, values in tensors.items():
            slot, _, param = name.rpartition("/")
            layer = param.split(".")[0]
            if slot:
                self.assertNotIn(layer, layers, name)
            elif layer in layers:
                self.assertEqual(values.tobytes(), self.loaded[name].tobytes(), name)
            elif layer in STILL:
                self.assertNotEqual(values.tobytes(), self.loaded[name].tobytes(), name)
        for layer in layers:
            self.assertTrue(any(name.startswith(layer + ".") for name in tensors), layer)

    def check_same(self, some, others, but=()):
        """Bitwise, but for layers `but`: what is in `some` is in `others`, which may have
        more slots, and more running averages of each rank."""
        for name, values in some.items():
            if name.split("/")[-1].split(".")[0] not in (*but, "dlcore"):
                self.assertEqual(values.tobytes(), others[name].tobytes(), name)

    def check_frozen(self, layers, *options):
        """Returns the tensors of a run with frozen layers."""
        tensors = self.tune(*frozen(layers), *options)
        self.check_kept(layers, tensors)
        self.check_same(tensors, self.tune(*still(layers), *options), layers)
        return tensors

    def test_bitwise(self):
        for layers in (BELOW, BETWEEN, ("ip2",), ("bn1",), ("scale",),
                       tuple(STILL)[:-1]):
            with self.subTest(layers=layers):
                self.check_frozen(layers)

    def test_options(self):
        for options in (["--set=solver.accumulation_steps=2"], ["--solver=sgd"],
                        ["--set=conv1.layout=batch_blocked", "--set=data.batch=16",
                         "--set=conv2.layout=batch_blocked"],
                        ["--set=conv2.layout=library"], ["--device=async"]):
            with self.subTest(options=options):
                self.check_frozen(BETWEEN, *options)

    def test_recomputed(self):
        tensors = self.tune(*frozen(BETWEEN))
        again = self.tune(*frozen(BETWEEN), "--set=train.recompute=yes")
        self.assertEqual(tensors, again)

    def test_ranks(self):
        """On three ranks, the mean of three equal numbers might not be that number."""
        for options in (["--ranks=2"], ["--ranks=3"],
                        ["--ranks=2", "--set=parallel.batch_split=7,5"],
                        ["--ranks=2", "--set=transport.overlap_forward=yes"],
                        ["--ranks=2", "--set=transport.shard_optimizer=yes"]):
            for layers in BELOW, BETWEEN:
                with self.subTest(options=options, layers=layers):
                    self.check_frozen(layers, *options)

    def test_tensor_parallel(self):
        for schedule in "whole_batch", "by_rank", "chunked":
            for layers in BELOW, BETWEEN, ("ip1",):
                with self.subTest(schedule=schedule, layers=layers):
                    self.check_frozen(layers, "--ranks=2", "--set=ip1.parallel=tensor",
                                      "--set=ip2.parallel=tensor",
                                      f"--set=parallel.tensor_schedule={schedule}")

    def test_stale(self):
        tensors = self.tune(*frozen(BETWEEN), "--ranks=2", "--consistency=ssp",
                            "--set=consistency.staleness=1")
        self.check_kept(BETWEEN, tensors)

    def test_stages(self):
        """A stage that holds frozen layers, too; and one that holds nothing else."""
        for layers, first, ranks in ((BELOW, "ip2", 2), (("conv2", "ip1"), "ip1", 2),
                                     (BELOW, "bn2", 2), (BETWEEN[:3], "conv2,ip1", 3),
                                     (("ip2",), "ip2", 2), (BELOW, "bn2", 4)):
            with self.subTest(layers=layers, first=first, ranks=ranks):
                self.check_frozen(layers, f"--ranks={ranks}",
                                  f"--set=parallel.pipeline={first}")

    def test_resumed(self):
        for layers in BELOW, BETWEEN:
            with self.subTest(layers=layers):
                half = self.train_it(f"--weights={self.weights}", "--iterations=2",
                                     *frozen(layers))
                for ranks in "--ranks=1", "--ranks=2":
                    rest = read_tensors(self.train_it(
                        f"--resume={half}", "--iterations=4", "--scaling=strong", ranks,
                        *frozen(layers)))
                    self.check_kept(layers, rest)
                    if ranks == "--ranks=1":
                        self.check_same(rest, self.tune(*frozen(layers)))
        done = self.run_it("train", f"--resume={half}", "--iterations=4")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("frozen", done.stderr)

    def report(self, *options):
        done = self.run_it("check", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_memory(self):
        whole, below, between, rate = (
            self.report(), self.report(*frozen(BELOW)), self.report(*frozen(BETWEEN)),
            self.report(*still(BELOW)))
        for key in "gradients", "solver", "activations":
            self.assertLess(below["memory"][key], rate["memory"][key], key)
        for key in "gradients", "solver":
            self.assertLess(between["memory"][key], whole["memory"][key], key)
        self.assertLess(below["peak_bytes"], rate["peak_bytes"])
        self.assertLess(between["peak_bytes"], whole["peak_bytes"])
        for layers in BETWEEN, ("conv2",), ("bn1",), ("scale",), ("ip1",):
            with self.subTest(layers=layers): # their inputs are not kept
                self.assertLess(self.report(*frozen(layers))["memory"]["activations"],
                                self.report(*still(layers))["memory"]["activations"])
        self.assertEqual(below["parameters"], whole["parameters"])

    def test_reported(self):
        layers = {layer["name"]: layer["frozen"]
                  for layer in self.report(*frozen(BETWEEN))["layers"]}
        self.assertEqual({name for name, is_frozen in layers.items() if is_frozen},
                         set(BETWEEN))
        done = subprocess.run([BIN, "check", str(self.net), "--device=cpu", *frozen(("conv2",))],
                              capture_output=True, text=True, timeout=60, check=True)
        marked = [line.split()[0] for line in done.stdout.splitlines()
                  if line.endswith("(frozen)")]
        self.assertEqual(marked, ["conv2"])

    def test_nothing_to_train(self):
        done = self.run_it("check", *frozen(STILL))
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing to train", done.stderr)
        tested = self.run_it("test", f"--weights={self.weights}", *frozen(STILL))
        self.assertEqual(tested.returncode, 0, tested.stderr)


if __name__ == "__main__":
    unittest.main()
