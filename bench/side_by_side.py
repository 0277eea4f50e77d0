#!/usr/bin/env python3
"""Training side by side with PyTorch: forward + backward + update on synthetic samples,
one process, images/s and peak memory.

    bench/side_by_side.py                                       all of it: hours
    bench/side_by_side.py --nets resnet50 --rounds 1 --threads 2 --seconds 5
    bench/side_by_side.py --nets vgg16 --keep --write docs/results/cpu-training.md

The contestants take turns within a round, so that a machine that slows down for
minutes slows all of them; medians over the rounds are compared. Then `dlcore time` says which share of the CPU's limit
each net reaches. Each run is a line of build/bench/runs.jsonl, whose report (report.py) is
printed and, with --write, put into a page in place of the last one of this model of CPU.
Environment: DLCORE, PYTHON (one that has PyTorch), JEMALLOC, and TRIXIE, the folder of a
Debian 13 with python3-torch, where the peers run too. A PyTorch that is not there is left
out, with a message.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
DLCORE = os.environ.get("DLCORE", str(ROOT / "build/bin/dlcore"))
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
TRIXIE = os.environ.get("TRIXIE")
RUNS = ROOT / "build/bench/runs.jsonl"

# Batch, sample and classes; the order of the tables.
NETS = {
    "lenet": (64, "1, 28, 28", 10),
    "cifar10-full": (100, "3, 32, 32", 10),
    "caffenet": (32, "3, 227, 227", 1000),
    "alexnet": (64, "3, 227, 227", 1000),
    "googlenet": (32, "3, 224, 224", 1000),
    "resnet50": (32, "3, 224, 224", 1000),
    "vgg16": (16, "3, 224, 224", 1000),
    "mobilenet-v2": (32, "3, 224, 224", 1000),
}
# All but those whose images are so small that little is left to multiply.
BF16_NETS = [net for net in NETS if net not in ("lenet", "cifar10-full")]

# Variables to remove: they halve OpenBLAS's speed, or change what is measured.
UNWANTED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "OMP_PROC_BIND", "LD_PRELOAD")


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def run(command, environment):
    """Runs a command; returns its stdout and the peak memory in bytes of it and its children."""
    clean = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=out, stderr=errors, cwd=ROOT, env={**clean, **environment})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        if child.returncode:
            raise RuntimeError(errors.read()[-1000:].strip() or f"{command[0]} ended with {child.returncode}")
        return out.read(), 1024 * usage.ru_maxrss


# ---- dlcore -----------------------------------------------------------------------


def synthetic(text, shape, classes):
    """Changes a net.ini to synthetic samples without tests. Batch and transforms stay."""
    made, section = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip()
            if section == "[data]":
                line += f"\nsource = synthetic\nkind = noise\nshape = {shape}\nclasses = {classes}"
        elif section == "[data]" and not re.match(r"(batch|transforms)\b", line):
            continue
        if section != "[data.test]":
            made.append(line)
    return "\n".join(made) + "\n"


class Dlcore:
    """dlcore on synthetic variants of the nets, in a temporary folder. With a low learning rate,
    because some nets would diverge on noise."""

    def __init__(self, folder, models, more):
        self.folder, self.more, self.checked = folder, more, {}
        for net, (_, shape, classes) in NETS.items():
            model = models / f"{net}.ini"
            if model.exists():
                (folder / model.name).write_text(synthetic(model.read_text(), shape, classes))

    def arguments(self, job):
        precision = ["--set", "train.precision=bf16"] if job["bf16"] else []
        return [str(self.folder / f"{job['net']}.ini"), "--set", f"data.batch={job['batch']}",
                "--set", f"train.threads={job['threads']}", "--set", "solver.learning_rate=0.00001", *precision, *self.more]

    def check(self, job):
        """The operations of a training step per image, and the memory that `check` predicts."""
        key = tuple(job.values())
        if key not in self.checked:
            checked = json.loads(run([DLCORE, "check", *self.arguments(job), "--json"], {})[0])
            # Backward costs twice forward, except that the first layer's input needs no gradient.
            steps = 3 * checked["multiply_adds"] - checked["layers"][0]["multiply_adds"]
            self.checked[key] = dict(flop=2 * steps, planned_bytes=checked["peak_bytes"])
        return self.checked[key]

    def measure(self, job, seconds, peak):
        known = self.check(job)
        guess = known["flop"] * job["batch"] / (0.6e9 * peak)  # seconds a step
        iterations = max(8, round(1.25 * seconds / guess))
        display = max(1, iterations // 24)
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        _, bytes_ = run([DLCORE, "train", *self.arguments(job), "--ranks=1", f"--iterations={iterations}",
                         "--set", "train.checkpoint_last=no", "--set", "train.checkpoint_minutes=0", "--set", f"train.display={display}",
                         "--log-file", str(log), "--json"], {})
        return dict(known, images_per_s=self.speed(log, job["batch"]), peak_bytes=bytes_)

    def shares(self, job):
        """The share of the limit, and of the time, of the net and of each type of layer."""
        timed = json.loads(run([DLCORE, "time", *self.arguments(job), "--ranks=1", "--json"], {})[0])
        return dict(limits=timed["limits"], of_limit=timed["total"]["of_limit"], us=timed["total"]["us"],
                    types={row["type"]: dict(us=row["us"], of_limit=row["of_limit"]) for row in timed["types"]})

    @staticmethod
    def speed(log, batch):
        """Median over slices of a few iterations, without the first quarter as
        warm-up. Each line of the log has the speed since the command's own warm-up
        ended, so what lies between two lines is the difference of two such times."""
        events = [json.loads(line) for line in log.read_text().splitlines()]
        lines = [event for event in events if event["event"] == "train" and event["images_per_s"]]
        total = max(event["iteration"] for event in lines)
        warm = min(20, total // 10)
        done = [((event["iteration"] - warm), (event["iteration"] - warm) * batch / event["images_per_s"])
                for event in lines]
        slices = [(b[0] - a[0]) * batch / (b[1] - a[1]) for a, b in zip(done, done[1:])]
        return report.median(slices[len(slices) // 4:])


# ---- PyTorch ----------------------------------------------------------------------


def library(root, name):
    """The path of a library or a folder, as seen from within `root`; None: not found."""
    found = sorted(pathlib.Path(root).glob(f"usr/lib/*/{name}"))
    return f"/{found[0].relative_to(root)}" if found else None


class Torch:
    """torch_train.py with this system's PyTorch, or that of a system in a folder."""

    @staticmethod
    def is_here():
        return subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0

    def __init__(self, tuned, root=None):
        self.tuned, self.enter, self.scripts = tuned, [], str(ROOT / "bench")
        self.python = PYTHON
        self.jemalloc = os.environ.get("JEMALLOC")
        if root:
            folder = pathlib.Path(root, "tmp/dlcore-bench")
            folder.mkdir(exist_ok=True)
            for script in ROOT.glob("bench/torch_*.py"):
                shutil.copy(script, folder)
            self.enter, self.scripts, self.python = ["chroot", root], "/tmp/dlcore-bench", "/usr/bin/python3"
        if not self.jemalloc:
            self.jemalloc = library(root or "/", "libjemalloc.so.2")
        self.openblas = library(root or "/", "openblas-openmp")
        if tuned and not self.jemalloc:
            raise SystemExit("tuned PyTorch needs jemalloc: install libjemalloc2, or set JEMALLOC")

    def measure(self, job, seconds, _):
        """By default only the number of threads is set. In the tuned one
        freed memory stays with the process (the kernel would hand it back zeroed, page
        by page), threads stay on their cores, and OpenBLAS uses the same ones as the
        convolutions do, where that build of it is installed."""
        environment = {"OMP_NUM_THREADS": job["threads"]}
        if self.tuned:
            environment.update(
                LD_PRELOAD=self.jemalloc, OMP_PROC_BIND="true", OMP_PLACES="cores",
                MALLOC_CONF="background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1")
            if self.openblas:
                environment["LD_LIBRARY_PATH"] = self.openblas
        command = [*self.enter, "env", *(f"{key}={value}" for key, value in environment.items()),
                   self.python, f"{self.scripts}/torch_train.py", "--net", job["net"], "--batch", str(job["batch"]),
                   "--threads", str(job["threads"]), "--seconds", str(seconds)]
        command += ["--tuned"] * self.tuned + ["--bf16"] * job["bf16"]
        out, bytes_ = run(command, {})
        return dict(json.loads(out.splitlines()[-1]), peak_bytes=bytes_)


