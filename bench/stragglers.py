#!/usr/bin/env python3
"""Training with one slow rank of three: the time LeNet takes to 88 % on Fashion-MNIST with
synchronous sgd, with a batch that is split by measured throughput (batch_split = auto), with
bounded staleness (ssp), which also rebalances now and then, and with bounded staleness alone
(ssp, batch_split = equal).

    bench/stragglers.py                       all contestants, both kinds of slowness
    bench/stragglers.py --only ssp --kind steady --epochs 1
    bench/stragglers.py --write docs/results/stragglers.md
    bench/stragglers.py --rounds 0 --write ...   no run: reports the kept runs

Each rank is a process in its own cgroup, which gives it 60 % of a core, and the slow one
30 % (needs root, and the cpu controller; version 1 or 2), so that three ranks fit on two
cores and the slow one has half the speed of the others. Other processes have lower
priority. Kinds of slowness:

    steady   always the last rank
    turns    one rank after the other, 40 ms each

Times are those of training; set-up and tests are excluded, but reported. Every run is a
line of build/bench/stragglers.jsonl. Environment variable: DLCORE.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DLCORE = os.environ.get("DLCORE", str(ROOT / "build/bin/dlcore"))
NET = ROOT / "models/lenet-fashion.ini"
RUNS = ROOT / "build/bench/stragglers.jsonl"
RANKS = 3
PERIOD_US = 5000
FAST, SLOW = 0.6, 0.3  # of a core
TURN_SECONDS = 0.04
GOAL = 0.88
# With momentum, stale gradients need a lower learning rate than the model's 0.06.
SETTINGS = ("--set=solver.learning_rate=0.03",)
CONTESTANTS = {
    "sgd": [],
    "sgd, batch_split = auto": ["--set=parallel.batch_split=auto"],
    "ssp": ["--consistency=ssp", "--set=consistency.staleness=3"],
    "ssp, batch_split = equal": ["--consistency=ssp", "--set=consistency.staleness=3",
                           "--set=parallel.batch_split=equal"],
}
KINDS = {"even": "no rank is slow", "steady": "the last rank has half of what the others have",
         "turns": "one rank after the other has half, 40 ms each"}


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


# ---- Control groups ------------------------------------------------------------------


class Group:
    """A cgroup whose processes get a fraction of a core, with priority over others."""

    def __init__(self, name):
        first = pathlib.Path("/sys/fs/cgroup/cpu")
        self.is_first = first.is_dir()
        self.folder = (first if self.is_first else pathlib.Path("/sys/fs/cgroup")) / name
        self.folder.mkdir()
        if self.is_first:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.shares").write_text("262144")
        else:
            (self.folder / "cpu.weight").write_text("10000")

    def allow(self, share):
        quota = int(share * PERIOD_US)
        if self.is_first:
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100):  # until the last process is really gone
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)


def take_turns(groups, ended):
    slow = 0
    while not ended.wait(TURN_SECONDS):
        groups[slow].allow(FAST)
        slow = (slow + 1) % RANKS
        groups[slow].allow(SLOW)


# ---- One run -------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(args, more, groups, folder):
    port = free_port()
    command = [DLCORE, "train", str(NET), f"--epochs={args.epochs}", "--threads=1",
               *args.set, f"--set=data.batch={args.batch}",
               "--set=train.bind=no", "--set=train.checkpoint_last=no", "--set=train.checkpoint_minutes=0", "--set=train.display=1000000",
               f"--set=train.test_interval={args.test_interval}", *more]
    jobs = []
    for rank in range(RANKS):
        own = ["--json", f"--log-file={folder}/log"] if rank == 0 else []
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS),
                       "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        jobs.append(subprocess.Popen(
            [*command, *own], env=environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=groups[rank].enter))
    return jobs


def read(report, log, began):
    """The seconds of training before each test, and its result."""
    events = [json.loads(line) for line in log.splitlines()]
    start = next(event["time"] for event in events if event["event"] == "start")
    tested, curve = 0, []
    for event in events:
        if event["event"] == "test":
            tested += event["seconds"]
            curve.append((event["time"] - start - tested, event["iteration"], event["accuracy"]))
    splits = [event["batch_split"] for event in events if event["event"] == "batch_split"]
    goal = next((point for point in curve if point[2] >= GOAL), (None, None, None))
    return {"goal_seconds": goal[0], "goal_iteration": goal[1], "accuracy": report["accuracy"],
            "seconds": curve[-1][0], "set_up": start - began, "tests": tested,
            "iterations": report["iterations"], "batch_split": report["batch_split"], "found": splits,
            "staleness": report.get("staleness"), "waited": report.get("waited")}


def run(args, kind, name):
    groups = [Group(f"dlcore-{os.getpid()}-{rank}") for rank in range(RANKS)]
    jobs, ended = [], threading.Event()
    turns = threading.Thread(target=take_turns, args=(groups, ended))
    try:
        with tempfile.TemporaryDirectory() as folder:
            for rank, group in enumerate(groups):
                group.allow(SLOW if kind == "steady" and rank == RANKS - 1 else FAST)
            if kind == "turns":
                turns.start()
            began = time.time()
            jobs = start(args, CONTESTANTS[name], groups, folder)
            results = [job.communicate(timeout=args.patience) for job in jobs]
            if any(job.returncode for job in jobs):
                raise RuntimeError(results[0][1].strip()[-600:])
            log = (pathlib.Path(folder) / "log").read_text()
            return {"kind": kind, "name": name, "batch": args.batch, "epochs": args.epochs,
                    "at": began,
                    **read(json.loads(results[0][0]), log, began)}
    finally:
        ended.set()
        if turns.is_alive():
            turns.join()
        for job in jobs:
            if job.poll() is None:
                job.kill()
                job.wait()
        for group in groups:
            group.remove()


# ---- The report ----------------------------------------------------------------------


def median(rows, key):
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.median(values) if values else None


def text_of(value, form):
    return format(value, form) if value is not None else "never"


def table(runs):
    yield (f"| | to {GOAL:.0%}, s | faster than sgd | at iteration | ms an iteration | "
           "final accuracy | batch split | runs |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    base = None
    for name in CONTESTANTS:
        rows = [row for row in runs if row["name"] == name]
        if not rows:
            continue
        goal = median(rows, "goal_seconds")
        base = goal if name == "sgd" else base
        faster = f"{base / goal:.2f} x" if base and goal else "-"
        milliseconds = statistics.median(1e3 * row["seconds"] / row["iterations"] for row in rows)
        split = ", ".join(str(part) for part in rows[-1]["batch_split"])
        yield (f"| {name} | {text_of(goal, '.1f')} | {faster} | "
               f"{text_of(median(rows, 'goal_iteration'), '.0f')} | {milliseconds:.1f} | "
               f"{median(rows, 'accuracy'):.4f} | {split} | {len(rows)} |")


def write(path, runs):
    lines = []
    for batch in sorted({row["batch"] for row in runs}):
        for kind, words in KINDS.items():
            those = [row for row in runs if (row["kind"], row["batch"]) == (kind, batch)]
            if those:
                lines += [f"### {kind}: {words}; batch {batch}", "", *table(those), ""]
    text = "\n".join(lines)
    if not path:
        print(text)
        return
    path = pathlib.Path(path)
    mark = "<!-- tables -->\n"
    head = path.read_text().split(mark)[0] if path.exists() else ""
    path.write_text(head + mark + "\n" + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CONTESTANTS, action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="of all ranks")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--test-interval", type=int, default=50)
    parser.add_argument("--set", action="append", default=list(SETTINGS),
                        metavar="--set=SECTION.KEY=VALUE", help="for all contestants")
    parser.add_argument("--patience", type=float, default=600, help="seconds for a run")
    parser.add_argument("--write", help="put the tables into this file, behind its marker")
    args = parser.parse_args()
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(args.rounds):
        for kind in args.kind or ("steady", "turns"):
            for name in args.only or CONTESTANTS:
                row = run(args, kind, name)
                say(f"{kind}, {name}: {row}")
                with RUNS.open("a") as kept:
                    kept.write(json.dumps(row) + "\n")
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []
    write(args.write, runs)


if __name__ == "__main__":
    main()
