#!/usr/bin/env python3
"""All-reduce side by side: dlcore's transports, Open MPI, gloo, and the limit of the
machine (allreduce_limit.c). In place, float32, ranks of one machine.

    bench/comm.py                                    2 and 4 ranks, 4 KiB .. 256 MiB
    bench/comm.py --ranks 2 --max 1M --rounds 1 --seconds 0.05
    bench/comm.py --write docs/results/comm.md
    bench/comm.py --keep --rounds 0 --write ...      no run: reports earlier runs

The contestants take turns within a round, each with all sizes, so that a machine that
changes within minutes changes for all of them; medians over the rounds are compared.
Every size of every run is a line of build/bench/comm.jsonl. A contestant that cannot
run is said to be left out. Environment: DLCORE, PYTHON (one that has PyTorch), MPICC.
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
import time

import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
DLCORE = os.environ.get("DLCORE", str(ROOT / "build/bin/dlcore"))
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
MPICC = os.environ.get("MPICC", "mpicc")
RUNS = ROOT / "build/bench/comm.jsonl"
TITLES = {"limit": "limit", "p2p-tree": "p2p-tree", "host-staged": "host-staged", "ucx": "ucx", "mpi": "mpi",
          "openmpi": "Open MPI", "openmpi-ucx": "Open MPI, UCX", "gloo": "gloo"}
PEERS = ("openmpi", "openmpi-ucx", "gloo")
# So that Open MPI's UCX runs on a machine without RDMA.
UCX_PML = "--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any".split()


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def run(command, patience):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment, cwd=ROOT)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not done after {patience:.0f} s") from error
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-600:] or f"ended with {done.returncode}")
    return done.stdout


def mpirun(ranks):
    bind = "core" if ranks <= len(os.sched_getaffinity(0)) else "none"
    return ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", bind]


# ---- Contestants: microseconds by size ----------------------------------------


def lines_of_json(text):
    return {row["bytes"]: row["us"] for row in map(json.loads, text.splitlines())}


class Dlcore:
    def __init__(self, transport, more=()):
        self.transport, self.more = transport, list(more)

    def measure(self, args, ranks, _):
        by_mpirun = self.transport == "mpi"
        command = [DLCORE, "bench", "comm", "--transport", self.transport, "--json", "--no-check",
                   "--min", str(args.min), "--max", str(args.max), "--factor", str(args.factor), *self.more]
        command = [*mpirun(ranks), *command] if by_mpirun else [*command, "--ranks", str(ranks)]
        return {row["bytes"]: row["us"] for row in json.loads(run(command, args.timeout))}


class OpenMpi:
    def __init__(self, folder, more=()):
        self.folder, self.more = folder, more

    def measure(self, args, ranks, sizes):
        program = self.folder / "mpi_allreduce"
        if not program.exists():
            run([MPICC, "-O3", "-march=native", "-o", str(program), "bench/comm_peers/mpi_allreduce.c"], 60)
        return lines_of_json(run([*mpirun(ranks), *self.more, str(program), str(args.seconds), *sizes], args.timeout))


class Gloo:
    def measure(self, args, ranks, sizes):
        return lines_of_json(run([PYTHON, "bench/comm_peers/gloo_allreduce.py", str(ranks), str(args.seconds), *sizes],
                                 args.timeout))


class Limit:
    """The time processes need to sum each other's memory, without anything else."""

    def __init__(self, folder):
        self.folder = folder

    def measure(self, args, ranks, sizes):
        program = self.folder / "allreduce_limit"
        if ranks > len(os.sched_getaffinity(0)):
            raise RuntimeError("its ranks spin, so each needs a core")
        if not program.exists():
            run(["cc", "-O3", "-o", str(program), "bench/allreduce_limit.c"], 60)
        rows = [line.split() for line in run([str(program), str(ranks), *sizes], args.timeout).splitlines()[1:]]
        return {int(row[0]): float(row[1]) for row in rows}


# ---- Running --------------------------------------------------------------------


def size_of(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1].upper()] if text[-1].upper() in units else int(text)


def play(args, contestants, note):
    sizes, lost = [], set()
    while not sizes or sizes[-1] * args.factor <= args.max:
        sizes.append(sizes[-1] * args.factor if sizes else args.min)
    words = [str(size) for size in sizes]
    for number in range(1, args.rounds + 1):
        for ranks in args.ranks:
            for who, contestant in contestants.items():
                if (who, ranks) in lost:
                    continue
                load = os.getloadavg()[0]
                try:
                    times = contestant.measure(args, ranks, words)
                except (RuntimeError, OSError, ValueError) as error:
                    say(f"{who} is left out with {ranks} ranks: {error}")
                    lost.add((who, ranks))
                    continue
                for size, us in times.items():
                    note(dict(who=who, ranks=ranks, round=number, bytes=size, us=us, load=load))
                say(f"round {number}/{args.rounds} {ranks} ranks, {who}: "
                    + ", ".join(f"{us:.3g}" for us in times.values()) + " us")


