#!/usr/bin/env python3
"""Jobs over several machines, which machines.sh emulates: the interconnect that is chosen, a
link that is cut, a rank that is stopped or killed, and that the script leaves nothing behind.
KILLS is how many ranks are killed, one after the other (2), and WITHIN in how many seconds
the job must have ended then (10: other tests run beside this one)."""

import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests" / "faults"))
sys.dont_write_bytecode = True
import kills  # noqa: E402 (its net, and how it finds what is left of a job)

BIN = os.environ["DLCORE_BIN"]
MACHINES = SOURCE / "tests" / "machines" / "machines.sh"
HANG_TIMEOUT = 3
KILLS = int(os.environ.get("KILLS", "2"))
WITHIN = float(os.environ.get("WITHIN", "10"))
TIMEOUT = 60  # seconds; generous, since the machine may be busy


def cannot_run():
    """Why network namespaces cannot be used here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"dlm{os.getpid()}-probe"
    try:
        for arguments in (f"netns add {name}",
                      f"-n {name} link add port0 type veth peer name port1",
                      f"-n {name} link add br0 type bridge"):
            done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True)
            if done.returncode != 0:
                return f"no network namespaces: ip {arguments}: {done.stderr.strip()}"
    finally:
        subprocess.run(f"ip netns del {name} 2>/dev/null", shell=True, check=False)
    return None


class Job:
    """Runs machines.sh with a log, and finds what it leaves behind."""

    def __init__(self, folder, options, arguments):
        self.mark = f"DLCORE_KILLS={os.getpid()}-{time.monotonic_ns()}-"
        self.shm = set(os.listdir("/dev/shm"))
        self.log = folder / "log"
        # Processes here could share memory although their networks are apart.
        environment = dict(os.environ, DLCORE_KILLS=self.mark.split("=")[1],
                           UCX_TLS="tcp,self", LOG=str(self.log))
        self.out = open(folder / "out", "w+", encoding="utf-8")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [str(MACHINES), *options, "--", BIN, "train", *arguments], env=environment,
                stdin=subprocess.DEVNULL, stdout=self.out, stderr=log)

    def text(self):
        return self.log.read_text(errors="replace")

    def wait(self):
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError("the job does not end:\n" + self.text()) from None

    def wait_until_it_trains(self):
        until = time.monotonic() + TIMEOUT
        while "training for" not in self.text():
            if time.monotonic() > until or self.process.poll() is not None:
                raise AssertionError("the job does not start to train:\n" + self.text())
            time.sleep(0.05)

    def ranks(self):
        """The processes that train: children of those that the script started."""
        return sorted(pid for parent in kills.children(self.process.pid)
                      for pid in kills.children(parent))

    def left_over(self):
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
        left = re.findall(rf"^dlm{self.process.pid}-\S+", names.stdout, re.MULTILINE)
        for wait in (0, 0.1, 0.4, 1.5):  # the killed take a moment to die
            time.sleep(wait)
            pids = [f"process {pid}" for pid in kills.marked(self.mark)]
            new = set(os.listdir("/dev/shm")) - self.shm
            files = [f"/dev/shm/{name}" for name in new - kills.in_use()] if new else []
            if not pids + files:
                break
        return left + pids + files

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.out.close()


class Machines(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.net = self.folder / "net.ini"
        self.net.write_text(kills.NET)

    def start(self, *options, arguments=()):
        job = Job(self.folder, options,
                  [str(self.net), f"--run-dir={self.folder}", *arguments])
        self.addCleanup(job.close)
        return job

    def start_over_ucx(self, *options):
        return self.start("-n", "2", "-r", "1", *options, arguments=(
            "--transport=ucx", "--set", f"parallel.hang_timeout={HANG_TIMEOUT}"))

    def weights(self):
        checkpoint = next(self.folder.glob("*.safetensors"))
        data = checkpoint.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")  # behind the header
        digest = hashlib.sha256(data[begin:]).hexdigest()
        checkpoint.unlink()
        return digest

    def weights_of_one_machine(self, ranks, arguments):
        subprocess.run([BIN, "train", str(self.net), f"--run-dir={self.folder}",
                        f"--ranks={ranks}", *arguments], check=True, capture_output=True)
        return self.weights()

    def test_auto_joins_two_machines(self):
        """One transport within a machine, one between machines, and the weights of one machine."""
        short = ("--iterations=30", "--set=train.checkpoint_last=yes", "--json")
        job = self.start("-n", "2", "-r", "2", arguments=short)
        self.assertEqual(job.wait(), 0, job.text())
        job.out.seek(0)
        report = json.load(job.out)
        self.assertEqual(report["transport"], "p2p-tree+ucx")
        self.assertEqual(report["ranks"], 4)
        self.assertEqual(job.left_over(), [])
        weights = self.weights()
        self.assertEqual(weights, self.weights_of_one_machine(4, short))

    def test_one_transport_joins_all_ranks(self):
        """Neighbors of one machine and of two, whose messages the probe times or does not."""
        job = self.start("-n", "2", "-r", "2", arguments=("--iterations=2", "--transport=ucx"))
        self.assertEqual(job.wait(), 0, job.text())
        self.assertNotIn("not used", job.text())
        self.assertEqual(job.left_over(), [])

    def racks_are_measured(self, machines, a_rack):
        """Runs a job in two racks with a slow link between, which has the weights of a job on one
        machine; returns what it says."""
        short = ("--iterations=2", "--set=train.checkpoint_last=yes")
        # An iteration takes 4 s in which hardly anything computes. The link between the racks is so slow that what a busy machine adds to a message
        # inside of one, some 10 ms, is far less than what it takes there.
        for _ in range(3):
            job = self.start("-n", f"{machines}", "-r", "1", "-b", "1gbit", "-k", f"{a_rack}:15mbit",
                             arguments=short)
            self.assertEqual(job.wait(), 0, job.text())
            self.assertEqual(job.left_over(), [])
            weights = self.weights()
            if "racks, by measurement: " in job.text():
                break
        self.assertEqual(weights, self.weights_of_one_machine(machines, short))
        return job.text()

    def test_racks_are_measured(self):
        """The link between two pairs of machines gets a level of its own."""
        self.assertRegex(self.racks_are_measured(4, 2), "transport: ucx inside the racks: ")

    def test_measured_racks_keep_the_order(self):
        """Sums in racks of three would have another order."""
        said = self.racks_are_measured(6, 3)
        self.assertRegex(said, "racks, by measurement: .*; not used, since ")
        self.assertNotIn("inside the racks", said)

    def test_equal_adapters_are_used_at_once(self):
        """Half of the bytes go over each of two adapters, and arrive."""
        bench = f"{BIN} bench comm -v --min=8M --max=8M --iterations=1 --warm-up=1"
        done = subprocess.run(
            [str(MACHINES), "-n", "2", "-r", "1", "-a", "2", "--", "sh", "-c",
             f"{bench} && cat /sys/class/net/eth?/statistics/tx_bytes"],
            env=dict(os.environ, UCX_TLS="tcp,self"), capture_output=True, text=True,
            timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("UCX uses eth0, the first of equal adapters", done.stderr)
        sent = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
        self.assertEqual(len(sent), 4, done.stdout)  # of both machines
        self.assertGreater(min(sent), 0.3 * max(sent), done.stdout)

    def test_bridges_of_containers_are_left_out(self):
        """docker0 has the same address on every machine, or another one in the same network or not."""
        for addresses in ("172.17.0.1/16", "172.17.0.1/16,172.17.0.2/16", "172.17.0.1/16,172.18.0.1/16"):
            with self.subTest(addresses=addresses):
                job = self.start("-n", "2", "-r", "1", "-d", addresses,
                                 arguments=("--iterations=2", "--transport=ucx", "-v"))
                self.assertEqual(job.wait(), 0, job.text())
                self.assertIn("UCX uses eth0, which may reach the other machines", job.text())
                job.close()

    def test_a_machine_that_is_not_reached_is_named(self):
        """An adapter that leads nowhere: whoever waits for an answer says so, and ends the other rank, too."""
        job = self.start("-n", "2", "-r", "1", "-d", "172.17.0.1/16,172.18.0.1/16", arguments=(
            "--transport=ucx", "--set=transport.net_devices=docker0"))
        self.assertEqual(job.wait(), 5, job.text())
        self.assertRegex(job.text(), r"rank \d \(host \S+, pid \d+\): (rank \d on \S+ does not answer|UCX cannot reach"
                                     r" rank \d).*\[transport\] net_devices")
        self.assertEqual(job.left_over(), [])

    def test_lost_messages_are_named(self):
        """Packets from machine 2 to machine 3 are dropped; the hub, on machine 1, hears from all."""
        job = self.start("-n", "3", "-r", "1", "-c", """
            until grep -q 'training for' "$LOG"; do sleep 0.1; done
            ip -n $MACHINE_2 neigh replace 10.77.0.3 lladdr 02:00:00:00:00:01 dev eth0 nud permanent""",
            arguments=("--transport=ucx", "--set", f"parallel.hang_timeout={HANG_TIMEOUT}"))
        self.assertEqual(job.wait(), 5, job.text())
        self.assertRegex(job.text(), r"all wait for each other; rank \d \(host \S+, pid \d+\) was the first, during "
                                     r".*exchange of bucket \d.* over ucx with rank \d")
        self.assertRegex(job.text(), r"\n  rank 2 \(host .* over ucx with rank 1")
        self.assertNotIn("has computed", job.text())
        self.assertEqual(job.left_over(), [])

    def test_a_slow_link_is_no_hang(self):
        """Reductions that take longer than the hang timeout together, without a word from those who wait."""
        done = subprocess.run(
            [str(MACHINES), "-n", "2", "-r", "1", "-b", "8mbit", "--", BIN, "bench", "comm", "--min=512K",
             "--max=512K", "--iterations=8", "--warm-up=1", "--no-check", "--transport=ucx",
             f"--set=parallel.hang_timeout={HANG_TIMEOUT}"],
            env=dict(os.environ, UCX_TLS="tcp,self"), capture_output=True, text=True,
            timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        one = float(re.search(r"float +sum +-1 +(\S+)", done.stdout)[1]) / 1e6
        self.assertGreater(8 * one, HANG_TIMEOUT)

    def test_a_link_is_cut(self):
        job = self.start_over_ucx("-c", """
            until grep -q 'training for' "$LOG"; do sleep 0.1; done
            sleep 0.5; ip -n $MACHINE_2 link set eth0 down""")
        self.assertEqual(job.wait(), 5, job.text())
        text = job.text()
        layer = r"(forward|backward|update|exchange)"
        self.assertRegex(text, rf"lost rank 1 \(host \S+, pid \d+\) during {layer}.*: "
                               r"nothing was heard from \S+ for \d")
        self.assertRegex(text, r"\n  rank 0 \(host \S+, pid \d+\) is waiting for rank "
                               rf"1, last progress \d+\.\d s ago during {layer}")
        self.assertRegex(text, rf"rank 1 \(pid \d+\) has lost the hub during {layer}.*"
                               r"has not been heard from for \d")
        self.assertNotIn("a rank ended with", text)  # 5, both of them
        self.assertNotIn("the exchange was cancelled", text)
        self.assertEqual(job.left_over(), [])

    def test_a_rank_is_stopped(self):
        job = self.start_over_ucx()
        job.wait_until_it_trains()
        time.sleep(0.5)
        pid = job.ranks()[1]
        os.kill(pid, signal.SIGSTOP)
        self.assertEqual(job.wait(), 5, job.text())
        stopped = re.search(rf"rank (\d) \(host \S+, pid {pid}\) hangs, stopped by a "
                            rf"signal: no progress for \d.* during", job.text())
        self.assertTrue(stopped, job.text())
        self.assertRegex(job.text(), rf"\n  rank {1 - int(stopped[1])} \(host \S+, pid "
                                     rf"\d+\) is waiting for rank {stopped[1]}, ")
        self.assertEqual(job.left_over(), [])

    def test_a_rank_of_three_levels_is_killed(self):
        """Two racks of two machines of two ranks: any of them, at any time."""
        slowest = 0
        for _ in range(KILLS):
            job = self.start("-n", "4", "-r", "2", arguments=("--set=transport.racks=2 2",))
            job.wait_until_it_trains()
            self.assertRegex(job.text(), "transport: ucx between the racks: ")
            time.sleep(random.random())
            pid, began = random.choice(job.ranks()), time.monotonic()
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(job.wait(), 5, job.text())
            slowest = max(slowest, time.monotonic() - began)
            self.assertRegex(job.text(), rf"rank \d \(host \S+, pid {pid}\) was killed by signal 9")
            self.assertEqual(job.left_over(), [])
            job.close()
        print(f"{KILLS} reported within {slowest:.2f} s", file=sys.stderr)
        self.assertLess(slowest, WITHIN)

    def test_nothing_is_left_when_killed(self):
        job = self.start("-n", "2", "-r", "2", "-c", "sleep 1000")
        job.wait_until_it_trains()
        self.assertGreater(len(kills.marked(job.mark)), 4)
        job.process.terminate()
        self.assertEqual(job.wait(), 143)
        self.assertEqual(job.left_over(), [])

    def test_nothing_is_left_when_killed_early(self):
        for moment in (0.02, 0.1, 0.2, 0.3):
            job = self.start("-n", "3", "-r", "1")
            time.sleep(moment)
            job.process.terminate()
            self.assertIn(job.wait(), (143, -signal.SIGTERM))
            self.assertEqual(job.left_over(), [])


if __name__ == "__main__":
    why = cannot_run()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
