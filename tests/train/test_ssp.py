#!/usr/bin/env python3
"""Consistency model ssp on a real net: without staleness the weights of any solver are
bitwise identical to those of synchronous training, on any interconnect, with servers too,
killed and resumed; with staleness the loss falls, and the traces keep the rule."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

from test_solvers import DEVICES
from test_transports import BIN, NET, is_there, mpirun

ITERATIONS = 36
FEW = ITERATIONS // 3
LEARNED = 120  # after so many the loss has fallen
# With staleness and momentum, the usual learning rate may diverge where a rank gets no core.
GENTLE = ("--set=solver.learning_rate=0.003",)
LEARNING_RATE = {"sgd": 0.03, "adam": 0.001}
# Each transport with one number of ranks; SSP_ALL=1 tests them all.
PAIRS = (("host-staged", 2), ("p2p-tree", 4), ("ucx", 3))
if os.environ.get("SSP_ALL"):
    PAIRS = tuple((transport, ranks) for transport, _ in PAIRS for ranks in (2, 3, 4))


def tensors(path):
    """The tensors of a checkpoint, by name."""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack_from("<Q", data)
    table = json.loads(data[8:8 + size])
    table.pop("__metadata__", None)
    return {name: data[8 + size + entry["data_offsets"][0]:
                       8 + size + entry["data_offsets"][1]]
            for name, entry in table.items()}


class Ssp(unittest.TestCase):
    known = {}  # weights of synchronous training, by solver and number of ranks

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        # Accuracy is not tested.
        text = re.sub(r"(?ms)^\[data\.test\].*?\n\n", "", NET.read_text())
        self.net = {"sgd": self.folder / "sgd.ini", "adam": self.folder / "adam.ini"}
        self.net["sgd"].write_text(text)
        self.net["adam"].write_text(text.replace("momentum = 0.9\n", ""))

    def train(self, consistency, transport, ranks, *more, solver="sgd", launcher=(),
              iterations=ITERATIONS, **variables):
        own = [] if launcher else ["--ranks", str(ranks)]
        done = subprocess.run(
            [*launcher, BIN, "train", str(self.net[solver]), "--json", "--threads=1", *own,
             f"--solver={solver}", f"--consistency={consistency}",
             f"--transport={transport}", f"--iterations={iterations}",
             f"--set=solver.learning_rate={LEARNING_RATE[solver]}",
             "--set=solver.warmup_epochs=0", "--set=solver.policy=fixed",
             f"--run-dir={tempfile.mkdtemp(dir=self.folder)}", *more],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            env={**os.environ, **variables})
        self.assertEqual(done.returncode, 0, f"{transport}, {ranks} ranks: {done.stderr}")
        report = json.loads(done.stdout)
        self.assertEqual((report["solver"], report["consistency"]), (solver, consistency))
        return tensors(report["checkpoint"]), report, done.stderr

    def expect_synchronous(self, got, ranks, solver="sgd"):
        if (solver, ranks) not in self.known:
            self.known[solver, ranks], _, _ = self.train(
                "synchronous", "host-staged", ranks, solver=solver)
        expected = self.known[solver, ranks]
        self.assertEqual(sorted(got), sorted(expected))
        for name, value in expected.items():
            self.assertEqual(value, got[name], f"{name} differs with {ranks} ranks")

    def test_no_staleness_is_synchronous(self):
        for transport, ranks in PAIRS:
            with self.subTest(transport=transport, ranks=ranks):
                if not is_there(transport):
                    continue
                got, _, _ = self.train("ssp", transport, ranks)
                self.expect_synchronous(got, ranks)

    def test_no_staleness_over_mpi(self):
        self.assertTrue(is_there("mpi") and mpirun(2))
        got, report, _ = self.train("ssp", "mpi", 2, launcher=mpirun(2))
        self.assertEqual(report["transport"], "mpi")
        self.expect_synchronous(got, 2)

    def test_servers_and_resume(self):
        """The first part on three ranks, the second with a server in addition, the last
        part synchronously."""
        for solver in ("sgd", "adam"):
            with self.subTest(solver):
                _, report, _ = self.train("ssp", "auto", 3, solver=solver, iterations=FEW)
                _, report, _ = self.train("ssp", "host-staged", 4,
                                          "--set=consistency.servers=1",
                                          f"--resume={report['checkpoint']}",
                                          solver=solver, iterations=2 * FEW)
                got, _, _ = self.train("synchronous", "host-staged", 3,
                                       f"--resume={report['checkpoint']}", solver=solver)
                self.expect_synchronous(got, 3, solver)

    def test_resumes_with_anything(self):
        """With staleness nothing is exact, but any layout resumes from any other."""
        for solver in ("sgd", "adam"):
            with self.subTest(solver):
                gentle = GENTLE if solver == "sgd" else ()
                _, report, _ = self.train("ssp", "auto", 3, "--set=consistency.staleness=2",
                                          *gentle, solver=solver, iterations=LEARNED // 4)
                _, after, _ = self.train("ssp", "auto", 4, "--set=consistency.staleness=1",
                                         *gentle, "--set=consistency.servers=1",
                                         "--set=consistency.groups=2",
                                         f"--resume={report['checkpoint']}",
                                         solver=solver, iterations=LEARNED // 2)
                self.assertEqual(after["iterations"], LEARNED // 2)
                self.assertLess(after["training_loss"],
                                max(2.0, report["training_loss"]))

    def test_adam_converges(self):
        """With staleness, and workers that compute very different parts of the batch."""
        _, exact, _ = self.train("synchronous", "auto", 3, solver="adam", iterations=LEARNED)
        _, stale, log = self.train("ssp", "auto", 3, "--set=consistency.staleness=2",
                                   "--set=parallel.batch_split=6,5,1", solver="adam",
                                   iterations=LEARNED)
        self.assertIn("clocks stale", log)
        self.assertLess(exact["training_loss"], 1.0)
        self.assertLess(stale["training_loss"], 1.3 * exact["training_loss"])

    def check_trace(self, path, staleness, workers):
        """No read is too old, and no rank waits that has all updates it needs."""
        reads = 0
        for rank in range(workers):
            for line in pathlib.Path(f"{path}.{rank}").read_text().splitlines():
                what, *words = line.split()
                if what not in ("read", "wait"):
                    continue
                clock, have = int(words[3]), [int(word) for word in words[5:]]
                self.assertEqual(len(have), workers)
                oldest = min(have[:rank] + have[rank + 1:])
                if what == "wait":
                    self.assertLess(oldest, clock - 1 - staleness, line)
                    continue
                reads += 1
                self.assertGreaterEqual(oldest, clock - 1 - staleness, line)
                self.assertEqual(have[rank], clock - 1, line)
        self.assertGreater(reads, 0)

    def test_traces_keep_the_rule(self):
        """In memory of the host, and of a device that works when it likes."""
        for device, transport, ranks in (("cpu", "auto", 3), ("async", "p2p-tree", 2),
                                         ("async", "host-staged", 3), ("async", "ucx", 3)):
            if not is_there(transport):
                continue
            with self.subTest(device=device, transport=transport, ranks=ranks):
                trace = self.folder / f"{device}-{transport}"
                _, report, log = self.train(
                    "ssp", transport, ranks, "--set=consistency.staleness=2",
                    f"--device={device}", f"--set=consistency.trace={trace}",
                    "--set=parallel.batch_split=equal", *GENTLE, iterations=LEARNED // 2,
                    **(DEVICES if device == "async" else {}))
                self.check_trace(trace, 2, ranks)
                self.assertLess(report["training_loss"], 2.3)
                self.assertIn("clocks stale", log)

    def test_mistakes(self):
        """check refuses what train refuses."""
        for ranks, more, sentence in (
                (2, ["consistency.staleness=1.5"],
                 "a number of iterations: 0, 1, 2, ... or inf"),
                (2, ["consistency.groups=9"], "groups = 9, but only 2 ranks compute"),
                (3, ["consistency.groups=3", "consistency.servers=1"],
                 "groups = 3, but only 2 ranks compute"),
                (2, ["consistency.servers=2"], "servers"),
                (1, ["consistency.servers=1"], "at least one must compute")):
            for command in (["train", "--iterations=1"], ["check"]):
                with self.subTest(more=more, command=command):
                    done = subprocess.run(
                        [BIN, *command, str(NET), f"--ranks={ranks}", "--consistency=ssp",
                         "--set=solver.warmup_epochs=0", *(f"--set={one}" for one in more)],
                        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
