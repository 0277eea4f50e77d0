#!/usr/bin/env python3
"""Ranks whose installations differ use the transports that all of them have, and say which
one lacks what."""

import os
import pathlib
import shutil
import subprocess
import unittest

import runs

BUILD = pathlib.Path(runs.BIN).parent.parent


class UnlikeRanks(runs.Runs):
    runs = 0

    def install_without(self, *transports):
        """The command of an installation that lacks these transports."""
        shutil.copytree(BUILD / "lib", self.folder / "other/lib", symlinks=True)
        (self.folder / "other/bin").mkdir()
        for transport in transports:
            for file in (self.folder / "other/lib").rglob(f"transport-{transport}.so"):
                file.unlink()
        return shutil.copy2(runs.BIN, self.folder / "other/bin")

    def train(self, *commands):
        """What the ranks, each with its own command, say, and their exit codes."""
        common = dict(os.environ, WORLD_SIZE=str(len(commands)), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(runs.free_port()))
        common.pop("DLCORE_PLUGIN_PATH", None)  # an installation has its own
        self.runs += 1
        jobs = [subprocess.Popen([command, *self.command(f"--run-dir=run{self.runs}")[1:]],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                 env={**common, "RANK": str(rank)})
                for rank, command in enumerate(commands)]
        said = [job.communicate(timeout=60)[0] for job in jobs]
        return "\n".join(said), [job.returncode for job in jobs]

    def test_one_lacks_the_best(self):
        other = self.install_without("p2p-tree")
        for commands in ((runs.BIN, other), (other, runs.BIN)):
            lacking = commands.index(other)
            with self.subTest(rank=lacking):
                said, codes = self.train(*commands)
                self.assertEqual(codes, [0, 0], said)
                self.assertRegex(said, rf"transport p2p-tree is not used: rank {lacking} "
                                       r"\(host \S+\): it is not installed there")
                self.assertRegex(said, r"transport: (host-staged|ucx): ")
                self.assertIn("done after 20 iterations", said)

    def test_one_lacks_all(self):
        other = self.install_without("*")
        said, codes = self.train(runs.BIN, other)
        self.assertEqual(codes, [2, 2], said)
        self.assertRegex(said, "no transport can connect these ranks: .*p2p-tree: rank 1 "
                               r"\(host \S+\): it is not installed there")


if __name__ == "__main__":
    unittest.main(verbosity=2)
