#!/usr/bin/env python3
"""Tests the first model of a new user, models/lenet-fashion.ini, which `make demo` trains: it
learns in a run of any length."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]
NET = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "models/lenet-fashion.ini"
DATA = re.search(r"^images = (.*)$", NET.read_text(), re.M)[1]
LAST = 400  # iterations of a long run that are checked


class FirstModel(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def accuracy(self, *options):
        done = subprocess.run([BIN, "train", NET, "--json", *options], cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["accuracy"]

    def test_short_runs(self):
        for iterations, least in ((1, 0), (10, 0.3), (30, 0.55), (938, 0.87)):
            with self.subTest(iterations=iterations):
                self.assertGreater(self.accuracy(f"--iterations={iterations}"), least)

    def watch(self, *options):
        """The losses at the beginning of a long run, while the learning rate stays high."""
        job = subprocess.Popen(
            [BIN, "train", NET, "--ranks=2", "--iterations=90000", "--set=train.display=20",
             *options], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        losses, said = {}, ""
        for line in job.stderr:
            said += line
            found = re.match(r"iteration (\d+), .*: loss ([^,]*),", line)
            if found:
                losses[int(found[1])] = float(found[2])
            if LAST in losses:
                break
        job.send_signal(signal.SIGINT)
        said += job.communicate(timeout=60)[1]
        self.assertIn(LAST, losses, said)
        self.assertEqual(job.returncode, 128 + signal.SIGINT, said)
        return losses

    def test_long_runs(self):
        """With this seed and two ranks, a learning rate of 0.06 diverged at iteration 297."""
        losses = self.watch("--seed=1")
        late = [loss for iteration, loss in losses.items() if iteration > 100]
        self.assertLess(max(late), 1)
        self.assertLess(losses[LAST], 0.6)


if __name__ == "__main__":
    if not pathlib.Path(DATA).exists():
        print(f"skipped: there is no {DATA}")
        sys.exit(77)
    unittest.main(verbosity=2)
