#!/usr/bin/env python3
"""Trains on a data set that is larger than the memory that a control group allows, and on the
same without a limit, in turns, each time with files that are not in the page cache.

    bench/memory.py                                   1 GiB of photographs in 256 MiB
    bench/memory.py --limit 128 --times 2 --turns 1
    bench/memory.py --write docs/results/feed.md

The data set is made of the pictures of bench/feed.py by `dlcore data convert`, as tar shards, and
is kept in build/bench. The net is small, so that disk and decoder decide. The job must end with
the same loss in both cases. Needs root, for the control group (version 1 or 2), and what
bench/feed.py needs. Environment: DLCORE, PYTHON.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import feed
import report
import side_by_side

DLCORE, BATCH = side_by_side.DLCORE, 64
MIB = 1 << 20


class Group:
    """A control group of this process's group, with a limit of memory."""

    def __init__(self, limit):
        lines = dict(line.split(":", 2)[1:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines())
        old = "memory" in lines
        root = pathlib.Path("/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup")
        self.path = root / lines["memory" if old else ""].lstrip("/") / "dlcore-bench"
        self.peak_file = "memory.max_usage_in_bytes" if old else "memory.peak"
        self.path.mkdir(exist_ok=True)
        (self.path / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self):
        return int((self.path / self.peak_file).read_text())

    def remove(self):
        self.path.rmdir()


def make_data(limit, times):
    """Shards of at least `times` the limit, of the pictures over and over."""
    pictures = sorted(feed.pictures(375, 500).rglob("*.jpg"))
    folder = feed.PROGRAMS / f"memory-{limit // MIB}x{times}"
    lines = 1 + times * limit // (sum(path.stat().st_size for path in pictures) // len(pictures))
    folder.mkdir(exist_ok=True)
    (folder / "list").write_text("".join(f"{pictures[i % len(pictures)]} {i % 2}\n" for i in range(lines)))
    net = feed.write_net(folder, "list", "images", f"list = {folder}/list", BATCH, feed.CROP)
    subprocess.run([DLCORE, "data", "convert", net, "-o", folder / "shards", "--shard-size=64M", "-q"], check=True,
                   stdout=subprocess.DEVNULL)
    net = feed.write_net(folder, "shards", "tar", f"shards = {folder}/shards/*.tar", BATCH, feed.CROP)
    text = net.read_text().replace("[ip]", "[pool]\ntype = pooling\nmethod = average\nglobal = true\n[ip]")
    net.write_text(text.replace("[ip]\n", "[ip]\nweight_filler = xavier\n"))
    return net, sorted((folder / "shards").glob("*.tar")), lines


def forget(files):
    """Lets the files leave the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def train(net, files, lines, group):
    forget(files)
    command = [DLCORE, "train", net, "--ranks=1", f"--iterations={lines // BATCH}", "--json", "-q",
               "--set", "train.checkpoint_last=no"]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, cwd=net.parent,
                          preexec_fn=group.enter if group else None) as child:
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"dlcore ended with {child.returncode}")
    return json.loads(out), 1024 * usage.ru_maxrss


def measure(net, files, lines, args):
    runs = {"limited": [], "free": []}
    peak = 0
    for turn in range(args.turns):
        for name in list(runs)[::1 if turn % 2 == 0 else -1]:
            group = Group(args.limit * MIB) if name == "limited" else None
            runs[name].append(train(net, files, lines, group))
            if group:
                peak = max(peak, group.peak())
                group.remove()
    return runs, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=256, help="MiB that the group allows")
    parser.add_argument("--times", type=int, default=4, help="how many times larger the data set is")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", help="the page that the report is put into")
    args = parser.parse_args()
    net, files, lines = make_data(args.limit * MIB, args.times)
    data = sum(path.stat().st_size for path in files)
    runs, peak = measure(net, files, lines, args)
    losses = {run["training_loss"] for of in runs.values() for run, _ in of}
    rows = [[title, report.number(statistics.median(run["images_per_s"] for run, _ in runs[name])),
             report.number(max(resident for _, resident in runs[name]) / MIB)]
            for name, title in (("limited", f"{args.limit} MiB"), ("free", "no limit"))]
    text = "\n".join([
        f"    {' '.join(['bench/memory.py', *sys.argv[1:]])}", "",
        f"{report.today()}, {report.cpu_name()}: an epoch of {lines:,} photographs, {data / MIB:,.0f} MiB of tar shards; "
        f"{args.turns} turns; load {os.getloadavg()[0]:.1f} at the end. The group's memory, with its page cache, was at most "
        f"{peak / MIB:.0f} MiB. All runs have the same loss: {'yes' if len(losses) == 1 else f'no, {sorted(losses)}'}.", "",
        report.table(["the group allows", "images/s", "resident, MiB"], rows), ""])
    print(text)
    if args.write:
        report.put(pathlib.Path(args.write), text, "bench/memory.py")


if __name__ == "__main__":
    main()
