#!/usr/bin/env python3
"""The axes of parallelism together with everything else that a job can be: a table of
combinations that has every pair of values which is allowed. Without staleness each has the
loss of one rank; with it its traces keep the rule. In each layout a rank is killed, and one
hangs."""

import itertools
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from deaths import report_seconds
from test_mesh import NET
from test_solvers import DEVICES
from test_staleness import Job

ITERATIONS = 20
# Relative: of sums in another order, and of activations that are rounded to bfloat16.
CLOSE = {"float32": 1e-4, "fp16": 1e-4, "bf16": 1e-2}
STALENESS = 2
HANG_TIMEOUT_S = 2

# Of each: ranks, settings of [parallel], the ranks that share whole parameters and those
# that share rows. Nothing is chosen by measurements.
WHOLE_BATCH = {"tensor_schedule": "whole_batch"}
LAYOUTS = {
    "data": (3, {"data": 3, "tensor": 1}, [(0, 1, 2)], []),
    "tensor": (2, WHOLE_BATCH, [(0, 1)], []),
    "data, tensor": (4, {"data": 2, "tensor": 2, **WHOLE_BATCH}, [(0, 1, 2, 3)],
                     [(0, 2), (1, 3)]),
    "pipeline": (2, {"pipeline": "ip1", "tensor": 1}, [(0,), (1,)], []),
    "data, pipeline": (4, {"pipeline": "relu1", "tensor": 1}, [(0, 1), (2, 3)], []),
    "tensor, pipeline": (4, {"pipeline": "ip1", "tensor": 2}, [(0, 1), (2, 3)], []),
    "data, tensor, pipeline": (8, {"pipeline": "ip2", "tensor": 2},
                               [(0, 1, 2, 3), (4, 5, 6, 7)], [(4, 6), (5, 7)]),
    "unequal stages": (4, {"pipeline": "ip1", "pipeline_ranks": "3,1", "tensor": 1},
                       [(0, 1, 2), (3,)], []),
    "unequal stages, tensor": (6, {"pipeline": "ip1", "pipeline_ranks": "4,2", "tensor": 2},
                               [(0, 1, 2, 3), (4, 5)], []),
}
VALUES = {
    "layout": list(LAYOUTS),
    "consistency": ["synchronous", "no staleness", "stale"],
    "precision": list(CLOSE),
    "norms": ["none", "clipping", "tensors"],
    "passes": ["one", "accumulation"],
    "split": ["equal", "list", "auto"],
    "optimizer": ["whole", "sharded"],
    "resume": ["no", "here", "elsewhere"],
    "device": ["cpu", "async"],
}
SETTINGS = {
    "consistency": {"synchronous": [], "no staleness": ["--consistency=ssp"],
                    "stale": ["--consistency=ssp",
                              f"--set=consistency.staleness={STALENESS}"]},
    "norms": {"none": [], "clipping": ["--set=solver.clip_gradients=0.05"],
              "tensors": ["--solver=lars", "--set=solver.trust_coefficient=0.1"]},
    "passes": {"one": [], "accumulation": ["--set=solver.accumulation_steps=2",
                                           "--set=data.batch=24"]},
    "optimizer": {"whole": ["--set=transport.shard_optimizer=no"],
                  "sharded": ["--set=transport.shard_optimizer=yes"]},
}


def is_allowed(*chosen):
    """Of what (name, value) pairs there may be in one job."""
    has = set(chosen)
    return not (
        # A worker that may be stale needs all of the solver's state.
        ({("consistency", "stale"), ("consistency", "no staleness")} & has
         and ("optimizer", "sharded") in has)
        # The CPU's layers have no half precision; the device's have its loss scale.
        or {("precision", "fp16"), ("device", "cpu")} <= has)


def all_pairs():
    """Those of two values that are allowed."""
    return {frozenset(pair) for one, other in itertools.combinations(VALUES, 2)
            for pair in itertools.product([(one, value) for value in VALUES[one]],
                                          [(other, value) for value in VALUES[other]])
            if is_allowed(*pair)}


def pairs_of(job):
    return {frozenset(pair) for pair in itertools.combinations(job.items(), 2)}


def fill_in(pair, left, draw):
    """A job with this pair and, value by value, as many others of those that are left."""
    job = dict(pair)
    for name in draw.sample(list(VALUES), len(VALUES)):
        fits = [value for value in VALUES[name] if is_allowed(*job.items(), (name, value))]
        gain = [len(left & pairs_of({**job, name: value})) for value in fits]
        job.setdefault(name, fits[gain.index(max(gain))])
    return job


def make_table():
    """Jobs that have all pairs between them; of some random ones that with most pairs."""
    draw, left, table = random.Random(1), all_pairs(), []
    while left:
        tries = [fill_in(draw.choice(sorted(left, key=sorted)), left, draw)
                 for _ in range(20)]
        table.append(max(tries, key=lambda job: len(left & pairs_of(job))))
        left -= pairs_of(table[-1])
    return table


