#!/usr/bin/env python3
"""Tests of slots that are sharded over the ranks (shard_optimizer = yes): checkpoints are
bitwise those of whole slots, resume in any other layout, and memory is saved."""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from test_solvers import NET, SHARDED, WHOLE_UPDATES
from test_transports import tensors_digest

BIN = os.environ["DLCORE_BIN"]

# Two slots, and an average of the weights.
ADAM = ("--solver=adam", "--set=solver.ema=0.75")
LAMB = ("--solver=lamb", "--set=solver.clip_gradients=0.05")

# 4 million weights, 16 MB an arena.
LARGE = """[net]
name = large
[data]
source = synthetic
shape = 1,32,32
classes = 4
samples = 240
batch = 8
[solver]
type = adam
ema = 0.9
[train]
threads = 1
[ip1]
type = inner_product
num_output = 4096
[ip2]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


class ShardedState(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.net = self.folder / "tiny.ini"
        self.net.write_text(NET)

    def train(self, *options, ranks, iterations=6):
        done = subprocess.run(
            [BIN, "train", str(self.net), "--json", f"--ranks={ranks}", "--scaling=strong",
             f"--iterations={iterations}", f"--run-dir={tempfile.mkdtemp(dir=self.folder)}",
             "--set=transport.bucket_bytes=2K", *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(json.loads(done.stdout)["checkpoint"])

    def test_resumes_in_any_layout(self):
        """Three ranks with shards or without; then another number, with or without."""
        half = {}
        for how in (SHARDED, WHOLE_UPDATES):
            half[how] = self.train(*ADAM, how, "--transport=host-staged", ranks=3,
                                   iterations=3)
        self.assertEqual(*map(tensors_digest, half.values()))
        for ranks in (1, 2, 4):
            ends = {tensors_digest(self.train(*ADAM, f"--resume={half[before]}", after,
                                              "--transport=p2p-tree", ranks=ranks))
                    for before, after in itertools.product(half, half)}
            self.assertEqual(len(ends), 1, ranks)

    def test_beside_other_modes(self):
        """Shards of the stages of a pipeline, beside layers that are split over the ranks, of
        the rows of these, and where samples are split unequally; also of updates that need
        norms."""
        stages, uneven = "--set=parallel.pipeline=ip1", "--set=parallel.batch_split="
        split = ("--set=ip1.parallel=tensor", "--set=parallel.tensor_schedule=whole_batch")
        groups = ("--set=parallel.tensor=2",)
        for ranks, *mode in ((4, stages, *ADAM), (4, stages, *LAMB),
                             (6, stages, uneven + "3,1,2,2,1,1", *LAMB),
                             (2, *split, *ADAM),
                             (2, *split, *LAMB),
                             (4, *groups, *split, *ADAM),
                             (4, *groups, *split, *LAMB),
                             (3, uneven + "5,0,2", *ADAM)):
            with self.subTest(mode):
                whole = self.train(WHOLE_UPDATES, *mode, ranks=ranks)
                self.assertEqual(tensors_digest(self.train(SHARDED, *mode, ranks=ranks)),
                                 tensors_digest(whole))
                half = self.train(SHARDED, *mode, ranks=ranks, iterations=3)
                end = self.train(SHARDED, *mode, f"--resume={half}", ranks=ranks)
                self.assertEqual(tensors_digest(end), tensors_digest(whole))

    def memory(self, *how):
        """Planned of the solver, on the ranks of the first stage."""
        done = subprocess.run([BIN, "check", str(self.net), "--json", "--ranks=4", *how],
                              capture_output=True, text=True, check=True)
        report = json.loads(done.stdout)
        return report.get("ranks", [report])[0]["memory"]["solver"]

    def resident(self, *how):
        """The most memory of any rank, in bytes."""
        with subprocess.Popen([BIN, "train", str(self.net), "--ranks=4", "--iterations=2",
                               "--transport=host-staged", *how,
                               "--set=train.checkpoint_last=no", "--set=train.keep_best=no",
                               f"--run-dir={tempfile.mkdtemp(dir=self.folder)}"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            said = run.stderr.read()
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(run.returncode, 0, said)
        return 1024 * usage.ru_maxrss

    def test_memory(self):
        """Three arenas of state shrink to a quarter, as planned and in fact."""
        self.net.write_text(LARGE)
        whole, shards = self.memory(WHOLE_UPDATES), self.memory(SHARDED)
        self.assertAlmostEqual(shards / whole, 1 / 4, delta=0.01)
        saved = self.resident(WHOLE_UPDATES) - self.resident(SHARDED)
        self.assertGreater(saved, 0.9 * (whole - shards))
        stages = "--set=parallel.pipeline=ip2"
        self.assertAlmostEqual(self.memory(SHARDED, stages) / self.memory(WHOLE_UPDATES, stages),
                               1 / 2, delta=0.01)

    def test_memory_of_rows(self):
        """Two ranks each have the same half of the weights: its state shrinks to a half."""
        self.net.write_text(LARGE)
        rows = ("--set=ip1.parallel=tensor", "--set=parallel.tensor=2",
                "--set=parallel.tensor_schedule=whole_batch")
        whole, shards = (self.memory(how, *rows) for how in (WHOLE_UPDATES, SHARDED))
        self.assertAlmostEqual(shards / whole, 1 / 2, delta=0.01)
        saved = self.resident(WHOLE_UPDATES, *rows) - self.resident(SHARDED, *rows)
        self.assertGreater(saved, 0.9 * (whole - shards))


if __name__ == "__main__":
    unittest.main()
