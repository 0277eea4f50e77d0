"""Tests that a file that is cut short while it is read is bad data, and not a crash."""

import gzip
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

DLCORE = os.environ["DLCORE_BIN"]
PRELOAD = sys.argv.pop(1)
MIB = 1 << 20
NET = """[net]
name = net
[data]
source = idx
images = images
labels = labels
batch = 4
[solver]
type = sgd
[train]
iterations = 2
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""


class Shrinking(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name).resolve()
        (self.folder / "net.ini").write_text(NET)

    def check(self, at):
        return subprocess.run([DLCORE, "check", "net.ini"], cwd=self.folder, capture_output=True,
                              text=True, timeout=120, check=False,
                              env={**os.environ, "LD_PRELOAD": PRELOAD, "SHRINK_IN": "images",
                                   "SHRINK_AT": str(at)})

    def refused(self, mib, pack):
        """Cuts the file at every access up to the first one that does no harm. The images are
        noise, which stays as large when it is packed."""
        count = mib * MIB // 1024
        images = pack(struct.pack(">IIII", 0x803, count, 32, 32) + os.urandom(count * 1024))
        (self.folder / "labels").write_bytes(struct.pack(">II", 0x801, count) + bytes(count))
        for at in range(1, 6):
            (self.folder / "images").write_bytes(images)
            done = self.check(at)
            self.assertIn(done.returncode, (0, 4), f"access {at}: {done.stderr}")
            if done.returncode == 0:
                break
            self.assertRegex(done.stderr, "images ends at byte [0-9]+ while it is being read")
        self.assertGreater(at, 2)

    def test_plain(self):
        self.refused(1, bytes)

    def test_packed(self):
        self.refused(1, lambda whole: gzip.compress(whole, 1))

    def test_packed_and_large(self):
        self.refused(70, lambda whole: gzip.compress(whole, 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
