#!/usr/bin/env python3
"""Compares training jobs that exist at the same time but run alternately (SIGSTOP and
SIGCONT), so that what slows the machine for minutes slows all of them equally.

    bench/in_turns.py NET BATCH TURNS SECONDS NAME=MODE[,dlcore=PATH][,batch=N][,KEY=VALUE]...

    bench/in_turns.py caffenet 32 12 5 now=weak thrifty=weak,transport.shard_optimizer=no apart=apart

Modes are those of scaling.py: weak, strong, one, and apart (two jobs of one rank each,
without an exchange; also reports how much longer the slower of two simultaneous steps takes);
and linked, which is weak on two emulated machines (tests/machines, as root) with a link of
rate=1gbit. Samples are synthetic, a rank has one thread. Only steps within a turn count.
"""
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import scaling
import side_by_side
from side_by_side import DLCORE, ROOT

QUIET = ["solver.learning_rate=0.000001", "train.checkpoint_last=no", "train.checkpoint_minutes=0", "train.display=1", "parallel.hang_timeout=100000"]
MACHINES = ["env", "UCX_TLS=tcp,self", str(ROOT / "tests/machines/machines.sh"), "-n2", "-r1", "-b"]
WARM = 4  # steps


class Job:
    """A training job whose processes run only in its turns. Of `commands` each writes a log, and
    all images of a step are `images`; `machines`: they emulate machines."""

    def __init__(self, name, commands, logs, images=0, machines=False, environment=None):
        self.name, self.logs, self.images, self.machines = name, logs, images, machines
        self.turns = []
        self.children = []
        for command, log in zip(commands, logs):
            with open(f"{log}.err", "w") as errors:
                self.children.append(subprocess.Popen(
                    [*map(str, command), "--log-file", str(log)], stdout=subprocess.DEVNULL, stderr=errors,
                    start_new_session=True, env={**os.environ, **(environment or {})}))

    @staticmethod
    def times(log):
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line)["time"] for line in lines if '"event":"train"' in line]

    def check(self):
        if any(child.poll() is not None for child in self.children):
            raise RuntimeError(f"{self.name}: dlcore ended: " + pathlib.Path(f"{self.logs[0]}.err").read_text()[-600:])

    def is_warm(self, log):
        return len(self.times(log)) >= WARM

    def wait_until_warm(self):
        while not all(map(self.is_warm, self.logs)):
            self.check()
            time.sleep(0.2)

    def tell(self, what):
        for child in self.children:
            members = subprocess.run(["pgrep", "-s", str(child.pid)], capture_output=True, text=True, check=False)
            for process in members.stdout.split():
                try:
                    os.kill(int(process), what)
                except ProcessLookupError:
                    pass

    def end(self):
        if self.machines:  # they have more to leave behind than processes
            self.children[0].terminate()
            self.tell(signal.SIGCONT)
            self.children[0].wait()
        self.tell(signal.SIGKILL)

    def turn(self, seconds):
        began = time.time()
        self.tell(signal.SIGCONT)
        time.sleep(seconds)
        self.tell(signal.SIGSTOP)
        self.turns.append((began, time.time()))

    def steps(self, log):
        """The throughput in each turn."""
        times = self.times(log)
        pairs = list(zip(times, times[1:]))
        return [[b - a for a, b in pairs if begin <= a and b <= end] for begin, end in self.turns]

    def report(self):
        turns = [self.steps(log) for log in self.logs]
        every = [step for log in turns for turn in log for step in turn]
        if not every:
            return f"{self.name}: no step is as short as a turn"
        text = (f"{self.name}: {self.images / statistics.mean(every):.1f} images/s by the mean of {len(every)} steps, "
                f"{self.images / statistics.median(every):.1f} by the median")
        if len(turns) == 2:
            both = [pair for one, other in zip(*turns) for pair in zip(one, other)]
            longer = sum(map(max, both)) / (sum(map(sum, both)) / 2) - 1
            text += f"; the slower of two steps takes {100 * longer:.1f} % longer"
        return text


def job_of(folder, ini, batch, cores, spec):
    """The job that NAME=MODE,... on the command line asks for."""
    name, words = spec.split("=", 1)
    mode, *more = words.split(",")
    said = dict(word.split("=", 1) for word in more)
    dlcore, batch = said.pop("dlcore", DLCORE), int(said.pop("batch", batch))
    one, other = (",".join(map(str, core)) for core in cores[:2])
    both = f"{one},{other}"
    ranks, where = {"weak": (2, [both]), "strong": (2, [both]), "linked": (2, [both]), "one": (1, [one]),
                    "apart": (1, [one, other])}[mode]
    machines = mode == "linked"
    start = [*MACHINES, said.pop("rate", "1gbit"), "--"] if machines else []
    which = "--transport=ucx" if machines else f"--ranks={ranks}"
    settings = [*QUIET, f"data.batch={batch}", f"parallel.scaling={'strong' if mode == 'strong' else 'weak'}",
                *(f"{key}={value}" for key, value in said.items())]
    logs = [folder / f"{name}{i}" for i in range(len(where))]
    commands = [["taskset", "-c", place, *start, dlcore, "train", ini, which, "--iterations=1000000", "--threads=1",
                 *(word for text in settings for word in ("--set", text))] for place in where]
    return Job(name, commands, logs, batch * (1 if mode in ("strong", "one") else 2), machines)


def main():
    if len(sys.argv) < 6:
        raise SystemExit(__doc__)
    net, batch, turns, seconds, *specs = sys.argv[1:]
    jobs, cores = [], scaling.cores_apart()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        side_by_side.Dlcore(folder, ROOT / "models", [])  # writes the nets, made synthetic
        try:
            for spec in specs:
                jobs.append(job_of(folder, folder / f"{net}.ini", batch, cores, spec))
                jobs[-1].wait_until_warm()
                jobs[-1].tell(signal.SIGSTOP)
            for turn in range(int(turns)):
                for job in jobs if turn % 2 == 0 else jobs[::-1]:
                    job.turn(float(seconds))
            for job in jobs:
                print(job.report())
        except RuntimeError as error:
            raise SystemExit(error) from error
        finally:
            for job in jobs:
                job.end()


if __name__ == "__main__":
    main()
