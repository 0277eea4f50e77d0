#!/usr/bin/env python3
"""The cost of the exchange: two ranks of one thread each, compared with the same two without
any exchange, and with PyTorch's DistributedDataParallel over gloo.

    bench/scaling.py
    bench/scaling.py --nets lenet --rounds 1 --seconds 2
    bench/scaling.py --write docs/results/comm.md

Weak scaling: every rank has the net's batch. "No exchange" are two jobs of one rank,
each on its own core, at the same time. Strong scaling: the batch is split over both
ranks; ideal is twice the throughput of one rank alone on the machine. Contestants
alternate within a round; medians over the rounds are compared. Each run is a line of
build/bench/scaling.jsonl. Environment variables are those of side_by_side.py.
"""
import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import report
import side_by_side
from side_by_side import DLCORE, PYTHON, ROOT, UNWANTED, say

RUNS = ROOT / "build/bench/scaling.jsonl"
BATCH = {"resnet50": 16, "caffenet": 32, "lenet": 64}
MODES = {"weak": "two ranks", "apart": "no exchange", "strong": "two ranks, batch split", "one": "one rank"}


class Many:
    """Runs commands at the same time, each on its own CPUs, and collects their standard output."""

    def __init__(self, commands, environment, cores):
        clean = {key: value for key, value in os.environ.items() if key not in UNWANTED}
        self.children = []
        for command, core in zip(commands, cores):
            out, errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
            bind = ["taskset", "-c", ",".join(map(str, core))]
            child = subprocess.Popen([*bind, *command], stdout=out, stderr=errors, cwd=ROOT,
                                     env={**clean, **environment})
            self.children.append((child, out, errors))

    def outputs(self):
        failed = None
        for child, _, errors in self.children:
            if child.wait():
                errors.seek(0)
                failed = failed or errors.read()[-600:].strip() or f"exited with {child.returncode}"
        if failed:
            raise RuntimeError(failed)
        for _, out, _ in self.children:
            out.seek(0)
        return [out.read() for _, out, _ in self.children]


