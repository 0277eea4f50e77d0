#!/usr/bin/env python3
"""Kills random ranks of random jobs and checks how the jobs end.

    kills.py COUNT TRANSPORT [--stop] [--device NAME] [--within SECONDS] [--seed N]
             [--verbose]

Every job trains a small net for ever, with 2 to 4 ranks, forked (--ranks) or launched
externally with RANK, WORLD_SIZE and so on. At a random moment, while it starts or while
it trains, a random rank gets SIGKILL (with --stop SIGSTOP, and [parallel] hang_timeout = 2).
Within 2 s every process must have ended with exit code 5, after a report that names the
rank, its host, its pid and the signal; and nothing may be left behind: no process, nothing
in /dev/shm, no open port.

DLCORE_BIN is the command. Exit code 0 if all went well.
"""

import argparse
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

NET = """\
[net]
name = kills
[data]
source = synthetic
samples = 4096
shape = 1,16,16
classes = 10
batch = 8
[solver]
type = sgd
learning_rate = 0.001
[train]
iterations = 1000000000
checkpoint_last = no
checkpoint_minutes = 0
threads = 1
[conv1]
type = convolution
num_output = 16
kernel_size = 5
[relu1]
type = relu
[ip1]
type = inner_product
num_output = 256
[ip2]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""

HANG_TIMEOUT = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    """Whether any process listens at this port of this machine."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def marked(mark):
    """The processes of a job, which have its mark in their environment."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
    return found


def children(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def is_rank(pid):
    """Whether it is a rank: children that inspect plugins have no control thread."""
    try:
        return any((thread / "comm").read_text().strip() == "dlc-control"
                   for thread in pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


class Job:
    def __init__(self, args, folder, number, ranks, external):
        self.ranks, self.external = ranks, external
        self.port = free_port()
        self.mark = f"DLCORE_KILLS={os.getpid()}-{number}-"
        self.shm = set(os.listdir("/dev/shm"))
        self.processes, self.logs = [], []
        command = [os.environ["DLCORE_BIN"], "train", str(folder / "net.ini"),
                   f"--transport={args.transport}", "--run-dir", str(folder),
                   f"--set=train.device={args.device}"]
        if args.stop:
            command += ["--set", f"parallel.hang_timeout={HANG_TIMEOUT}"]
        if not external:
            command.append(f"--ranks={ranks}")
        for rank in range(ranks if external else 1):
            environment = dict(os.environ)
            environment["DLCORE_KILLS"] = self.mark.split("=")[1]
            if external:
                environment.update(RANK=str(rank), WORLD_SIZE=str(ranks),
                                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port))
            log = open(folder / f"log{rank}", "w+b")
            self.logs.append(log)
            self.processes.append(subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log))

    def text(self, rank=0):
        self.logs[rank].seek(0)
        return self.logs[rank].read().decode(errors="replace")

    def rank_pids(self):
        return [pid for p in self.processes for pid in children(p.pid) if is_rank(pid)]

    def wait_until_it_trains(self):
        until = time.monotonic() + 60
        while "training for" not in self.text():
            if time.monotonic() > until or self.processes[0].poll() is not None:
                raise RuntimeError("the job does not begin to train:\n" + self.text())
            time.sleep(0.01)

    def wait_for_ranks(self):
        until = time.monotonic() + 60
        while len(self.rank_pids()) < self.ranks:
            if time.monotonic() > until:
                raise RuntimeError("the job does not start its ranks:\n" + self.text())
            time.sleep(0.005)

    def wait(self, seconds):
        until = time.monotonic() + seconds
        for process in self.processes:
            process.wait(max(0.01, until - time.monotonic()))

    def close(self):
        for pid in marked(self.mark):
            os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        for log in self.logs:
            log.close()


def report_of(job, pid, stopped):
    """A pattern that the report of rank 0's process must contain."""
    host = re.escape(socket.gethostname())
    if stopped:
        return rf"rank \d+ \(host {host}, pid {pid}\) hangs, stopped by a signal"
    return rf"rank \d+ \(host {host}, pid {pid}\) was killed by signal 9 \(Killed\)"


def in_use():
    """The files in /dev/shm that any process, perhaps of another job, has mapped."""
    found = set()
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                maps = (folder / "maps").read_text(errors="replace")
            except OSError:
                continue
            found.update(re.findall(r"/dev/shm/(\S+)", maps))
    return found


def left_over(job):
    # A process that is killed with its parent takes a moment to end.
    for wait in (0, 0.05, 0.1, 0.2, 0.4, 0.8):
        time.sleep(wait)
        left = [f"process {pid}" for pid in marked(job.mark)]
        new = set(os.listdir("/dev/shm")) - job.shm
        if new:
            left += [f"/dev/shm/{name}" for name in sorted(new - in_use())]
        if listens(job.port):
            left.append(f"port {job.port}")
        if not left:
            break
    return left


def one(args, folder, number, chance):
    ranks, external = chance.randint(2, 4), chance.random() < 0.5
    early = not args.stop and chance.random() < 0.25
    job = Job(args, folder, number, ranks, external)
    try:
        job.wait_for_ranks()
        if not early:
            job.wait_until_it_trains()
        time.sleep(chance.random() * 0.3)
        pid = chance.choice(job.rank_pids())
        within = args.within + (HANG_TIMEOUT + 1 if args.stop else 0)
        start = time.monotonic()
        os.kill(pid, signal.SIGSTOP if args.stop else signal.SIGKILL)
        try:
            job.wait(within)
        except subprocess.TimeoutExpired:
            return f"not all had ended after {within} s:\n{job.text()}"
        seconds = time.monotonic() - start
        codes = [process.returncode for process in job.processes]
        if codes != [5] * len(codes):
            return f"exit codes {codes}:\n{job.text()}"
        if not re.search(report_of(job, pid, args.stop), job.text()):
            return f"no report of pid {pid}:\n{job.text()}"
        left = left_over(job)
        if left:
            return "left over: " + ", ".join(left)
        if args.verbose:
            how = "external" if external else "local"
            print(f"{number}: {ranks} ranks, {how}, pid {pid}: {seconds:.2f} s", flush=True)
        one.slowest = max(one.slowest, seconds)
        return None
    finally:
        job.close()


one.slowest = 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("transport")
    parser.add_argument("--stop", action="store_true", help="SIGSTOP, not SIGKILL")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--within", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "net.ini").write_text(NET)
        for number in range(args.count):
            wrong = one(args, folder, number, chance)
            if wrong:
                failed += 1
                print(f"{number}: {wrong}", file=sys.stderr, flush=True)
    signal_name = "SIGSTOP" if args.stop else "SIGKILL"
    print(f"{args.transport}: {args.count} times {signal_name} (seed {args.seed}): "
          f"{args.count - failed} right, the slowest in {one.slowest:.2f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
