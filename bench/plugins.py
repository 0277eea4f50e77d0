#!/usr/bin/env python3
"""How long dlcore takes to list plugins, and what a job with many of them loads.

    bench/plugins.py                    50 copies of a plugin, besides those of the build
    bench/plugins.py --count 200
    bench/plugins.py --write docs/results/plugins.md

The plugins are copies of one that is built here (a data source of one sample), with
different names. Cold: the cache is empty, so every file is scanned. Warm: all are cached.
Rescan: with `--rescan`. Then a job, one iteration of a small net, is run with and without
them; LD_DEBUG shows which files were loaded. Environment variables: DLCORE, CC.
"""
import argparse
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DLCORE = pathlib.Path(os.environ.get("DLCORE", ROOT / "build/bin/dlcore")).resolve()
FIXTURE = ROOT / "tests/unit/core/plugin/fixtures/fixture.c"
NET = """[net]
name = small
[data]
source = synthetic
batch = 4
[solver]
type = sgd
learning_rate = 0.01
[train]
device = cpu
iterations = 1
[ip]
type = inner_product
num_output = 10
[loss]
type = softmax_loss
"""


def make_plugins(folder, count):
    """Makes copies of one compiled plugin; its name has room for a number."""
    first = folder.parent / "numbered.so"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-w", "-shared", "-fPIC",
                    "-fvisibility=hidden", f"-I{ROOT}/include", '-DFIXTURE_NAME="plugin-XXXX"',
                    '-DFIXTURE_FEATURE="feature-XXXX"', str(FIXTURE), "-o", str(first)], check=True)
    code = first.read_bytes()
    for i in range(count):
        file = folder / f"numbered-{i:04}.so"
        file.write_bytes(code.replace(b"-XXXX", f"-{i:04}".encode()))
        file.chmod(0o644)


class Place:
    """A folder of plugins, and a cache folder."""

    def __init__(self, folder, count):
        self.plugins = folder / "plugins"
        self.cache = folder / "cache"
        self.plugins.mkdir(mode=0o755)
        make_plugins(self.plugins, count)
        self.net = folder / "net.ini"
        self.net.write_text(NET)

    def environment(self, **more):
        return {**os.environ, "DLCORE_PLUGIN_PATH": str(self.plugins), "XDG_CACHE_HOME": str(self.cache), **more}

    def forget(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir()

    def run(self, *arguments):
        """Milliseconds of wall-clock and CPU time, and the output."""
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([DLCORE, *arguments], env=self.environment(), check=True, capture_output=True, text=True,
                              cwd=self.plugins.parent)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return seconds * 1000, used * 1000, done.stdout

    def list(self, *options):
        return self.run("plugin", "list", *options)

    def loaded(self):
        """Plugins that a job's processes have loaded, without the scanner's."""
        processes = {}
        with tempfile.TemporaryDirectory() as name:
            subprocess.run([DLCORE, "train", str(self.net), "--ranks=2", "--transport=host-staged"], check=True,
                           env=self.environment(LD_DEBUG="files", LD_DEBUG_OUTPUT=f"{name}/log"), capture_output=True)
            text = "".join(path.read_text() for path in pathlib.Path(name).iterdir())
        for process, file in re.findall(r"(\d+):\s+calling init: \S*/([\w.-]+\.so)\n", text):
            processes.setdefault(process, set()).add(file)
        return set().union(*(them for them in processes.values() if "device-cpu.so" in them)) & self.files

    @property
    def files(self):
        folders = (self.plugins, DLCORE.parent.parent / "lib/dlcore/0")
        return {path.name for folder in folders for path in folder.glob("*.so")}

    def job(self):
        return self.run("train", str(self.net))


def repeat(rounds, run, before=lambda: None):
    times = []
    for _ in range(rounds):
        before()
        times.append(run()[:2])
    clock, used = zip(*times)
    return statistics.median(clock), min(clock), max(clock), statistics.median(used)


def measure(folder, count, rounds):
    place = Place(folder, count)
    place.forget()
    text = place.list()[2]
    found = text.count("feature-")
    if found != count:
        sys.exit(f"{found} of {count} plugins are listed:\n{text}")
    rows = [("list, cold: all inspected", repeat(rounds, place.list, place.forget)),
            ("list, warm: all remembered", repeat(rounds, place.list)),
            ("rescan: --rescan", repeat(rounds, lambda: place.list("--rescan"))),
            ("a job of one iteration, warm", repeat(rounds, place.job))]
    loaded = sorted(place.loaded())
    unavailable = len(set(re.findall(r"(\S+) +\S+ +unavailable", place.list()[2])))
    return rows, loaded, len(place.files), unavailable


def report(count, rounds, measured):
    rows, loaded, files, unavailable = measured
    lines = [f"`dlcore plugin list` with {count} copied plugins besides the build's own, {files} files in total, "
             f"{rounds} rounds. {unavailable} plugins say that they cannot work here; they are asked anew each time, "
             "in a process of their own.", "",
             "| ms | median | min | max | CPU time |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [f"| {name} | {' | '.join(f'{number:.1f}' for number in numbers)} |" for name, numbers in rows]
    lines += ["", f"The machine's load was {os.getloadavg()[0]:.1f}.", "",
              f"A job of two ranks over one named transport loads {len(loaded)} of the {files}: {', '.join(loaded)}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--write", type=pathlib.Path, help="page into which the report is put, below its marker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        folder.chmod(0o755)
        text = report(arguments.count, arguments.rounds, measure(folder, arguments.count, arguments.rounds))
    print(text)
    if arguments.write:
        mark = "<!-- report: made by bench/plugins.py -->\n"
        head = arguments.write.read_text().split(mark)[0] if arguments.write.exists() else "# Plugins\n\n"
        arguments.write.write_text(head + mark + "\n" + text)


if __name__ == "__main__":
    main()
