#!/usr/bin/env python3
"""Bounded staleness together with precisions, accumulation, clipping and other axes. With
staleness 0 a job is that of synchronous training; above 0 its traces keep the rule.
Checkpoints are resumed. (test_axes kills ranks.)"""

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
HUGE = NET.replace("scale=0.00390625", "scale=1e27").replace(
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
                f"--run-dir={tempfile.mkdtemp(dir=self.folder)}", "--device=cpu", *more]

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
        if len(ranks) == 1:
            return
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
        for precision, name in (("float32", "clipping"), ("float32", "accumulation"),
                                ("fp16", "plain"), ("fp16", "both")):
            with self.subTest(precision=precision, extra=name):
                more = ("--ranks=2", "--device=async",
                        f"--set=train.precision={precision}", *EXTRAS[name])
                exact = self.train(NET, 8, *more)
                none = self.train(NET, 8, "--consistency=ssp", *more)
                self.assertEqual(tensors_digest(none[1]), tensors_digest(exact[1]))
                trace = self.folder / f"{precision}-{name}"
                stale = self.train(NET, 16, *STALE, *more, "--set=solver.learning_rate=0.02",
                                   f"--set=consistency.trace={trace}")
                self.check_trace(trace, (0, 1), 2)
                # It begins near 1.4, and what the ranks see of each other differs each time.
                self.assertLess(stale[0]["training_loss"], 3)

    def test_overflow(self):
        """Without staleness all ranks skip an iteration; otherwise each skips its own, by a
        scale of its own."""
        more = ("--ranks=2", "--device=async", "--set=train.precision=fp16")
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


SPLIT = NET.replace("type = batch_norm\nmomentum = 0.75", "type = scale").replace(
    "learning_rate = 0.05", "learning_rate = 0.01")
ROWS = SPLIT.replace("[ip1]", "[ip1]\nparallel = tensor")
# A layout of the ranks, of which nothing is chosen by measurements; the ranks that share
# whole parameters, and those that share rows.
Layout = collections.namedtuple("Layout", "net options groups rows")
LAYOUTS = {
    "pipeline": Layout(SPLIT, ("--ranks=4", "--set=parallel.pipeline=ip1",
                               "--set=parallel.batch_split=2,1,2,1"),
                       ((0, 1), (2, 3)), ()),
    "unequal": Layout(SPLIT, ("--ranks=4", "--set=parallel.pipeline=ip1",
                              "--set=parallel.pipeline_ranks=3,1"), ((0, 1, 2), (3,)), ()),
    "tensor": Layout(ROWS, ("--ranks=4", "--set=parallel.tensor=2",
                            "--set=parallel.tensor_schedule=whole_batch"),
                     ((0, 1, 2, 3),), ((0, 2), (1, 3))),
    "all": Layout(ROWS, ("--ranks=8", "--set=parallel.pipeline=ip1", "--set=parallel.tensor=2"),
                  ((0, 1, 2, 3), (4, 5, 6, 7)), ((4, 6), (5, 7)))}
STRONG = "--scaling=strong"
NORMS = {"clipping": ("--device=cpu", *EXTRAS["both"]),
         "fp16": ("--device=async", "--set=train.precision=fp16"),
         "tensors": ("--device=cpu", "--solver=lars")}


