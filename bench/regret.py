#!/usr/bin/env python3
"""The regret of `auto`: the time of its iterations over that of the best choice by hand, of all
transports, levels, bucket sizes and methods, in many situations.

    bench/regret.py                                          all; hours
    bench/regret.py --situations "2 nodes, 1 Gbit/s" --nets lenet --turns 3
    bench/regret.py --list
    bench/regret.py --write docs/results/regret.md
    bench/regret.py --keep --situations "" --write ...       no run: reports earlier runs

Each choice runs beside `auto`, in turns of --seconds and at least three iterations; one of them
is stopped while the other runs, so what slows the machine slows both. First the transports
are compared with the schedule that `auto` finds for them, then, with the best of them, buckets and
methods. What was best then runs --turns * 2 further turns against `auto`; only these count,
since the best of many is partly luck. Of the turns' mean steps the least are compared: other
load on the machine can only make them longer.

Where a step of `auto` takes less than 1.05 of what the slowest links need for the gradients alone,
no choice can be faster than by that: none is tried, and the ratio is reported as "at most". Of the
bytes of an all-reduce, each of d nodes or racks sends and receives 2 (d - 1) / d at least (Patarasuk
and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, section 3),
and each 1,448 of them take 66 more for the headers of Ethernet, IP and TCP.

Nodes are network namespaces (tests/machines/machines.sh), as root; their ranks share the CPUs of
this machine, so links that are faster than it measure the CPU. Each run is a line of
build/bench/regret.jsonl. Environment: DLCORE.
"""
import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import in_turns
import report
import side_by_side
from side_by_side import DLCORE, ROOT, say

RUNS = ROOT / "build/bench/regret.jsonl"
MACHINES = ROOT / "tests/machines/machines.sh"
BATCH = {"lenet": 16, "cifar10-full": 8, "caffenet": 1}  # of a rank: little to compute, much to reduce
BUCKETS = (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)  # and one of all bytes
METHODS = {"sharded": ["transport.shard_optimizer=yes"],
           "overlapped": ["transport.shard_optimizer=no", "transport.overlap_forward=yes"],
           "plain": ["transport.shard_optimizer=no", "transport.overlap_forward=no"]}
BITS_A_SECOND = {"100mbit": 1e8, "1gbit": 1e9, "2gbit": 2e9, "10gbit": 1e10}
NEAR_THE_LINK = 1.05
HEADERS = (1448 + 66) / 1448
LONG = 5  # seconds of a step
LOCAL = ("host-staged", "p2p-tree", "ucx")
BETWEEN = ("ucx", "p2p-tree+ucx", "host-staged+ucx", "ucx+ucx")


@dataclasses.dataclass
class Situation:
    ranks: int = 2
    machines: tuple = ()  # options of machines.sh; (): one node
    cores: str = ""       # that all ranks share; "": all
    settings: tuple = ()
    transports: tuple = LOCAL
    seconds_a_byte: float = 0  # that the slowest links need, at least, to reduce a byte


def nodes(nodes, ranks, rate, *more, settings=(), transports=None, cut=None):
    """Nodes with links of `rate`; `cut`: the domains and the rate between these that limit a
    reduction, if not the nodes and their links."""
    domains, between = cut or (nodes, rate)
    return Situation(nodes * ranks, ("-n", str(nodes), "-r", str(ranks), "-b", rate, *more), settings=settings,
                     transports=transports or (BETWEEN if ranks > 1 else ("ucx",)),
                     seconds_a_byte=2 * (domains - 1) / domains * 8 * HEADERS / BITS_A_SECOND[between])


RACKS = ("transport.racks=2 2",)
SITUATIONS = {
    "2 ranks": Situation(2),
    "3 ranks": Situation(3),
    "4 ranks": Situation(4),
    "2 ranks, one core": Situation(2, cores="0"),
    "2 nodes, 100 Mbit/s": nodes(2, 1, "100mbit"),
    "2 nodes, 1 Gbit/s": nodes(2, 1, "1gbit"),
    "2 nodes, 10 Gbit/s": nodes(2, 1, "10gbit"),
    "2 nodes of 2, 100 Mbit/s": nodes(2, 2, "100mbit"),
    "2 nodes of 2, 1 Gbit/s": nodes(2, 2, "1gbit"),
    "3 nodes, 1 Gbit/s": nodes(3, 1, "1gbit"),
    "3 nodes of 2, 100 Mbit/s": nodes(3, 2, "100mbit"),
    "5 nodes, 100 Mbit/s": nodes(5, 1, "100mbit"),
    "5 nodes, 1 Gbit/s": nodes(5, 1, "1gbit"),
    "racks of 2 nodes, 1 Gbit/s, 100 Mbit/s between": nodes(
        4, 1, "1gbit", "-k", "2:100mbit", settings=RACKS, transports=("ucx", "ucx+ucx+ucx"), cut=(2, "100mbit")),
    "racks of 2 nodes of 2, 10 Gbit/s, 1 Gbit/s between": nodes(
        4, 2, "10gbit", "-k", "2:1gbit", settings=RACKS,
        transports=(*BETWEEN, "p2p-tree+ucx+ucx", "host-staged+ucx+ucx"), cut=(2, "1gbit")),
    "3 nodes, 1 Gbit/s, one pair 100 Mbit/s": nodes(3, 1, "1gbit", "-s", "1:2:100mbit"),
    "2 nodes, two adapters of 1 Gbit/s": nodes(2, 1, "1gbit", "-a", "2", cut=(2, "2gbit")),
    "2 nodes of 2, two adapters of 1 Gbit/s": nodes(2, 2, "1gbit", "-a", "2", cut=(2, "2gbit")),
}


