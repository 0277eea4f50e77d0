#!/usr/bin/env python3
"""Bounded staleness together with precisions, accumulation, clipping and other axes. With
staleness 0 a job is that of synchronous training; above 0 its traces keep the rule. A
killed rank is reported, and checkpoints are resumed."""

import collections
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from test_combinations import NET, read_metadata, read_tensors
from test_solvers import DEVICES
from test_transports import tensors_digest

BIN = os.environ["DLCORE_BIN"]
STALE = ("--consistency=ssp", "--set=consistency.staleness=2")
# What the solver does with whole gradients, and how many passes an iteration has.
EXTRAS = {"plain": (),
          "accumulation": ("--set=solver.accumulation_steps=2",),
          "clipping": ("--set=solver.clip_gradients=0.05",),
          "both": ("--set=solver.accumulation_steps=2", "--set=solver.clip_gradients=0.05")}
# Gradients near the largest float16 number: the first scales of the loss are too high. The
# weight of the first layer, whose gradient that is, does not change.
HUGE = NET.replace("scale = 0.00390625", "scale = 1e27").replace(
    "learning_rate = 0.05", "learning_rate = 5e-8").replace(
    "type = softmax_loss", "type = softmax_loss\nloss_weight = 1e6").replace(
    "[conv1]", "[huge]\ntype = scale\nscale_filler = constant(4e-30)\n"
    "scale_lr_mult = 0\n[conv1]")


class Job(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def command(self, text, iterations, *more):
        net = self.folder / "net.ini"
        net.write_text(text)
        return [BIN, "train", str(net), "--json", f"--iterations={iterations}",
                f"--run-dir={tempfile.mkdtemp(dir=self.folder)}", *more]

    def train(self, text, iterations, *more):
        """The report, the checkpoint and the log."""
        done = subprocess.run(self.command(text, iterations, *more), capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=120,
                              env={**os.environ, **DEVICES})
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        return report, pathlib.Path(report["checkpoint"]), done.stderr

    def check_trace(self, trace, ranks, staleness):
        """No read of rank's weights is too old, and it has the rank's own updates; where a
        rank waits it must. `ranks`: those of one group, in its order."""
        reads = 0
        for me, rank in enumerate(ranks):
            for line in pathlib.Path(f"{trace}.{rank}").read_text().splitlines():
                what, *words = line.split()
                if what not in ("read", "wait"):
                    continue
                clock, have = int(words[3]), [int(word) for word in words[5:]]
                self.assertEqual(len(have), len(ranks))
                oldest = min(have[:me] + have[me + 1:])
                if what == "wait":
                    self.assertLess(oldest, clock - 1 - staleness, line)
                    continue
                reads += 1
                self.assertGreaterEqual(oldest, clock - 1 - staleness, line)
                self.assertEqual(have[me], clock - 1, line)
        self.assertGreater(reads, 0)


class Combinations(Job):
    """In each rank the same layers."""

    def test_precisions_and_norms(self):
        for precision in ("float32", "fp16"):
            for name, extra in EXTRAS.items():
                with self.subTest(precision=precision, extra=name):
                    more = ("--ranks=2", "--set=train.device=async",
                            f"--set=train.precision={precision}", *extra)
                    exact = self.train(NET, 8, *more)
                    none = self.train(NET, 8, "--consistency=ssp", *more)
                    self.assertEqual(tensors_digest(none[1]), tensors_digest(exact[1]))
                    trace = self.folder / f"{precision}-{name}"
                    stale = self.train(NET, 16, *STALE, *more, "--set=solver.learning_rate=0.02",
                                       f"--set=consistency.trace={trace}")
                    self.check_trace(trace, (0, 1), 2)
                    self.assertLess(stale[0]["training_loss"], 1.5)

    def test_overflow(self):
        """Without staleness all ranks skip an iteration; otherwise each skips its own, by a
        scale of its own."""
        more = ("--ranks=2", "--set=train.device=async", "--set=train.precision=fp16")
        exact = self.train(HUGE, 8, *more)[1]
        none = self.train(HUGE, 8, "--consistency=ssp", *more)[1]
        self.assertEqual(tensors_digest(none), tensors_digest(exact))
        self.assertEqual(read_metadata(none)["dlcore.loss_scale"],
                         read_metadata(exact)["dlcore.loss_scale"])
        first = self.train(HUGE, 0, *more)[1]
        for staleness in (1, 2):
            stale = (*STALE, f"--set=consistency.staleness={staleness}", *more)
            one = self.train(HUGE, 1, *stale)[1]
            for name, values in read_tensors(first).items():
                if name.endswith(("weight", "bias")): # statistics of the batch are kept
                    self.assertEqual(list(values), list(read_tensors(one)[name]), name)
            path = self.train(HUGE, 4, *stale)[1]
            path = self.train(HUGE, 8, f"--resume={path}", *stale)[1]
            scale, good, skipped = map(float, read_metadata(path)["dlcore.loss_scale"].split())
            self.assertLess(scale, 65536)
            self.assertGreater(skipped, 0)
            self.assertEqual(good + skipped, 8)
            for name, values in read_tensors(path).items():
                self.assertTrue(all(map(math.isfinite, values)), name)

    def test_state_of_a_worker_is_whole(self):
        done = subprocess.run(self.command(NET, 1, "--ranks=2", *STALE,
                                           "--set=transport.shard_optimizer=yes"),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("needs all of the solver's state", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