class Dlcore:
    def __init__(self, folder, args):
        self.folder, self.args = folder, args
        self.inner = side_by_side.Dlcore(folder, args.models, [])
        self.guess = {}  # images/s of one rank

    def command(self, net, batch, ranks, iterations, log, more=()):
        display = max(1, iterations // 24)
        log.unlink(missing_ok=True)
        more = [word for text in (*self.args.set, *more) for word in ("--set", text)]
        return [DLCORE, "train", str(self.folder / f"{net}.ini"), f"--ranks={ranks}", f"--iterations={iterations}",
                "--set", f"data.batch={batch}", "--set", "train.threads=1", "--set", "solver.learning_rate=0.00001",
                "--set", "train.checkpoint_last=no", "--set", "train.checkpoint_minutes=0", "--set", f"train.display={display}", "--log-file", str(log),
                "--json", *more]

    def iterations(self, net, batch, cores):
        if net not in self.guess:
            log = self.folder / "guess"
            Many([self.command(net, batch, 1, 8, log)], {}, cores[:1]).outputs()
            self.guess[net] = self.inner.speed(log, batch)
        return max(12, round(1.25 * self.args.seconds * self.guess[net] / batch))

    def measure(self, net, batch, mode, cores):
        """Images/s of all ranks."""
        iterations = self.iterations(net, batch, cores)
        log = [self.folder / "log0", self.folder / "log1"]
        both = [core for one in cores[:2] for core in one]
        if mode == "weak":
            Many([self.command(net, batch, 2, iterations, log[0], ["parallel.scaling=weak"])], {}, [both]).outputs()
            return self.inner.speed(log[0], 2 * batch)
        if mode == "strong":
            command = self.command(net, batch, 2, 2 * iterations, log[0], ["parallel.scaling=strong"])
            Many([command], {}, [both]).outputs()
            return self.inner.speed(log[0], batch)
        count = 2 if mode == "apart" else 1
        Many([self.command(net, batch, 1, iterations, log[i]) for i in range(count)], {}, cores).outputs()
        return sum(self.inner.speed(log[i], batch) for i in range(count))


class Torch:
    """Tuned as in side_by_side.py."""

    def __init__(self, folder, args):
        self.folder, self.args = folder, args
        self.inner = side_by_side.Torch(True)

    def measure(self, net, batch, mode, cores):
        environment = {"OMP_NUM_THREADS": "1", "LD_PRELOAD": self.inner.jemalloc, "GLOO_SOCKET_IFNAME": "lo",
                       "MALLOC_CONF": "background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1"}
        if self.inner.openblas:
            environment["LD_LIBRARY_PATH"] = self.inner.openblas
        ranks = 1 if mode == "one" else 2
        rank_batch = batch // 2 if mode == "strong" else batch
        commands = []
        with tempfile.TemporaryDirectory() as name:
            for rank in range(ranks):
                command = [PYTHON, "bench/torch_train.py", "--net", net, "--batch", str(rank_batch), "--threads", "1",
                           "--seconds", str(self.args.seconds), "--tuned"]
                if mode in ("weak", "strong"):
                    command += ["--ddp", f"{name}/rendezvous", "--rank", str(rank), "--ranks", "2"]
                commands.append(command)
            outputs = Many(commands, environment, cores).outputs()
        return sum(json.loads(out.splitlines()[-1])["images_per_s"] for out in outputs)


def cores_apart():
    """The CPUs of this process, one per core, so that two ranks never rank_batch a core."""
    cores = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings = path.read_text().strip() if path.exists() else str(cpu)
        cores.setdefault(siblings, [cpu])
    if len(cores) < 2:
        raise SystemExit("two ranks of one thread each need two cores")
    return list(cores.values())


def run_all(args, contestants, note):
    cores, lost = cores_apart(), set()
    for number in range(1, args.rounds + 1):
        for net in args.nets:
            for mode in args.modes:
                for who, contestant in contestants.items():
                    if (who, net, mode) in lost:
                        continue
                    batch, load = args.batch or BATCH[net], os.getloadavg()[0]
                    try:
                        speed = contestant.measure(net, batch, mode, cores)
                    except (RuntimeError, OSError, ValueError) as error:
                        say(f"{who} is left out of {net}, {MODES[mode]}: {error}")
                        lost.add((who, net, mode))
                        continue
                    note(dict(net=net, batch=batch, mode=mode, who=who, round=number, images_per_s=speed, load=load))
                    say(f"round {number}/{args.rounds} {net} b{batch} {MODES[mode]}, {who}: {speed:.2f} images/s")


# ---- Report -------------------------------------------------------------------


def table(jobs):
    rows = []
    for (net, batch, who), modes in jobs.items():
        found = {mode: statistics.median(values) for mode, values in modes.items()}
        row = [f"{net}, b{batch}", who]
        row += [f"{report.number(found[mode])} ({report.spread(modes[mode])})" if mode in found else "" for mode in MODES]
        row.append(f"{1 - found['weak'] / found['apart']:.1%}" if {"weak", "apart"} <= set(found) else "")
        row.append(f"{found['strong'] / found['one'] / 2:.1%}" if {"strong", "one"} <= set(found) else "")
        rows.append(row)
    head = ["images/s", "", *MODES.values(), "cost of exchange", "strong scaling efficiency"]
    return report.table(head, rows)


def make(command):
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()]
    jobs = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in runs:
        jobs[line["net"], line["batch"], line["who"]][line["mode"]].append(line["images_per_s"])
    loads, rounds = [line["load"] for line in runs], max((line["round"] for line in runs), default=0)
    return (f"    {command.strip()}\n\n{report.today()}, {report.cpu_name()}, {rounds} round{'s' * (rounds != 1)}, "
            f"medians (range); {report.output_of(DLCORE, '--version')}, PyTorch "
            f"{report.output_of('dpkg-query', '-W', '-f', '${Version}', 'python3-torch')}, tuned, with "
            f"DistributedDataParallel over gloo. The machine's load was {min(loads, default=0):.1f} to "
            f"{max(loads, default=0):.1f}.\n\n{table(jobs)}\n")


def read_options():
    def words(text):
        return text.replace(",", " ").split()

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=words, default=list(BATCH), help=", ".join(BATCH))
    parser.add_argument("--batch", type=int, help="batch size, instead of each net's own")
    parser.add_argument("--modes", type=words, default=list(MODES), help=", ".join(MODES))
    parser.add_argument("--who", type=words, default=["dlcore", "PyTorch"], help="dlcore, PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="duration of each run")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "models", help="folder of the net.ini files")
    parser.add_argument("--set", action="append", default=[], help="a setting for dlcore, as in `dlcore train --set`")
    parser.add_argument("--keep", action="store_true", help="add to the runs of earlier calls")
    parser.add_argument("--write", type=pathlib.Path, help="page into which the report is put")
    args = parser.parse_args()
    for given, known in ((args.nets, BATCH), (args.modes, MODES), (args.who, ("dlcore", "PyTorch"))):
        for word in given:
            if word not in known:
                parser.error(f"{word} is not one of {', '.join(known)}")
    return args


def main():
    args = read_options()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        contestants = {"dlcore": Dlcore, "PyTorch": Torch}
        made = {who: contestants[who](folder, args) for who in args.who}
        RUNS.parent.mkdir(parents=True, exist_ok=True)
        if not args.keep:
            RUNS.unlink(missing_ok=True)
        with RUNS.open("a") as file:
            run_all(args, made, lambda result: print(json.dumps(result), file=file, flush=True))
    text = make("bench/scaling.py " + " ".join(sys.argv[1:]))
    print(text)
    if args.write:
        report.put(args.write, text, "bench/scaling.py")


if __name__ == "__main__":
    main()
