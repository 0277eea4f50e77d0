#!/usr/bin/env python3
"""Ranks whose installations or machines differ: they use the transports that all of them have,
and say which one lacks what; each machine is looked at, and the racks are of machines."""

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


def may_unshare():
    return subprocess.run(["unshare", "--uts", "--mount", "hostname", "x"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


@unittest.skipUnless(may_unshare(), "mount namespaces are not allowed here")
class SeveralMachines(runs.Runs):
    """Machines that differ in their names, and in their memory where that is given: those of
    ranks that share a network."""

    jobs = 0

    def start(self, rank, host, memory, environment, options):
        script = f"hostname {host}"
        if memory:
            script += f" && mount --bind {self.folder}/{host} /proc/meminfo"
            (self.folder / host).write_text(f"MemTotal: {memory} kB\nMemAvailable: {memory} kB\n")
        return subprocess.Popen(
            ["unshare", "--uts", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh",
             *self.command(f"--run-dir={self.folder}/run{self.jobs}", "--iterations=2", *options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.folder, env={**environment, "RANK": str(rank)})

    def train(self, machines, *options):
        """What the ranks say, each on its (host, kilobytes of memory or None), and their codes."""
        common = dict(os.environ, WORLD_SIZE=str(len(machines)), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(runs.free_port()))
        self.jobs += 1
        jobs = [self.start(rank, *machine, common, options)
                for rank, machine in enumerate(machines)]
        said = [job.communicate(timeout=120)[0] for job in jobs]
        return "\n".join(said), [job.returncode for job in jobs]

    def racks(self, hosts, racks):
        return self.train([(host, None) for host in hosts], f"--set=transport.racks={racks}", "-v")

    def test_racks(self):
        """Numbers of machines, whatever their numbers of ranks, and names of hosts."""
        for hosts, racks, domains in (
                (("a", "b", "c"), "2 1", "[0-1] [2]"), (("a", "a", "b", "c"), "1, 2", "[0-1] [2-3]"),
                (("a", "b", "a", "c"), "1 2", "[0 2] [1 3]"), (("aa", "a", "ab"), "a / a?", "[0 2] [1]")):
            with self.subTest(hosts=hosts, racks=racks):
                said, codes = self.racks(hosts, racks)
                self.assertEqual(codes, [0] * len(hosts), said)
                self.assertIn(f"    rack           {domains}\n", said)

    def test_wrong_racks(self):
        for racks, says in (("1", "add up to the 2"), ("1 1 1", "add up to the 2"),
                            ("2 0", "must be 1 or more"), ("0 2", "must be 1 or more"),
                            ("3", "add up to the 2"), ("a / c", "host b of rank 1 is in none"),
                            ("b", "host a of rank 0 is in none")):
            with self.subTest(racks=racks):
                said, codes = self.racks(("a", "b"), racks)
                self.assertEqual(codes, [2, 2], said)
                self.assertIn(f"[transport] racks = {racks}: ", said)
                self.assertIn(says, said)

    def test_memory_of_each(self):
        """The machine that has too little is named, whichever it is, and only that one counts."""
        enough, little = 1 << 23, 1 << 13
        for small in range(3):
            with self.subTest(small=small):
                said, codes = self.train([(f"m{rank}", little if rank == small else enough)
                                          for rank in range(3)])
                self.assertEqual(codes, [2, 2, 2], said)
                self.assertRegex(said, rf"training would need \d+ MB of memory, but m{small} has 8 MB")
        said, codes = self.train([("m0", enough), ("m1", enough)])
        self.assertEqual(codes, [0, 0], said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
