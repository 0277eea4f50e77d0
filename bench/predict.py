#!/usr/bin/env python3
"""`dlcore predict` beside PyTorch's inference of the same net on the same JPEG files, in turns.

    bench/predict.py                                       resnet18 and resnet50, 1 and 2 threads
    bench/predict.py --nets resnet18 --threads 1 --turns 1 --images 128
    bench/predict.py --write docs/results/feed.md

Both read photographs of 500 x 375 pixels, resize them to 256, cut out 224 and print the five best
classes. PyTorch does it as torch_predict.py says, and its first batch is not counted. Of dlcore, a
run with one batch is taken off a run with all images, so its beginning isn't counted, either.
Reported are medians over the turns, per second that passed and per second of CPU.

Needs what bench/feed.py needs. Environment: DLCORE, PYTHON.
"""
import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import feed
import report
import side_by_side

ROOT, PYTHON, DLCORE = feed.ROOT, feed.PYTHON, side_by_side.DLCORE
TRANSFORMS = "resize(256), center_crop(224), normalize(mean=(123.7,116.3,103.5), std=(58.4,57.1,57.4))"


def write_net(folder, net, batch):
    """The model as an untrained net for images, and weights of it."""
    text = side_by_side.synthetic((ROOT / f"models/{net}.ini").read_text(), "3, 224, 224", 1000)
    ini, weights = folder / f"{net}.ini", folder / f"{net}.safetensors"
    test = f"[data.test]\nsource = synthetic\nshape = 3, 256, 256\nclasses = 1000\nsamples = 4\nbatch = {batch}\ntransforms = {TRANSFORMS}\n"
    ini.write_text(text.replace("[solver]", test + "[solver]", 1))
    subprocess.run([DLCORE, "train", ini, "--iterations=1", "--ranks=1", "--set", "data.batch=2", "--set", "train.test_interval=0",
                    "--run-dir", folder / net, "-q"], check=True, stdout=subprocess.DEVNULL)
    next((folder / net).glob("*.safetensors")).rename(weights)
    return ini, weights


def timed(command):
    """Seconds that passed, and those of CPUs."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def by_dlcore(net, threads, lists, args):
    ini, weights = net
    command = [DLCORE, "predict", ini, "--weights", weights, f"--threads={threads}", "--csv", "-q"]
    few, all_ = (timed([*command, files]) for files in lists)
    return [(args.images - args.batch) / (more - less) for more, less in zip(all_, few)]


def by_torch(net, threads, lists, args):
    command = [PYTHON, ROOT / "bench/torch_predict.py", net[0].stem, args.batch, threads, lists[1]]
    out = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    images, wall, cpu = map(float, out.split())
    return [images / wall, images / cpu]


def measure(net, threads, lists, args):
    rates = {by_dlcore: [], by_torch: []}
    for turn in range(args.turns):
        for who in list(rates)[::1 if turn % 2 == 0 else -1]:
            rates[who].append(who(net, threads, lists, args))
    return [list(zip(*rates[who])) for who in (by_dlcore, by_torch)]


def line(net, threads, own, peer):
    cells = [net, str(threads)]
    for mine, theirs in zip(own, peer):
        ratio = statistics.median(a / b for a, b in zip(mine, theirs))
        cells += [report.number(statistics.median(mine)), report.number(statistics.median(theirs)), f"{ratio:.2f}"]
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default="resnet18,resnet50")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--images", type=int, default=288)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", help="the page that the report is put into")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pictures = sorted(feed.pictures(375, 500).rglob("*.jpg"))
        lists = [folder / "few.txt", folder / "all.txt"]
        for path, count in zip(lists, (args.batch, args.images)):
            path.write_text("".join(f"{pictures[i % len(pictures)]}\n" for i in range(count)))
        for net in args.nets.split(","):
            files = write_net(folder, net, args.batch)
            for threads in map(int, args.threads.split(",")):
                rows.append(line(net, threads, *measure(files, threads, lists, args)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["net", "threads", "dlcore", "PyTorch", "times PyTorch", "dlcore, CPU", "PyTorch, CPU", "times PyTorch, CPU"]
    text = "\n".join([
        f"    {' '.join(['bench/predict.py', *sys.argv[1:]])}", "",
        f"{report.today()}, {report.cpu_name()}, {os.cpu_count()} cores; {args.turns} turns of {args.images} images in batches "
        f"of {args.batch}; load {os.getloadavg()[0]:.1f} at the end.", "",
        "Images per second, and per second of CPU:", "", report.table(head, rows), ""])
    print(text)
    if args.write:
        report.put(pathlib.Path(args.write), text, "bench/predict.py")


if __name__ == "__main__":
    main()
