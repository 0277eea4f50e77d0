#!/usr/bin/env python3
"""Tests combinations of features: gradient accumulation, uneven ranks, running averages,
clipping, loss scales, models divided over the ranks, each with checkpoints. Most results are compared with those
of another run that must give bitwise identical, or equal, numbers."""

import array
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from test_transports import tensors_digest

BIN = os.environ["DLCORE_BIN"]
ASYNC_PLUGINS = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"

NET = """[net]
name = small
[data]
source = synthetic
shape = 1,12,12
classes = 4
samples = 600
batch = 24
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.05
momentum = 0.9
weight_decay = 0.0005
[train]
threads = 1
checkpoint_minutes = 0
[conv1]
type = convolution
num_output = 6
kernel_size = 3
stride = 2
[norm1]
type = batch_norm
momentum = 0.75
[relu1]
type = relu
[ip1]
type = inner_product
num_output = 16
[drop1]
type = dropout
ratio = 0.25
[ip2]
type = inner_product
num_output = 4
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip2
"""

TEST_DATA = """[data.test]
source = synthetic
shape = 1,12,12
classes = 4
samples = 130
first = 1000
batch = 32
transforms = normalize(scale=0.00390625)
"""

SHARDED = "--set=transport.shard_optimizer=yes"
STAGES = ["--ranks=2", "--set=parallel.pipeline=ip1"]
TENSOR = ["--scaling=strong", "--set=ip1.parallel=tensor",
          "--set=parallel.tensor_schedule=whole_batch"]
# Models that no rank has all of. A batch is that of one rank, and nothing is decided by
# measurements.
DIVIDED = [STAGES, ["--ranks=2", *TENSOR],
           ["--ranks=4", "--scaling=strong", "--set=parallel.pipeline=ip1", SHARDED],
           ["--ranks=4", *TENSOR, "--set=parallel.tensor=2"],
           ["--ranks=4", *TENSOR, "--set=parallel.pipeline=ip1", "--set=ip2.parallel=tensor"]]

# Updates that need norms: of the model's gradient, of each tensor, of both.
NORMS = [["--set=solver.clip_gradients=0.05"],
         ["--solver=lars", "--set=solver.trust_coefficient=0.1"],
         ["--solver=lamb", "--set=solver.learning_rate=0.01",
          "--set=solver.clip_gradients=0.05"]]

# Tolerance for another order of sums, relative to the largest number.
ROUNDING = 1e-5


