#!/usr/bin/env python3
"""The mesh: data, tensor and pipeline parallelism together give the loss of one rank, up to the
order of float32 sums; their checkpoints go on in any other layout."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import runs

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
transforms = normalize(scale=0.00390625)
[data.test]
source = synthetic
shape = 1,16,16
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

# Settings of [parallel], and more.
UNEVEN = {"pipeline": "ip1", "pipeline_ranks": "3,1"}
GROUPS = {"pipeline": "ip1", "pipeline_ranks": "4,2", "tensor": 2}
CUBE = {"data": 2, "tensor": 2, "pipeline": "ip1"}
ACCUMULATION = ["solver.accumulation_steps=2", "data.batch=24"]
MESHES = [
    ({"data": 2, "tensor": 2}, []), ({"data": 2, "tensor": 3}, []),
    ({"data": 2, "tensor": 2}, ["parallel.tensor_schedule=chunked"]),
    ({"data": 2, "tensor": 2}, ["transport.shard_optimizer=yes"]),
    ({"data": 2, "tensor": 2}, ACCUMULATION),
    ({"pipeline": 2, "tensor": 2}, []), ({"pipeline": 2, "data": 2}, []),
    ({"pipeline": "ip1", "tensor": 2}, ["parallel.micro_batches=3"]),
    # stages that begin inside the tensor-parallel part
    ({"pipeline": "ip2", "tensor": 2}, []), ({"pipeline": "relu1", "data": 2, "tensor": 2}, []),
    (CUBE, []), (CUBE, ["transport.shard_optimizer=yes"]), (CUBE, ACCUMULATION),
    (CUBE, ["parallel.micro_batches=2", "transport.shard_optimizer=no"]),
    # stages with unequal numbers of ranks, and samples that do not split evenly
    (UNEVEN, []), (UNEVEN, ["parallel.micro_batches=8", "transport.shard_optimizer=yes"]),
    ({"pipeline": "ip1", "pipeline_ranks": "1,3"}, ["parallel.micro_batches=12"]),
    ({"pipeline": "conv2,ip1", "pipeline_ranks": "2,3,1"}, ACCUMULATION),
    (GROUPS, []), (GROUPS, [*ACCUMULATION, "parallel.micro_batches=4"]),
    # layers that do not say how they are divided, and a schedule that is measured
    ({"data": 2, "tensor": 2}, ["ip1.parallel=data", "ip2.parallel=data"]),
    ({"tensor": 2, "pipeline": 2}, ["ip1.parallel=data", "ip2.parallel=data"]),
]
LAYOUTS = [{}, CUBE, GROUPS, {"data": 2, "tensor": 2}, UNEVEN]
REFUSED = [(4, {"tensor": 3}, "tensor groups of 3"),
           (6, {"pipeline": 2, "tensor": 2}, "tensor groups of 2"),
           (3, {"pipeline": 2}, "3 ranks cannot be split among 2 stages"),
           (4, {"data": 3, "tensor": 1}, "their product"),
           (5, UNEVEN, "names 4 ranks, but there are 5"),
           (4, {"pipeline": 3, "pipeline_ranks": "3,1"}, "2 numbers for 3 stages"),
           (4, {"pipeline_ranks": "3,x"}, "'x' is not a number"),
           (4, {"data": "some"}, "'some' is not a number"),
           (4, {"tensor": "2,2"}, "one number or auto"),
           (4, {**UNEVEN, "micro_batches": 24}, "for each of the 3 ranks of a stage")]


class Mesh(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.net = self.folder / "small.ini"
        self.net.write_text(NET)

    def command(self, mesh, *more):
        """Without --ranks: the mesh says how many there are."""
        return [BIN, "train", self.net, "--json",
                f"--run-dir={tempfile.mkdtemp(dir=self.folder)}/run",
                *(f"--set=parallel.{key}={value}" for key, value in mesh.items()), *more]

    def train(self, mesh, *more):
        done = subprocess.run(self.command(mesh, *more), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def check_losses(self, report, whole, what):
        for key in ("training_loss", "test_loss"):
            self.assertLess(abs(report[key] - whole[key]), CLOSE * whole[key], what)

    def test_every_mesh_has_the_loss_of_one_rank(self):
        whole = {}
        for mesh, more in MESHES:
            with self.subTest(mesh=mesh, more=more):
                sets = [f"--set={each}" for each in more]
                steps = str("solver" in str(more))
                if steps not in whole:
                    whole[steps] = self.train({}, *(each for each in sets if steps == "True"
                                                    and "parallel" not in each))[0]
                report, said = self.train(mesh, *sets)
                self.check_losses(report, whole[steps], said)
                self.assertEqual(report["effective_batch"], 48)
                ranks = [int(each) for each in str(mesh.get("pipeline_ranks", "")).split(",")
                         if each]
                self.assertEqual(report["ranks"], sum(report["mesh"]["pipeline_ranks"]))
                self.assertEqual(report["mesh"]["tensor"], mesh.get("tensor", 1))
                if ranks:
                    self.assertEqual(report["mesh"]["pipeline_ranks"], ranks)

    def test_the_log_says_who_is_where(self):
        said = self.train(CUBE, "--iterations=2")[1]
        self.assertIn("mesh: pipeline 2 x data 2 x tensor 2\n"
                      "    stage 1: ranks (0 1) (2 3)\n"
                      "    stage 2: ranks (4 5) (6 7)\n", said)
        self.assertIn("(bubble)", said)
        self.assertRegex(said, r"predicted .* to reduce ([\d.]+) MB(?s:.*)\n    measured .* to reduce \1 MB, ")
        # Where the net is cut by the links' speed, what a rank reduces is not known before.
        said = self.train({"ranks": 4, "pipeline": 2}, "--iterations=2")[1]
        self.assertIn("to reduce 64 MB; ", said)
        self.assertNotIn("    measured ", said)
        said = self.train(UNEVEN, "--iterations=2")[1]
        self.assertIn("stage 1: ranks 0 1 2\n    stage 2: ranks 3\n", said)

    def test_checkpoints_go_on_in_every_layout(self):
        last = "--set=train.checkpoint_last=true"
        whole = self.train({})[0]
        for first in LAYOUTS:
            half = self.train(first, "--iterations=15", last)[0]
            for second in LAYOUTS:
                with self.subTest(first=first, second=second):
                    report, said = self.train(second, f"--resume={half['checkpoint']}")
                    self.assertEqual(report["iterations"], 30)
                    self.check_losses(report, whole, said)

    def launched(self, ranks, mesh, *more):
        """What each of the ranks that another launcher starts returns, and rank 0 prints."""
        port = runs.free_port()
        command = self.command(mesh, *more)
        jobs = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env=dict(
                                     os.environ, RANK=str(rank), WORLD_SIZE=str(ranks),
                                     MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))
                for rank in range(ranks)]
        said = [job.communicate(timeout=120) for job in jobs]
        return [job.returncode for job in jobs], *said[0]

    def test_another_launcher_says_how_many_ranks_there_are(self):
        """An axis that is not given gets the ranks that the others leave."""
        whole = self.train({})[0]
        for mesh, sizes in (({"tensor": 2}, [2, 2, 1]), ({"pipeline": "ip1"}, [2, 1, 2])):
            with self.subTest(mesh=mesh):
                plain = [] if "tensor" in mesh else ["--set=ip1.parallel=data",
                                                     "--set=ip2.parallel=data"]
                codes, out, said = self.launched(4, mesh, *plain)
                self.assertEqual(codes, [0] * 4, said)
                report = json.loads(out)
                self.assertEqual([report["mesh"][axis] for axis in ("data", "tensor", "pipeline")],
                                 sizes)
                self.check_losses(report, whole, said)
        codes, _, said = self.launched(3, {"tensor": 2})
        self.assertEqual(codes, [2] * 3, said)
        self.assertIn("the 3 ranks of a stage cannot be split", said)

    def test_what_cannot_be_divided_is_refused(self):
        for ranks, mesh, reason in REFUSED:
            with self.subTest(ranks=ranks, mesh=mesh):
                done = subprocess.run(self.command(mesh, f"--ranks={ranks}"),
                                      stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=120)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