class Job(in_turns.Job):
    """A job of a situation with settings."""

    def __init__(self, folder, situation, net, name, settings):
        start = ["taskset", "-c", situation.cores or ",".join(map(str, sorted(os.sched_getaffinity(0))))]
        start += [str(MACHINES), *situation.machines, "--"] if situation.machines else []
        ranks = [] if situation.machines else [f"--ranks={situation.ranks}"]
        every = [*in_turns.QUIET, f"data.batch={BATCH[net]}", "parallel.scaling=weak", *situation.settings, *settings]
        command = [*start, DLCORE, "train", folder / f"{net}.ini", *ranks, "--iterations=1000000", "--threads=1",
                   "--overcommit", *(word for text in every for word in ("--set", text))]
        log = folder / re.sub(r"\W", "_", name)
        log.unlink(missing_ok=True)
        super().__init__(name, [command], [log], machines=bool(situation.machines),
                         environment={"UCX_TLS": "tcp,self"} if situation.machines else None)

    def start(self):
        """Waits for the first steps, two if they are long, and stops."""
        self.wait_until_warm()
        self.tell(signal.SIGSTOP)
        return self

    def is_warm(self, log):
        times = self.times(log)
        return super().is_warm(log) or (len(times) > 1 and times[-1] - times[-2] > LONG)

    def turn(self, seconds):
        """Returns the mean step of a turn of at least three steps, one if they are long, without
        the first: while the job was stopped, the link went on with what its sockets had."""
        began = time.time()
        self.tell(signal.SIGCONT)
        time.sleep(seconds)
        while len(steps := self.steps_since(began)[1:]) < 1 or (len(steps) < 3 and steps[-1] < LONG):
            self.check()
            time.sleep(0.05)
        self.tell(signal.SIGSTOP)
        return statistics.mean(steps)

    def steps_since(self, began):
        times = [moment for moment in self.times(self.logs[0]) if moment >= began]
        return [b - a for a, b in zip(times, times[1:])]

    def chosen(self):
        """What it says that it has chosen: the transport, and the schedule."""
        text = pathlib.Path(f"{self.logs[0]}.err").read_text()
        transports = re.findall(r"^transport: (\S+?):? ", text, re.MULTILINE)
        schedule = re.search(r"buckets of (\S+ MB); (.*)$", text, re.MULTILINE)
        method = {"each rank updates a shard of the weights": "sharded", "each rank updates all weights": "plain"}
        return "+".join(transports), (schedule[1] if schedule else "",
                                      method.get(schedule[2], "overlapped") if schedule else "")


def compare(auto, job, turns, seconds):
    """The ratios of the steps of auto to those of the other job, by turn, and the steps."""
    pairs = []
    for turn in range(turns):
        order = (auto, job) if turn % 2 == 0 else (job, auto)
        steps = {one.name: one.turn(seconds) for one in order}
        pairs.append((steps[auto.name], steps[job.name]))
    return pairs


def least(pairs):
    """The least steps of auto and of the other job."""
    return tuple(map(min, zip(*pairs)))