def read_tensors(path):
    """The float32 tensors of a checkpoint, by name."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            tensors[name] = array.array("f", data[begin + first:begin + last])
    return tensors


def read_metadata(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]


class Combinations(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, text):
        path = self.folder / "small.ini"
        path.write_text(text)
        return path

    def dlcore(self, command, net, *more, **variables):
        done = subprocess.run([BIN, command, str(net), "--json", *more],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, env={**os.environ, **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def train(self, net, iterations, *more, **variables):
        """The report and the checkpoint."""
        report = self.dlcore("train", net, f"--iterations={iterations}",
                             f"--run-dir={tempfile.mkdtemp(dir=self.folder)}", *more,
                             **variables)
        return report, pathlib.Path(report["checkpoint"])

    def at(self, path, iteration):
        """The checkpoint of another iteration of that run."""
        return path.with_name(f"small-{iteration:08}.safetensors")

    def check_near(self, expected, found, within=ROUNDING):
        self.assertEqual(list(expected), list(found))
        for name, a in expected.items():
            self.assertEqual(len(a), len(found[name]), name)
            most = max(abs(x) for x in a)
            off = max(abs(x - y) for x, y in zip(a, found[name]))
            self.assertLessEqual(off, within * most, name)

    def check_saving(self, net, *more, **variables):
        """A run that saves often, one that resumes from its third iteration, and one
        that saves only at the end are bitwise identical."""
        rare = self.train(net, 8, *more, **variables)[1]
        often = self.train(net, 8, "--set=train.checkpoint_interval=3", "--set=train.keep=0",
                           *more, **variables)[1]
        rest = self.train(net, 8, f"--resume={self.at(often, 3)}", *more, **variables)[1]
        self.assertEqual(tensors_digest(often), tensors_digest(rare))
        self.assertEqual(tensors_digest(rest), tensors_digest(rare))
        return rare, self.at(often, 3), rest

    def test_accumulation_and_saving(self):
        net = self.write(NET)
        for more in (["--ranks=1"], ["--ranks=2"],
                     ["--ranks=3", "--scaling=strong", "--set=parallel.batch_split=5,0,2"],
                     ["--ranks=3", "--set=transport.shard_optimizer=yes"]):
            with self.subTest(more):
                self.check_saving(net, "--set=solver.accumulation_steps=3", *more)

    def test_clipping_and_saving(self):
        """The limit is so small that every gradient is clipped."""
        net = self.write(NET)
        loose = self.train(net, 8, "--ranks=2")[1]
        for more in (["--ranks=1"], ["--ranks=2", "--set=solver.accumulation_steps=2"],
                     ["--ranks=3", "--set=transport.shard_optimizer=yes"]):
            with self.subTest(more):
                clipped = self.check_saving(net, "--set=solver.clip_gradients=0.05",
                                            *more)[0]
                self.assertNotEqual(tensors_digest(clipped), tensors_digest(loose))

    def test_norms_of_divided_models(self):
        """Those of one rank, up to the order of sums."""
        text = NET.replace("type = batch_norm\nmomentum = 0.75", "type = scale")
        net = self.write(text.replace("momentum = 0.9\n", ""))
        for solver in NORMS:
            whole = self.train(net, 8, *solver)
            for more in DIVIDED:
                with self.subTest(solver + more):
                    divided = self.train(net, 8, *solver, *more)
                    self.assertAlmostEqual(divided[0]["training_loss"],
                                           whole[0]["training_loss"], delta=1e-5)
                    self.check_near(read_tensors(whole[1]), read_tensors(divided[1]), 1e-4)

    def test_divided_models_and_saving(self):
        net = self.write(NET.replace("type = batch_norm\nmomentum = 0.75", "type = scale").
                         replace("momentum = 0.9\n", ""))
        for number, more in enumerate(DIVIDED):
            with self.subTest(more):
                self.check_saving(net, *NORMS[number % len(NORMS)], *more)

    def test_stages_to_the_bit(self):
        """With whole batches, and layers that use plain layouts, the sums are those of one
        rank, in the same order."""
        net = self.write(NET.replace(
            "type = convolution\nnum_output = 6\nkernel_size = 3\nstride = 2",
            "type = inner_product\nnum_output = 20").replace("momentum = 0.9\n", ""))
        for solver in NORMS:
            whole = self.train(net, 8, *solver)[1]
            for cut in ("ip1", "ip1,ip2"):
                with self.subTest(solver, cut=cut):
                    stages = self.train(net, 8, *solver, f"--ranks={2 + cut.count(',')}",
                                        f"--set=parallel.pipeline={cut}",
                                        "--set=parallel.micro_batches=1")[1]
                    self.assertEqual(tensors_digest(stages), tensors_digest(whole))

    def test_accumulation_is_a_larger_batch(self):
        """For nets without layers that depend on the batch as a whole."""
        text = NET.replace("type = batch_norm\nmomentum = 0.75", "type = scale")
        net = self.write(text.replace("ratio = 0.25", "ratio = 0"))
        for every in ([], ["--set=solver.clip_gradients=0.1"]):
            whole = self.train(net, 6, "--set=data.batch=72", *every)
            for more in (["--set=solver.accumulation_steps=3"],
                         ["--set=solver.accumulation_steps=3", "--ranks=2", "--scaling=strong"],
                         ["--set=data.batch=12", "--set=solver.accumulation_steps=2",
                          "--ranks=3"]):
                with self.subTest(every + more):
                    parts = self.train(net, 6, *every, *more)
                    self.assertEqual(parts[0]["effective_batch"], 72)
                    self.assertAlmostEqual(parts[0]["training_loss"],
                                           whole[0]["training_loss"], delta=1e-5)
                    self.check_near(read_tensors(whole[1]), read_tensors(parts[1]))

    def own_averages(self, net, batch, stretch):
        """The running averages of a rank that has only seen the `stretch`th range of
        samples, with constant weights."""
        start = read_tensors(self.train(net, 0)[1])
        before, after = (read_tensors(self.train(net, i, f"--set=data.batch={batch}")[1])
                         if i else start for i in (stretch - 1, stretch))
        keep = 0.75
        return {name: [keep * s + a - keep * b for s, b, a in
                       zip(start[name], before[name], after[name])]
                for name in ("norm1.mean", "norm1.variance")}

    def test_running_averages_are_the_mean(self):
        """Each rank has its own, of its own samples; checkpoints and tests use their mean,
        weighted by the numbers of samples."""
        frozen = NET.replace("learning_rate = 0.05", "learning_rate = 1e-30").replace(
            "momentum = 0.9", "momentum = 0")
        net = self.write(frozen)
        one, other = self.own_averages(net, 16, 1), self.own_averages(net, 8, 3)
        for shares, order in (("2,1", (0, 1)), ("2,0,1", (0, None, 1))):
            ranks = len(order)
            found = read_tensors(self.train(net, 1, f"--ranks={ranks}",
                                            "--scaling=strong",
                                            f"--set=parallel.batch_split={shares}")[1])
            rows, means = found["dlcore.running"], []
            self.assertEqual(len(rows), 12 * ranks)
            for name in one:
                mean = [(2 * a + b) / 3 for a, b in zip(one[name], other[name])]
                for a, b in zip(mean, found[name]):
                    self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(a)))
                self.assertGreater(max(abs(a - b) for a, b in
                                       zip(one[name], other[name])), 1e-3)
                means += mean
            # A rank without samples takes part with weight 0; it may have samples later.
            expected = [own["norm1.mean"] + own["norm1.variance"] for own in (one, other)]
            for rank, which in enumerate(order):
                wanted = means if which is None else expected[which]
                for a, b in zip(wanted, rows[12 * rank:12 * rank + 12]):
                    self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(a)))

    def test_tests_use_the_mean(self):
        """The test at the end of a run agrees with a test of its checkpoint."""
        net = self.write(NET + TEST_DATA)
        report, path = self.train(net, 12, "--ranks=3", "--set=parallel.batch_split=5,2,1")
        for ranks in (1, 2):
            tested = self.dlcore("test", net, f"--weights={path}", f"--ranks={ranks}")
            self.assertAlmostEqual(tested["test_loss"], report["test_loss"], delta=1e-6)
            self.assertEqual(tested["accuracy"], report["accuracy"])

    def test_testing_changes_nothing(self):
        """Neither tests during a run, nor ending it and resuming it with more iterations,
        change its checkpoints."""
        net = self.write(NET + TEST_DATA)
        ranks = ("--ranks=2", "--scaling=strong")
        rare = self.train(net, 8, *ranks, "--set=train.test_interval=1000")[1]
        often = self.train(net, 8, *ranks, "--set=train.test_interval=3")[1]
        self.assertEqual(tensors_digest(often), tensors_digest(rare))
        half = self.train(net, 4, *ranks, "--set=train.test_interval=1000")[1]
        rest = self.train(net, 8, *ranks, "--set=train.test_interval=1000",
                          f"--resume={half}")[1]
        self.assertEqual(tensors_digest(rest), tensors_digest(rare))

    def loss_scale(self, path):
        """The factor, iterations without an overflow since it changed, and with one."""
        return [float(x) for x in read_metadata(path)["dlcore.loss_scale"].split()]

    def test_loss_scale_is_resumed(self):
        """In half precision the loss is scaled dynamically: the scale starts so high that
        the first iterations are skipped."""
        async_device = {"DLCORE_PLUGIN_PATH": str(ASYNC_PLUGINS)}
        # The gradient of the first layer's weight, which does not change, is close to the
        # largest float16 number.
        text = NET.replace("type = batch_norm\nmomentum = 0.75", "type = scale")
        net = self.write(text.replace("scale=0.00390625", "scale=1e27").replace(
            "learning_rate = 0.05", "learning_rate = 5e-8").replace(
            "type = softmax_loss", "type = softmax_loss\nloss_weight = 1e6").replace(
            "[conv1]", "[huge]\ntype = scale\nscale_filler = constant(4e-30)\n"
            "scale_lr_mult = 0\n[conv1]"))
        ends = {}
        for more in ([], ["--ranks=2"], *DIVIDED):
            with self.subTest(more):
                rare, third, rest = self.check_saving(
                    net, "--set=train.device=async", "--set=train.precision=fp16", *more,
                    **async_device)
                scale, good, skipped = self.loss_scale(third)
                self.assertLess(scale, 65536)
                self.assertGreater(skipped, 0)
                self.assertLess(good + skipped, 4)
                self.assertGreaterEqual(self.loss_scale(rare)[2], skipped)
                self.assertEqual(self.loss_scale(rare), self.loss_scale(rest))
                ends[" ".join(more)] = self.loss_scale(rare)
                if more in DIVIDED:  # all ranks skip what one would
                    self.assertEqual(ends[" ".join(more)], ends[""])

    def test_dropout_and_accumulation_in_a_pipeline(self):
        """Dropout drops the same outputs of a sample whatever its stage, rank, pass and
        micro-batch."""
        text = NET.replace("type = batch_norm\nmomentum = 0.75", "type = scale")
        net = self.write(text.replace("ratio = 0.25", "ratio = 0.5"))
        accumulate = "--set=solver.accumulation_steps=3"
        whole = read_tensors(self.train(net, 5, accumulate)[1])
        without = read_tensors(self.train(net, 5, accumulate, "--set=drop1.ratio=0")[1])
        self.assertNotEqual(whole["ip1.weight"], without["ip1.weight"])
        for more in (["--ranks=2", "--set=parallel.pipeline=ip1"],
                     ["--ranks=4", "--set=parallel.pipeline=ip1", "--scaling=strong",
                      "--set=parallel.micro_batches=3"],
                     ["--ranks=3", "--set=parallel.pipeline=ip1,ip2", "--set=parallel.micro_batches=4"]):
            with self.subTest(more):
                stages = read_tensors(self.train(net, 5, accumulate, *more)[1])
                self.check_near(whole, stages)


if __name__ == "__main__":
    unittest.main(verbosity=2)
