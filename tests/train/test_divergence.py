#!/usr/bin/env python3
"""A loss that is not finite: where a sample is to blame it is named, by all ranks alike; else
the learning rate is. NaN is printed without a sign."""

import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from test_sources import array

BIN = os.environ["DLCORE_BIN"]
SAMPLES, PIXELS = 48, 9

NET = """[data]
source = npy
path = data
batch = 4
transforms = normalize(scale=100)
{more}
[solver]
type = sgd
learning_rate = 0.001
[train]
iterations = 24
threads = 1
checkpoint_last = no
[parallel]
hang_timeout = 60
[ip1]
type = inner_product
num_output = 8
[relu]
type = relu
[ip2]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


class Divergence(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def train(self, *options, bad=(), more=""):
        """Samples of small numbers; `bad` ones have a pixel that overflows when it is scaled."""
        pixels = [(i % 7) / 100 for i in range(SAMPLES * PIXELS)]
        for sample in bad:
            pixels[sample * PIXELS + 5] = 1e38
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "data/x.npy").write_bytes(array("<f4", (SAMPLES, 1, 3, 3),
                                                       struct.pack(f"<{len(pixels)}f", *pixels)))
        (self.folder / "data/y.npy").write_bytes(array("<i4", (SAMPLES,), struct.pack(f"<{SAMPLES}i", *([0, 1, 2, 3] * 12))))
        (self.folder / "net.ini").write_text(NET.format(more=more))
        done = subprocess.run([BIN, "train", "net.ini", *options], cwd=self.folder, text=True, timeout=120,
                              capture_output=True, check=False)
        self.assertNotIn("-nan", done.stdout + done.stderr)
        return done

    def expect(self, code, sentence, *options, **more):
        done = self.train(*options, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        errors = [line for line in done.stderr.splitlines() if "error: " in line]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertRegex(errors[0], sentence)

    def test_good(self):
        self.assertEqual(self.train("--ranks=2").returncode, 0)

    def test_a_sample(self):
        """Wherever it comes in the order, and whichever rank reads it."""
        for bad in (0, 13, 47):
            for options in ((), ("--ranks=3", "--scaling=strong"), ("--ranks=2", "--set=solver.accumulation_steps=3")):
                with self.subTest(bad=bad, options=options):
                    self.expect(4, rf"training diverged at iteration \d+ because of a sample: data: row {bad}: value 5 of field "
                                r"image is inf as the net reads it; correct it", *options, bad=[bad])

    def test_modes(self):
        for options in (("--ranks=2", "--set=parallel.pipeline=2"), ("--ranks=2", "--consistency=ssp"),
                        ("--set=solver.clip_gradients=1",), ("--ranks=2", "--set=solver.clip_gradients=1")):
            with self.subTest(options=options):
                self.expect(4, "because of a sample: data: row 13: value 5", *options, bad=[13])

    def test_learning_rate(self):
        for ranks in (1, 2):
            self.expect(1, r"the loss became (inf|nan) at iteration \d+: try a smaller learning rate", f"--ranks={ranks}",
                        "--set=solver.learning_rate=1e9", "--set=solver.weight_decay=1e6")


if __name__ == "__main__":
    unittest.main(verbosity=2)