class Axes(Job):
    def layout(self, name, split="equal"):
        ranks, parallel, _, _ = LAYOUTS[name]
        weights = {"equal": "equal", "auto": "auto",
                   "list": ",".join(str(1 + (rank == 0)) for rank in range(ranks))}
        return [f"--ranks={ranks}", f"--set=parallel.batch_split={weights[split]}",
                *(f"--set=parallel.{key}={value}" for key, value in parallel.items())]

    def settings(self, job):
        chosen = [choices[job[name]] for name, choices in SETTINGS.items()]
        return [*itertools.chain(*chosen), f"--set=train.precision={job['precision']}",
                f"--device={job['device']}", "--set=train.checkpoint_last=true"]

    def setUp(self):
        super().setUp()
        self.known = {}
        done = subprocess.run(self.command(NET, 0, "--set=train.precision=bf16"), text=True,
                              capture_output=True, timeout=60)
        if "no bfloat16 arithmetic" in done.stderr:
            VALUES["precision"] = ["float32", "fp16"]

    def losses_of_one_rank(self, job):
        """Of the job without axes. Without loss scale half precision is that of the CPU."""
        key = (job["norms"], job["passes"], job["precision"] == "bf16")
        if key not in self.known:
            alone = {**job, "consistency": "synchronous", "device": "cpu",
                     "precision": "bf16" if key[2] else "float32"}
            self.known[key] = self.train(NET, ITERATIONS, *self.settings(alone))[0]
        return self.known[key]

    def run_job(self, job, trace):
        more = self.settings(job)
        here = self.layout(job["layout"], job["split"])
        if job["consistency"] == "stale":
            here.append(f"--set=consistency.trace={trace}")
        if job["resume"] == "no":
            return self.train(NET, ITERATIONS, *more, *here)
        layouts = list(LAYOUTS)
        other = layouts[(layouts.index(job["layout"]) + 4) % len(layouts)]
        first = here if job["resume"] == "here" else self.layout(other)
        half = self.train(NET, ITERATIONS // 2, *more, *first)[1]
        return self.train(NET, ITERATIONS, *more, *here, f"--resume={half}")

    def check_job(self, job, number):
        trace = self.folder / f"trace-{number}"
        report, _, log = self.run_job(job, trace)
        one = self.losses_of_one_rank(job)
        self.assertEqual(report["iterations"], ITERATIONS)
        self.assertEqual(report["effective_batch"], 48)
        if job["consistency"] != "stale":
            # The training loss is that of iterations since the last start.
            for key in ("training_loss", "test_loss")[job["resume"] != "no":]:
                self.assertLess(abs(report[key] - one[key]),
                                CLOSE[job["precision"]] * one[key], log)
            return
        _, _, groups, rows = LAYOUTS[job["layout"]]
        for ranks in groups:
            self.check_trace(trace, ranks, STALENESS)
        for ranks in rows:
            self.check_trace(f"{trace}.rows", ranks, STALENESS)
        self.assertLess(report["test_loss"], 1.3 * one["test_loss"], log)

    def test_every_pair(self):
        for number, job in enumerate(make_table()):
            with self.subTest(**job):
                self.check_job(job, number)

    def failing_job(self, number):
        """With a layout, and a consistency, a device and a rank in turns."""
        layout = VALUES["layout"][number % len(LAYOUTS)]
        job = {"layout": layout, "norms": "none", "passes": "one", "optimizer": "whole",
               "consistency": VALUES["consistency"][number // 2 % 3], "precision": "float32",
               "device": VALUES["device"][number % 2]}
        return job, (5 * number + 1) % LAYOUTS[layout][0]

    def start(self, job, *more):
        """A long job, once it trains; its ranks."""
        process = subprocess.Popen( # pylint: disable=consider-using-with
            self.command(NET, 10 ** 6, *self.settings(job), *self.layout(job["layout"]),
                         "--set=train.display=1", *more), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, **DEVICES})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = ""
        while "iteration 4," not in said:
            line = process.stderr.readline()
            self.assertTrue(line, said)
            said += line
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return process, sorted(int(pid) for pid in children.read_text().split())

    def check_end(self, process, ranks, victim, said=""):
        said += process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 5, said)
        self.assertRegex(said, rf"rank {victim}\b")
        for pid in ranks:
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())
        return said

    def test_kills(self):
        for number in range(len(LAYOUTS)):
            job, victim = self.failing_job(number)
            with self.subTest(**job, victim=victim):
                process, ranks = self.start(job)
                os.kill(ranks[victim], signal.SIGKILL)
                began, line = time.monotonic(), " "
                while line and "was killed by signal 9" not in line:
                    line = process.stderr.readline()
                self.assertLess(time.monotonic() - began, report_seconds())
                self.check_end(process, ranks, victim, line)

    def test_hangs(self):
        for number in (4, 6, 7): # each consistency and device
            job, victim = self.failing_job(number + len(LAYOUTS))
            with self.subTest(**job, victim=victim):
                process, ranks = self.start(
                    job, f"--set=parallel.hang_timeout={HANG_TIMEOUT_S}")
                os.kill(ranks[victim], signal.SIGSTOP)
                began = time.monotonic()
                said = self.check_end(process, ranks, victim)
                self.assertIn("hang_timeout", said)
                self.assertLess(time.monotonic() - began, HANG_TIMEOUT_S + 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
