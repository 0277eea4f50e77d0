#!/usr/bin/env python3
"""A job that shares its cores with another one does not spin while its threads wait: two
jobs of two threads on two cores would run at half their speed."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]

NET = """[data]
source = synthetic
shape = 1,8,8
classes = 4
samples = 64
batch = 8
[solver]
type = sgd
learning_rate = 0.0001
[train]
checkpoint_last = no
checkpoint_minutes = 0
keep_best = no
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""
FOUND = re.compile(r"process (\d+) is another dlcore job on these cores")


class Spinning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.net = pathlib.Path(folder.name) / "net.ini"
        self.net.write_text(NET, encoding="utf-8")
        self.cores = sorted(os.sched_getaffinity(0))

    def endless(self, *cores):
        """A job that trains on these cores until the test ends."""
        job = subprocess.Popen([BIN, "train", self.net, "--iterations=1000000000", "--log-file=/dev/stdout"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.assertTrue(job.stdout.readline())  # it is not called dlcore before exec
        return job

    def others(self, cores, **environment):
        """The other job that a short one on these cores finds: its pid, or None."""
        clean = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        done = subprocess.run([BIN, "train", self.net, "--iterations=1", "-v"], capture_output=True, text=True,
                              env=clean | environment, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        found = FOUND.search(done.stderr)
        return found and int(found.group(1))

    def test_the_same_cores(self):
        self.endless(*self.cores)
        # Other tests may run beside this one, so it need not be that very job.
        self.assertIsNotNone(self.others(self.cores))

    def test_what_the_user_has_set_counts(self):
        self.endless(*self.cores)
        for name, value in (("GOMP_SPINCOUNT", "100"), ("OMP_WAIT_POLICY", "passive")):
            self.assertIsNone(self.others(self.cores, **{name: value}), name)

    def test_other_cores(self):
        if len(self.cores) < 2:
            self.skipTest("there is one core only")
        job = self.endless(self.cores[0])
        self.assertNotEqual(self.others(self.cores[1:]), job.pid)


if __name__ == "__main__":
    unittest.main(verbosity=2)