# ---- Running --------------------------------------------------------------------


def measured_limits(folder, threads):
    """What bench/peak.c says: GFLOP/s and GB/s that this CPU can do with so many threads."""
    program = folder / "peak"
    if not program.exists():
        sources = [str(ROOT / name) for name in ("bench/peak.c", "tools/cpu_limits.c")]
        run(["cc", "-O3", "-D_GNU_SOURCE", "-pthread", "-I", str(ROOT / "tools"), *sources, "-o", str(program)], {})
    return json.loads(run([str(program), str(threads)], {})[0])


def jobs(args):
    for precision in args.precision:
        for threads in args.threads:
            for net in args.nets:
                if precision == "float32" or net in BF16_NETS and threads == max(args.threads):
                    yield dict(net=net, batch=args.batch or NETS[net][0], threads=threads,
                               bf16=precision == "bf16")


def precision(job):
    return "bf16" if job["bf16"] else "float32"


def play(args, contestants, folder, note):
    lost = set()
    for number in range(1, args.rounds + 1):
        limits = {threads: measured_limits(folder, threads) for threads in args.threads}
        for job in jobs(args):
            limit = limits[job["threads"]]
            for name, contestant in contestants.items():
                key = (name, job["net"], job["bf16"])
                slow = "default" in name and number > args.default_rounds
                if slow or key in lost:
                    continue
                try:
                    result = contestant.measure(job, args.seconds, limit["float32"])
                except RuntimeError as error:
                    say(f"{name} is left out of {job['net']}, {precision(job)}: {error}")
                    lost.add(key)
                    continue
                note(dict(job, who=name, round=number, limits=limit, load=os.getloadavg()[0],
                          images_per_s=result["images_per_s"], peak_bytes=result["peak_bytes"],
                          planned_bytes=result.get("planned_bytes"), flop=result.get("flop"),
                          torch=result.get("torch"), channels_last=result.get("channels_last")))
                say(f"round {number}/{args.rounds} {job['net']} b{job['batch']} "
                    f"{precision(job)} {job['threads']} threads, {name}: "
                    f"{result['images_per_s']:.1f} images/s, {result['peak_bytes'] / 1e6:.0f} MB")


