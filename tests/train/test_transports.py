#!/usr/bin/env python3
"""Tests that LeNet trains the same on any transport and any number of ranks: as accurate
as one rank with the same effective batch, and, if the transport keeps the pairwise order
of reduction, with bitwise identical weights."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]
NET = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "models" / "lenet-fashion.ini"
RANKS = (2, 3, 5)  # under mpirun 4, too
ITERATIONS = 60
LEAST_ACCURACY = 0.7
# A part of the data: reading and testing all of it takes longer than training.
TRAINED, TESTED = 64 * ITERATIONS, 2000
WITHIN = 0.03  # of 2000 samples; rounding alone has made a difference of 0.012
IN_ORDER = ("host-staged", "p2p-tree", "ucx", "auto")


def tensors_digest(path):
    """A digest of the tensors of a checkpoint, without its header."""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    return hashlib.sha256(data[begin:]).hexdigest()


def is_there(transport):
    """Only transports that need an extra library may be missing in a build."""
    if transport not in ("ucx", "mpi"):
        return True
    listed = subprocess.run([BIN, "plugin", "list", "--json"], check=True,
                            capture_output=True, text=True)
    return any(feature["kind"] == "transport" and feature["name"] == transport
               for plugin in json.loads(listed.stdout)["plugins"]
               for feature in plugin["features"])


def mpirun(ranks):
    """The command that starts that many ranks; None without mpirun."""
    if not shutil.which("mpirun"):
        return None
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True)
    if "Open MPI" not in version.stdout:
        return None  # others do not support PMIx
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]


def write_net(folder):
    """The net with the first samples of its data; returns its path."""
    text = NET.read_text()
    for path in re.findall(r"= (/\S+-ubyte.gz)", text):
        count = TESTED if "t10k" in path else TRAINED
        head, each = (16, 28 * 28) if "images" in path else (8, 1)
        with gzip.open(path) as file:
            data = file.read(head + count * each)
        few = folder / pathlib.Path(path).stem
        few.write_bytes(data[:4] + count.to_bytes(4, "big") + data[8:])
        text = text.replace(path, str(few))
    net = folder / "net.ini"
    net.write_text(text)
    return net


class Transports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.net = write_net(pathlib.Path(cls.scratch.name))
        cls.alone = cls.train("auto", 1)[0]["accuracy"]

    @classmethod
    def train(cls, transport, ranks, launcher=()):
        """The report, and a digest of the checkpoint."""
        folder = tempfile.mkdtemp(dir=cls.scratch.name)
        own = ["--ranks", str(ranks)] if not launcher else []
        done = subprocess.run(
            [*launcher, BIN, "train", str(cls.net), "--json", "--threads=1", *own,
             f"--transport={transport}", f"--iterations={ITERATIONS}",
             "--set=solver.learning_rate=0.05", "--set=solver.warmup_epochs=0",
             f"--run-dir={folder}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(f"{transport}, {ranks} ranks: exit code "
                                 f"{done.returncode}\n{done.stderr}")
        report = json.loads(done.stdout)
        return report, tensors_digest(report["checkpoint"])

    def check_report(self, report, transport, ranks):
        self.assertEqual(report["ranks"], ranks)
        self.assertEqual(report["effective_batch"], 64)
        if transport != "auto":
            self.assertEqual(report["transport"], transport)
        self.assertGreaterEqual(report["accuracy"], LEAST_ACCURACY)
        self.assertAlmostEqual(report["accuracy"], self.alone, delta=WITHIN)

    def test_one_order_of_reduction(self):
        for ranks in RANKS:
            digests = {}
            for transport in filter(is_there, IN_ORDER):
                with self.subTest(transport=transport, ranks=ranks):
                    report, digests[transport] = self.train(transport, ranks)
                    self.check_report(report, transport, ranks)
            with self.subTest("the same weights", ranks=ranks):
                self.assertEqual(len(set(digests.values())), 1, digests)

    def test_mpi(self):
        self.assertTrue(is_there("mpi") and mpirun(2))
        for ranks in RANKS:
            with self.subTest(ranks=ranks):
                report, _ = self.train("mpi", ranks, mpirun(ranks))
                self.check_report(report, "mpi", ranks)

    def test_started_by_mpirun(self):
        self.assertTrue(mpirun(4))
        _, expected = self.train("host-staged", 4)
        for transport in filter(is_there, IN_ORDER):
            # With `auto`, mpirun is a reason to choose the mpi transport.
            with self.subTest(transport=transport):
                report, digest = self.train(transport, 4, mpirun(4))
                self.check_report(report, transport, 4)
                if report["transport"] != "mpi":
                    self.assertEqual(digest, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
