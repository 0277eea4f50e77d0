#!/usr/bin/env python3
"""Ranks that drift apart end the job: with the ranks, the tensor, and no checkpoint of it.
The plugins drift.c and drift_tcp.c make them do that.

    test_drift.py FOLDER     the folder of the plugins
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]
FOLDER = sys.argv.pop()

NET = """[data]
source = synthetic
shape = 1,6,6
classes = 4
samples = 96
batch = 8
transforms = normalize(scale=0.004)
{test}
[solver]
type = process
[train]
iterations = 4
threads = 1
{train}
[parallel]
hang_timeout = 60
{layer}
[ip1]
type = inner_product
num_output = 16
{tensor}
[relu1]
type = relu
[ip2]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""

TEST = """[data.test]
source = synthetic
shape = 1,6,6
classes = 4
samples = 32
batch = 8
transforms = normalize(scale=0.004)
"""


class Drift(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def train(self, *options, ranks=2, test="", train="", layer="", tensor=""):
        (self.folder / "net.ini").write_text(NET.format(test=test, train=train, layer=layer, tensor=tensor))
        run = next((word for word in options if word.startswith("--resume")),
                   f"--run-dir={tempfile.mkdtemp(dir=self.folder)}")
        return subprocess.run([BIN, "train", "net.ini", f"--ranks={ranks}", "--scaling=strong", run,
                               "--set=transport.shard_optimizer=no", *options], cwd=self.folder, text=True, timeout=120,
                              capture_output=True, check=False, env=os.environ | {"DLCORE_PLUGIN_PATH": FOLDER})

    def works(self, *options, **more):
        done = self.train(*options, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("drifted", done.stderr)

    def differs(self, sentence, *options, checkpoints=(), **more):
        done = self.train(*options, **more)
        self.assertEqual(done.returncode, 1, done.stderr)
        errors = [line for line in done.stderr.splitlines() if "error: " in line]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertRegex(errors[0], sentence)
        self.assertEqual(sorted(path.name for path in self.folder.rglob("*.safetensors")), list(checkpoints))
        return errors[0]

    def test_without_fault(self):
        self.works(test=TEST)
        self.works("--consistency=forgetful", ranks=3, test=TEST)

    def test_two_ranks(self):
        """Nobody knows which of two is right."""
        said = self.differs(r"ranks 0 \(host \S+\), 1 \(host \S+\) have drifted apart: after iteration 4 the values of "
                            r"'\w+\.\w+' \(and \d+ other tensors\) differ", "--set=solver.drifts=weights")
        for word in ("Transport '", "solver 'process'", "consistency 'synchronous'", "not saved"):
            self.assertIn(word, said)

    def test_majority(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                self.differs(rf"rank {rank} \(host \S+\) has drifted away from the other ranks: after iteration 4 the "
                             r"values of 'ip1\.\w+' .*differ", "--consistency=forgetful",
                             f"--set=consistency.forgets={rank}", ranks=3)

    def test_states(self):
        """Of the solver; but not where each rank has a shard of them."""
        self.differs(r"the state of 'ip\d.\w+' .*differs", "--set=solver.drifts=slot")
        self.works("--set=solver.drifts=slot", "--set=transport.shard_optimizer=yes")

    def test_weights_of_shards(self):
        """All ranks gather what the owner of a shard has made of it: they agree."""
        self.works("--set=solver.drifts=weights", "--set=transport.shard_optimizer=yes")

    def test_transport(self):
        self.differs(r"ranks 0 .*, 1 .* have drifted apart: .* Transport 'tcp'", "--transport=tcp",
                     "--set=transport.probe=no")

    def test_running_averages(self):
        """Of a layer over the samples of all ranks."""
        self.differs("the values of 'own.average' differ", layer="[own]\ntype = average\n")

    def test_parts_of_a_net(self):
        """Replicas are compared: of a stage, and of rows of a tensor-parallel layer."""
        drifts = "--set=solver.drifts=weights"
        self.works(drifts, "--set=parallel.pipeline=2", ranks=2)
        kept = ["net-00000004.safetensors"]
        self.differs("have drifted apart", drifts, "--set=parallel.pipeline=2", ranks=4, checkpoints=kept)
        self.differs("the values of 'ip2", drifts, tensor="parallel = tensor", checkpoints=kept)
        self.differs(r"ranks 1 \(host \S+\), 3 \(host \S+\) have .* the values of 'ip1", "--set=parallel.tensor=2",
                     "--consistency=forgetful", "--set=consistency.forgets=3", "--set=consistency.of=rows",
                     tensor="parallel = tensor", ranks=4, checkpoints=kept)

    def test_before_each_use(self):
        """What a checkpoint or a test would take for the result of the job is compared before."""
        for name, more in (("test", {"test": TEST, "train": "test_interval = 2"}),
                           ("checkpoint", {"train": "checkpoint_interval = 2"})):
            with self.subTest(name):
                self.differs("after iteration 2 ", "--set=solver.drifts=weights", **more)

    def test_good_checkpoints_stay(self):
        """A resumed run takes the state from the file on all ranks, so it begins without a difference."""
        self.works("--iterations=2")
        kept = list(self.folder.rglob("*.safetensors"))
        self.assertTrue(kept)
        self.differs("after iteration 4 ", f"--resume={kept[0].parent}", "--set=solver.drifts=weights",
                     checkpoints=[kept[0].name])


if __name__ == "__main__":
    unittest.main(verbosity=2)