class Search:
    """Finds the best choice by hand in a situation, for a net."""

    def __init__(self, folder, args, situation, net):
        self.folder, self.args, self.situation, self.net = folder, args, situation, net
        self.auto = Job(folder, situation, net, "auto", [])
        self.tried = {}

    def close(self):
        self.auto.end()

    def run(self, name, settings, turns):
        job = Job(self.folder, self.situation, self.net, name, settings)
        try:
            pairs = compare(self.auto, job.start(), turns, self.args.seconds)
            auto, its = least(pairs)
            self.tried[name] = auto / its
            say(f"    {name}: {1e3 * its:.4g} ms, auto {1e3 * auto:.4g} ms")
            return pairs
        except RuntimeError as error:
            say(f"    {name} is left out: {error}")
            return []
        finally:
            job.end()

    def best_of(self, choices):
        """Tries the choices by name; returns the best of these and of all before."""
        for name, settings in choices.items():
            self.choices[name] = settings
            self.run(name, settings, self.args.turns)
        return max(self.tried, key=self.tried.get)

    def gradient_bytes(self):
        checked = subprocess.run([DLCORE, "check", self.folder / f"{self.net}.ini", "--json"], capture_output=True, check=True)
        return 4 * json.loads(checked.stdout)["parameters"]

    def best(self):
        self.choices = {}
        name = self.best_of({which: [f"transport.type={which}"] for which in self.situation.transports})
        transport = self.choices[name]
        whole = self.gradient_bytes()
        sizes = [size for size in BUCKETS if whole / 256 < size < whole] + [whole]
        name = self.best_of({f"{transport[0][15:]}, buckets of {size / 1e6:.2f} MB":
                             [*transport, f"transport.bucket_bytes={size}"] for size in sizes})
        bucket = self.choices[name]
        name = self.best_of({f"{name}, {method}": [*bucket, *settings] for method, settings in METHODS.items()})
        return name, self.choices[name]

    def measure(self):
        self.auto.start()
        transport, schedule = self.auto.chosen()
        say(f"    auto: {transport}, {', '.join(schedule)}")
        limit = self.situation.seconds_a_byte * self.gradient_bytes()
        auto = self.auto.turn(self.args.seconds) if limit else math.inf
        near = auto < NEAR_THE_LINK * limit
        if limit:
            say(f"    auto {1e3 * auto:.4g} ms, the link needs {1e3 * limit:.4g} ms")
        if near:
            name, its = "what the link needs", limit
        else:
            name, settings = self.best()
            auto, its = least(self.run(name, settings, 2 * self.args.turns))
        return dict(net=self.net, auto=transport, schedule=schedule, best=name, regret=auto / its, at_most=near,
                    auto_ms=1e3 * auto, best_ms=1e3 * its, tried={what: round(its, 3) for what, its in self.tried.items()},
                    load=os.getloadavg()[0], turns=self.args.turns)


def play(args, note):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        side_by_side.Dlcore(folder, ROOT / "models", [])  # writes the nets, made synthetic
        for title in args.situations:
            for net in args.nets:
                say(f"{title}, {net}")
                search = Search(folder, args, SITUATIONS[title], net)
                try:
                    note(dict(situation=title, **search.measure()))
                except (RuntimeError, ValueError) as error:
                    say(f"    is left out: {error}")
                finally:
                    search.close()


# ---- Report -------------------------------------------------------------------


def in_words(number):
    return f"{number:.4g}" if number < 1000 else f"{number:,.0f}"


def make(command):
    runs = {(line["situation"], line["net"]): line for line in map(json.loads, RUNS.read_text().splitlines())}
    rows = [[title, net, f"{line['auto']}, {', '.join(line['schedule'])}", in_words(line["auto_ms"]), line["best"],
             in_words(line["best_ms"]), f"{'at most ' * line.get('at_most', False)}{line['regret']:.2f}"]
            for title in SITUATIONS for net in BATCH if (line := runs.get((title, net)))]
    regrets = [line["regret"] for line in runs.values()]
    loads = [line["load"] for line in runs.values()]
    versions = [report.output_of(DLCORE, "--version"),
                "UCX " + report.output_of("dpkg-query", "-W", "-f", "${Version}", "libucx0")]
    return (f"    {command.strip()}\n\n{report.today()}, {report.cpu_name()}, {len(os.sched_getaffinity(0))} CPUs, "
            f"Linux {os.uname().release}; {', '.join(versions)}. The machine's load was {min(loads):.1f} to "
            f"{max(loads):.1f}, without these jobs or with. Batches of a rank: "
            + ", ".join(f"{net} {batch}" for net, batch in BATCH.items())
            + f".\n\nRegret: median {statistics.median(regrets):.2f}, worst {max(regrets):.2f}, of {len(regrets)}.\n\n"
            + report.table(["situation", "net", "auto chose", "ms", "best by hand", "ms", "regret"], rows) + "\n")


def read_options():
    def names(known):
        def parse(text):
            found = [word.strip() for word in text.split(";") if word.strip()]
            for word in found:
                if word not in known:
                    raise argparse.ArgumentTypeError(f"'{word}' is not one of: {'; '.join(known)}")
            return found
        return parse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situations", type=names(SITUATIONS), default=list(SITUATIONS), help="separated by semicolons")
    parser.add_argument("--nets", type=names(BATCH), default=list(BATCH), help="separated by semicolons")
    parser.add_argument("--turns", type=int, default=5, help="of each choice")
    parser.add_argument("--seconds", type=float, default=2, help="of a turn, at least")
    parser.add_argument("--list", action="store_true", help="list the situations")
    parser.add_argument("--keep", action="store_true", help="add to the runs of earlier calls")
    parser.add_argument("--write", type=pathlib.Path, help="page into which the report is put")
    return parser.parse_args()


def main():
    args = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the jobs
    if args.list:
        print("\n".join(SITUATIONS))
        return
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    if not args.keep:
        RUNS.unlink(missing_ok=True)
    with RUNS.open("a") as file:
        play(args, lambda result: print(json.dumps(result), file=file, flush=True))
    text = make("bench/regret.py " + subprocess.list2cmdline(sys.argv[1:]))
    print(text)
    if args.write:
        report.put(args.write, text, "bench/regret.py")


if __name__ == "__main__":
    main()