def time_layers(args, dlcore, note):
    for job in jobs(args):
        if job["threads"] != max(args.threads):
            continue
        try:
            shares = dlcore.shares(job)
        except RuntimeError as error:
            say(f"dlcore time fails for {job['net']}, {precision(job)}: {error}")
            continue
        note(dict(job, who="dlcore time", load=os.getloadavg()[0], shares=shares))
        say(f"dlcore time {job['net']} {precision(job)}: {shares['of_limit'] or 0:.0%} of the limit")


def choose_contestants(args, folder):
    """Those that --who names, as far as they are here."""
    more = [word for text in args.set for word in ("--set", text)]
    makers = {"dlcore": lambda: Dlcore(folder, args.models, more),
              "tuned": lambda: Torch(True), "default": lambda: Torch(False)}
    if TRIXIE:
        makers.update({"tuned-13": lambda: Torch(True, TRIXIE), "default-13": lambda: Torch(False, TRIXIE)})
    wanted = args.who or list(makers)
    for who in wanted:
        if who not in makers:
            raise SystemExit(f"--who {who} is not one of {', '.join(makers)}"
                             + ("" if TRIXIE else "; set TRIXIE to compare with Debian 13, too"))
    if {"tuned", "default"} & set(wanted) and not Torch.is_here():
        say(f"{PYTHON} has no PyTorch (python3-torch): `tuned` and `default` are left out")
        wanted = [who for who in wanted if who not in ("tuned", "default")]
    return {who: makers[who]() for who in wanted}


def read_options():
    def words(text):
        return text.replace(",", " ").split()

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=words, default=list(NETS), help=", ".join(NETS))
    parser.add_argument("--batch", type=int, help="batch size, instead of each net's own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--default-rounds", type=int, default=1,
                        help="rounds with default PyTorch, which is slow")
    parser.add_argument("--threads", type=lambda text: [int(word) for word in words(text)], default=[2, 1])
    parser.add_argument("--precision", type=words, default=["float32", "bf16"])
    parser.add_argument("--seconds", type=float, default=8, help="duration of each run")
    parser.add_argument("--who", type=words, help="dlcore, tuned, default; with TRIXIE: tuned-13, default-13")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "models", help="folder of the net.ini files")
    parser.add_argument("--set", action="append", default=[], help="a setting for dlcore, as in `dlcore train --set`")
    parser.add_argument("--keep", action="store_true", help="add to the runs of earlier calls")
    parser.add_argument("--write", type=pathlib.Path, help="page into which the report is put")
    args = parser.parse_args()
    for given, known in ((args.nets, NETS), (args.precision, ("float32", "bf16"))):
        for word in given:
            if word not in known:
                parser.error(f"{word} is not one of {', '.join(known)}")
    return args


def main():
    args = read_options()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        contestants = choose_contestants(args, folder)
        RUNS.parent.mkdir(parents=True, exist_ok=True)
        if not args.keep:
            RUNS.unlink(missing_ok=True)
        with RUNS.open("a") as file:
            def note(result):
                print(json.dumps(result), file=file, flush=True)

            play(args, contestants, folder, note)
            if "dlcore" in contestants:
                time_layers(args, contestants["dlcore"], note)
    text = report.make(RUNS, "bench/side_by_side.py " + " ".join(sys.argv[1:]), DLCORE)
    print(text)
    if args.write:
        report.put(args.write, text, machine=report.machine())


if __name__ == "__main__":
    main()
