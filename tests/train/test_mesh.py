#!/usr/bin/env python3
"""The mesh: tensor groups, data parallelism and pipeline stages together give the loss of
one rank, up to the order of float32 sums; what the ranks cannot be divided into is refused."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]
CLOSE = 1e-4  # relative

NET = """
[net]
name = small
[data]
source = synthetic
shape = 1,16,16
classes = 6
samples = 960
batch = 48
scale = 0.00390625
[data.test]
source = synthetic
shape = 1,16,16
classes = 6
samples = 130
first = 2000
batch = 32
scale = 0.00390625
[solver]
type = sgd
learning_rate = 0.03
momentum = 0.9
weight_decay = 0.0005
[parallel]
scaling = strong
[train]
threads = 1
iterations = 30
checkpoint_last = false
keep_best = false
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
parallel = tensor
[relu1]
type = relu
[drop1]
type = dropout
ratio = 0.25
[ip2]
type = inner_product
num_output = 6
weight_filler = xavier
parallel = tensor
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip2
"""

# Ranks, stages, ranks of a tensor group (0: all of the stage), more settings.
MESHES = [(4, "1", 2, []), (6, "1", 3, []), (4, "1", 2, ["parallel.tensor_schedule=chunked"]),
          (4, "2", 2, []), (4, "2", 1, []), (4, "ip1", 0, ["parallel.micro_batches=3"]),
          (8, "2", 2, []),
          # stages that begin inside the tensor-parallel part
          (8, "relu1", 2, []), (4, "ip2", 0, []), (8, "ip2", 2, ["parallel.micro_batches=2"]),
          (4, "1", 2, ["solver.accumulation_steps=2", "data.batch=24"]),
          (4, "2", 2, ["solver.accumulation_steps=2", "data.batch=24"])]
REFUSED = [(4, "1", 3, "tensor groups"), (6, "2", 2, "tensor groups")]


class Mesh(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.net = pathlib.Path(scratch.name) / "small.ini"
        self.net.write_text(NET)

    def train(self, ranks, stages, tensor, more):
        sets = [f"parallel.stages={stages}", f"parallel.tensor={tensor}", *more]
        return subprocess.run(
            [BIN, "train", self.net, "--json", f"--ranks={ranks}",
             f"--run-dir={self.net.parent}/{ranks}-{stages}-{tensor}-{len(more)}",
             *(f"--set={each}" for each in sets)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def losses(self, *job):
        done = self.train(*job)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        return report["training_loss"], report["test_loss"]

    def test_every_mesh_has_the_loss_of_one_rank(self):
        one = {}
        for ranks, stages, tensor, more in MESHES:
            with self.subTest(ranks=ranks, stages=stages, tensor=tensor, more=more):
                solver = [each for each in more if "parallel" not in each]
                if str(solver) not in one:
                    one[str(solver)] = self.losses(1, "1", 0, solver)
                for got, want in zip(self.losses(ranks, stages, tensor, more),
                                     one[str(solver)]):
                    self.assertLess(abs(got - want), CLOSE * want)

    def test_what_cannot_be_divided_is_refused(self):
        for ranks, stages, tensor, reason in REFUSED:
            with self.subTest(ranks=ranks, stages=stages, tensor=tensor):
                done = self.train(ranks, stages, tensor, [])
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