class Axes(Job):
    """Layers are divided too: each set of ranks that share parameters has its own clocks."""

    def test_no_staleness_is_synchronous(self):
        one = self.train(SPLIT, 30)
        for (name, layout), device in zip(LAYOUTS.items(), ("cpu", "async", "async", "cpu")):
            more = (STRONG, f"--device={device}", *layout.options)
            exact = self.train(layout.net, 30, *more)
            none = self.train(layout.net, 30, "--consistency=ssp", *more)
            with self.subTest(name, device=device):
                self.assertEqual(tensors_digest(none[1]), tensors_digest(exact[1]))
                for report in (exact[0], none[0]):
                    self.assertTrue(math.isclose(
                        report["training_loss"], one[0]["training_loss"],
                        rel_tol=1e-4), report["training_loss"])

    def test_traces_keep_the_rule(self):
        """In memory of the host, and of a device that works when it likes."""
        ways = (("async", "plain"), ("cpu", "accumulation"))
        for (name, layout), (device, extra) in zip(LAYOUTS.items(), 2 * ways):
            with self.subTest(name, device=device):
                trace = self.folder / f"{name}-{device}"
                report, _, log = self.train(
                    layout.net, 20, STRONG, *STALE, *EXTRAS[extra], *layout.options,
                    f"--device={device}", f"--set=consistency.trace={trace}")
                for ranks in layout.groups:
                    self.check_trace(trace, ranks, 2)
                for ranks in layout.rows:
                    self.check_trace(f"{trace}.rows", ranks, 2)
                self.assertLess(report["training_loss"], 1.7)
                self.assertIn("clocks stale", log)

    def test_norms(self):
        """Of the whole gradient and of tensors; a worker is the ranks that wait for each
        other inside of an iteration."""
        for name, what in (("pipeline", "fp16"), ("unequal", "clipping"), ("tensor", "fp16"),
                           ("tensor", "tensors"), ("all", "clipping"), ("all", "tensors")):
            with self.subTest(name, what=what):
                layout = LAYOUTS[name]
                more = (STRONG, *layout.options, *NORMS[what])
                exact = self.train(layout.net, 8, *more)[1]
                none = self.train(layout.net, 8, "--consistency=ssp", *more)[1]
                self.assertEqual(tensors_digest(none), tensors_digest(exact))
                trace = self.folder / f"{name}-{what}"
                stale = (*STALE, *more, f"--set=consistency.trace={trace}")
                report = self.train(layout.net, 16, *stale)[0]
                for ranks in layout.groups:
                    self.check_trace(trace, ranks, 2)
                self.assertLess(report["training_loss"], 1.7)

    def test_column_has_one_norm(self):
        """A worker alone has the whole gradient, in whatever stages."""
        clipped = ("--set=solver.clip_gradients=0.05", *STALE)
        whole = self.train(SPLIT, 8, *clipped)[1]
        found = self.train(SPLIT, 8, *clipped, "--ranks=3",
                           "--set=parallel.pipeline=ip1,ip2")[1]
        for name, values in read_tensors(whole).items():
            most = max(map(abs, values))
            for a, b in zip(values, read_tensors(found)[name]):
                self.assertLess(abs(a - b), 1e-4 * most, name)

    def test_clipped_steps(self):
        """The first step of sgd is as long as the limit says, and never longer: shorter
        where workers, or the ranks of one, point in different directions."""
        limit = 0.01
        more = (STRONG, *STALE, f"--set=solver.clip_gradients={limit}",
                "--set=solver.momentum=0", "--set=solver.weight_decay=0",
                "--set=solver.learning_rate=1")
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                first, second = (read_tensors(self.train(layout.net, count, *more,
                                                         *layout.options)[1])
                                 for count in (0, 1))
                length = math.sqrt(sum((a - b) ** 2 for key, values in first.items()
                                       if "/" not in key # no slots of the solver
                                       for a, b in zip(values, second[key])))
                self.assertLess(length, 1.001 * limit)
                self.assertGreater(length, 0.5 * limit)

    def test_overflow_of_a_worker(self):
        """All ranks of a tensor group skip an iteration that one of them cannot use, and
        have one loss scale."""
        net = HUGE.replace("type = batch_norm\nmomentum = 0.75", "type = scale").replace(
            "[ip1]", "[ip1]\nparallel = tensor")
        more = (STRONG, "--device=async", "--set=train.precision=fp16", *STALE,
                "--ranks=2", "--set=parallel.tensor_schedule=whole_batch")
        first, second = (self.train(net, count, *more)[1] for count in (0, 1))
        for name, values in read_tensors(first).items():
            if name.endswith(("weight", "bias")):
                self.assertEqual(list(values), list(read_tensors(second)[name]), name)
        path = self.train(net, 8, *more)[1]
        scale, good, skipped = map(float, read_metadata(path)["dlcore.loss_scale"].split())
        self.assertLess(scale, 65536)
        self.assertGreater(skipped, 0)
        self.assertGreater(good, 0)
        for name, values in read_tensors(path).items():
            self.assertTrue(all(map(math.isfinite, values)), name)

    def test_resume(self):
        """In the same layout bitwise, without staleness; in any other, and back."""
        for name in ("unequal", "all"):
            with self.subTest(name):
                layout = LAYOUTS[name]
                options = (STRONG, "--consistency=ssp", *layout.options)
                whole = self.train(layout.net, 8, *options)[1]
                half = self.train(layout.net, 4, *options)[1]
                rest = self.train(layout.net, 8, f"--resume={half}", *options)[1]
                self.assertEqual(tensors_digest(rest), tensors_digest(whole))
                stale = self.train(layout.net, 4, STRONG, *STALE, *layout.options)[1]
                alone = self.train(SPLIT, 8, f"--resume={stale}")[1]
                report = self.train(layout.net, 12, STRONG, *STALE, *layout.options,
                                    f"--resume={alone}")[0]
                self.assertEqual(report["iterations"], 12)
                self.assertLess(report["training_loss"], 1.7)

    def start(self, layout, trace, *more):
        """A long job, once it trains."""
        job = subprocess.Popen( # pylint: disable=consider-using-with
            self.command(layout.net, 10 ** 6, STRONG, *STALE, *layout.options,
                         f"--set=consistency.trace={trace}", *more),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        files = [pathlib.Path(f"{trace}.{rank}") for ranks in layout.groups for rank in ranks
                 if len(ranks) > 1]
        deadline = time.monotonic() + 60
        while not all(file.exists() and file.stat().st_size > 10000 for file in files):
            self.assertIsNone(job.poll(), job.stderr.read() if job.poll() else "")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return job

    def test_requests(self):
        """All ranks checkpoint in one iteration, by the clock and when they are asked, and
        stop in one."""
        for name in ("unequal", "all"):
            with self.subTest(name):
                layout = LAYOUTS[name]
                job = self.start(layout, self.folder / f"ask-{name}",
                                    "--set=train.checkpoint_minutes=0.005")
                job.send_signal(signal.SIGHUP)
                time.sleep(1)
                job.send_signal(signal.SIGTERM)
                out, log = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 128 + signal.SIGTERM, log)
                report = json.loads(out)
                self.assertTrue(report["stopped"])
                self.assertGreaterEqual(len(re.findall(r"checkpoint: .*\.safetensors", log)),
                                        2, log)
                self.assertEqual(int(read_metadata(pathlib.Path(report["checkpoint"]))[
                    "dlcore.iteration"]), report["iterations"])

    def test_servers_need_samples(self):
        layout = LAYOUTS["pipeline"]
        done = subprocess.run(self.command(layout.net, 1, *STALE, *layout.options,
                                           "--set=consistency.servers=1"),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("every rank of a stage passes samples on", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