def read_options():
    def words(text):
        return text.replace(",", " ").split()

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in words(text)], default=[2, 4])
    parser.add_argument("--min", type=size_of, default=4 << 10)
    parser.add_argument("--max", type=size_of, default=256 << 20)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="duration per size, for peers (dlcore: 0.2)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds until a run is killed")
    parser.add_argument("--who", type=words, default=list(TITLES), help=", ".join(TITLES))
    parser.add_argument("--set", action="append", default=[], help="a setting for dlcore, as in `dlcore bench comm --set`")
    parser.add_argument("--keep", action="store_true", help="add to the runs of earlier calls")
    parser.add_argument("--write", type=pathlib.Path, help="page into which the report is put")
    args = parser.parse_args()
    for who in args.who:
        if who not in TITLES:
            parser.error(f"{who} is not one of {', '.join(TITLES)}")
    return args


def main():
    args = read_options()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        more = [word for text in args.set for word in ("--set", text)]
        contestants = {who: Dlcore(who, more) for who in ("p2p-tree", "host-staged", "ucx", "mpi")}
        contestants.update({"openmpi": OpenMpi(folder), "openmpi-ucx": OpenMpi(folder, UCX_PML), "gloo": Gloo(),
                            "limit": Limit(folder)})
        RUNS.parent.mkdir(parents=True, exist_ok=True)
        if not args.keep:
            RUNS.unlink(missing_ok=True)
        with RUNS.open("a") as file:
            play(args, {who: contestants[who] for who in TITLES if who in args.who},
                 lambda result: print(json.dumps(result), file=file, flush=True))
    text = make("bench/comm.py " + " ".join(sys.argv[1:]))
    print(text)
    if args.write:
        report.put(args.write, text, "bench/comm.py")


# ---- Report -------------------------------------------------------------------


def title_of(size):
    unit = next(i for i in (3, 2, 1, 0) if size >= 1 << 10 * i)
    return f"{size / (1 << 10 * unit):.3g} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


def us_of(values):
    value = statistics.median(values)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times_table(who, job):
    """Microseconds, and the ratios of dlcore's fastest to the limit and to the best peer."""
    rows = []
    for size in sorted(job):
        found = {name: statistics.median(values) for name, values in job[size].items()}
        peer = min((found[name] for name in PEERS if name in found), default=None)
        mpi = min((found[name] for name in PEERS[:2] if name in found), default=None)
        row = [title_of(size), *(us_of(job[size][name]) if name in found else "" for name in who)]
        for name in ("p2p-tree", "host-staged"):
            row.append(f"{mpi / found[name]:.2f}" if mpi and name in found else "")
        row.append(f"{found['limit'] / found['p2p-tree']:.0%}" if {"limit", "p2p-tree"} <= set(found) else "")
        own = min((found[name] for name in found if name not in (*PEERS, "limit")), default=None)
        row.append(f"{peer / own:.2f}" if peer and own else "")
        rows.append(row)
    head = ["us", *(TITLES[name] for name in who), "p2p-tree: times Open MPI", "host-staged: times Open MPI",
            "p2p-tree: of the limit", "best: times best peer"]
    return report.table(head, rows)


def bandwidth_table(who, ranks, job):
    rows = []
    for size in sorted(job):
        row = [title_of(size)]
        for name in who:
            if name in job[size]:
                row.append(f"{2 * (ranks - 1) / ranks * size / statistics.median(job[size][name]) / 1e3:.3g}")
            else:
                row.append("")
        rows.append(row)
    return report.table(["bus GB/s", *(TITLES[name] for name in who)], rows)


def make(command):
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()]
    jobs = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for line in runs:
        jobs[line["ranks"]][line["bytes"]][line["who"]].append(line["us"])
    loads = [line["load"] for line in runs]
    rounds = max((line["round"] for line in runs), default=0)
    versions = [report.output_of(DLCORE, "--version"), report.output_of("mpirun", "--version"),
                "UCX " + report.output_of("dpkg-query", "-W", "-f", "${Version}", "libucx0"),
                "PyTorch " + report.output_of("dpkg-query", "-W", "-f", "${Version}", "python3-torch")]
    parts = [f"    {command.strip()}\n\n{report.today()}, {report.cpu_name()}, {len(os.sched_getaffinity(0))} "
             f"CPUs, {rounds} round{'s' * (rounds != 1)}, medians; {', '.join(versions)}. The machine's load was "
             f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f}."]
    for ranks, job in sorted(jobs.items()):
        who = [name for name in TITLES if any(name in found for found in job.values())]
        parts += [f"**{ranks} ranks**: time of an all-reduce", times_table(who, job), bandwidth_table(who, ranks, job)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
