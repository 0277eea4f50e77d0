#!/usr/bin/env python3
"""The data feed beside its limits and PyTorch's DataLoader (torchvision, Pillow), in turns.

    bench/feed.py                                    all rows, a quarter of an hour
    bench/feed.py --rows photos --threads 1 --turns 3 --seconds 2
    bench/feed.py --photos FOLDER                    JPEG files of one's own, not made ones
    bench/feed.py --write docs/results/feed.md

Photographs of 500 x 375 pixels (and of 256 x 256) become random resized crops of 224 x 224,
mirrored and normalized, in float32; records of bytes are copied as they are. The limit is a
loop of libjpeg-turbo that decodes the same files whole and throws the pixels away, or one that
copies as many bytes in memory (feed_limit.c). All exist at the same time and take turns of
some seconds, forwards and backwards, so that a machine whose speed changes does so for all.

Reported are medians over the turns, per second that passed and per second of CPU; the latter
hold on a machine with other load, too. Pictures are made: noise with the spectrum of photographs,
whose files are as large as those of photographs of this size and quality (110 KB).

Needs Debian's python3-torch, python3-torchvision, python3-pil and python3-numpy; the targets
feed_speed and feed_limit. Environment: PYTHON (one that has those).
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build/bench"
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
PICTURES = 128
WHO = ("dlcore", "limit", "torch")
CROP = "random_resized_crop(224), mirror, normalize(mean=(123.7,116.3,103.5), std=(58.4,57.1,57.4))"
NET = """[data]
source = {source}
{keys}
batch = {batch}
transforms = {transforms}
[solver]
type = sgd
learning_rate = 0.01
[ip]
type = inner_product
num_output = 2
[loss]
type = softmax_loss
"""
MAKE = """
import sys, numpy
from PIL import Image
folder, count, height, width = sys.argv[1], *map(int, sys.argv[2:])
random = numpy.random.default_rng(1)
fy, fx = numpy.fft.fftfreq(height)[:, None], numpy.fft.rfftfreq(width)[None]
frequency = numpy.hypot(fy, fx)
frequency[0, 0] = 1
def field(power):
    white = numpy.fft.rfft2(random.standard_normal((height, width)))
    made = numpy.fft.irfft2(white / frequency**power, (height, width))
    return (made - made.mean()) / made.std()
for i in range(count):
    light = field(1.1)
    planes = [light + 0.35 * field(1.3) for _ in range(3)]
    pixels = numpy.clip(120 + 55 * numpy.stack(planes, axis=-1), 0, 255).astype("uint8")
    Image.fromarray(pixels).save(f"{folder}/{i:03}.jpg", quality=90)
"""


class Contestant:
    """A process that loads samples when it is told to."""

    def __init__(self, command):
        environment = {**os.environ, "DLCORE_PLUGIN_PATH": str(ROOT / "build/lib/dlcore/0")}
        self.child = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=environment)
        self.wall, self.cpu = [], []
        self.answer()  # ready

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"{self.child.args[0]} has ended; try its command by hand")
        return line

    def turn(self, seconds, warm_up=False):
        self.child.stdin.write(f"{seconds}\n")
        self.child.stdin.flush()
        samples, wall, cpu = map(float, self.answer().split())
        if not warm_up:
            self.wall.append(samples / wall)
            self.cpu.append(samples / cpu)

    def end(self):
        self.child.stdin.close()
        self.child.wait()


# ---- Rows: what is measured -----------------------------------------------------


def write_net(folder, name, source, keys, batch, transforms):
    path = folder / f"{name}.ini"
    path.write_text(NET.format(source=source, keys=keys, batch=batch, transforms=transforms))
    return path


def pictures(height, width):
    """A folder of made pictures, which are kept for the next time."""
    place = PROGRAMS / f"pictures-{width}x{height}"
    if not place.exists():
        (place / "all").mkdir(parents=True)
        subprocess.run([PYTHON, "-c", MAKE, place / "all", str(PICTURES), str(height), str(width)], check=True)
    return place


def photos(height, width):
    def commands(folder, threads, args):
        place = pathlib.Path(args.photos).resolve() if args.photos else pictures(height, width)
        names = folder / f"{width}x{height}.txt"
        names.write_text("".join(f"{path}\n" for path in sorted(place.rglob("*.jp*g"))))
        net = write_net(folder, "photos", "images", f"folder = {place}", 64, CROP)
        return {"dlcore": [PROGRAMS / "feed_speed", net, threads],
                "limit": [PROGRAMS / "feed_limit", "jpeg", threads, names],
                "torch": [PYTHON, ROOT / "bench/torch_feed.py", threads, names]}
    return commands


def records(side, batch, channels=3):
    def commands(folder, threads, _):
        size = channels * side * side
        count = (256 << 20) // size
        images, labels = folder / f"{side}.images", folder / f"{side}.labels"
        if not images.exists():
            dims = (count, channels, side, side)
            images.write_bytes(bytes([0, 0, 8, 4]) + b"".join(n.to_bytes(4, "big") for n in dims)
                               + os.urandom(size) * count)
            labels.write_bytes(bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(count))
        net = write_net(folder, f"records{side}", "idx", f"images = {images}\nlabels = {labels}", batch,
                        "normalize(std=256)")
        return {"dlcore": [PROGRAMS / "feed_speed", net, threads, "bytes"],
                "limit": [PROGRAMS / "feed_limit", "copy", threads, size, batch]}
    return commands


ROWS = {"photos": ("500 x 375 JPEG, quality 90", photos(375, 500)),
        "small": ("256 x 256 JPEG, quality 90", photos(256, 256)),
        "records": ("records of 3 x 227 x 227 bytes", records(227, 64)),
        "cifar": ("records of 3 x 32 x 32 bytes", records(32, 512))}


# ---- Measuring ------------------------------------------------------------------


def measure(row, threads, folder, args):
    commands = ROWS[row][1](folder, threads, args)
    contestants = {}
    try:
        for who in args.who:
            if who in commands:
                contestants[who] = Contestant(commands[who])
                contestants[who].turn(min(args.seconds, 1), warm_up=True)
        for turn in range(args.turns):
            for contestant in list(contestants.values())[::1 if turn % 2 == 0 else -1]:
                contestant.turn(args.seconds)
    finally:
        for contestant in contestants.values():
            contestant.end()
    return contestants


def ratio(contestants, other, what):
    if "dlcore" not in contestants or other not in contestants:
        return ""
    pairs = zip(getattr(contestants["dlcore"], what), getattr(contestants[other], what))
    return f"{statistics.median(a / b for a, b in pairs):.2f}"


def line(row, threads, contestants):
    cells = [ROWS[row][0], str(threads)]
    for what in ("wall", "cpu"):
        for who in WHO:
            rates = getattr(contestants.get(who), what, None)
            cells.append(report.number(statistics.median(rates)) if rates else "")
        cells += [ratio(contestants, other, what) for other in ("limit", "torch")]
    return cells


def table(rows, first):
    head = ["samples", "threads", "dlcore", "limit", "PyTorch", "of the limit", "times PyTorch"]
    return report.table(head, [row[:2] + row[first:first + 5] for row in rows])


def page(rows, args):
    return "\n".join([
        f"    {' '.join(['bench/feed.py', *sys.argv[1:]])}", "",
        f"{report.today()}, {report.cpu_name()}, {os.cpu_count()} cores; {args.turns} turns of {args.seconds:g} s; "
        f"load {os.getloadavg()[0]:.1f} at the end.", "",
        "Samples per second:", "", table(rows, 2), "",
        "Samples per second of CPU, which other load changes less:", "", table(rows, 7), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="of " + ", ".join(ROWS))
    parser.add_argument("--threads", default="1,2,8")
    parser.add_argument("--who", default=",".join(WHO))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4, help="of a turn")
    parser.add_argument("--photos", help="a folder of JPEG files in folders of classes")
    parser.add_argument("--write", help="the page that the report is put into")
    args = parser.parse_args()
    args.who = args.who.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for row in args.rows.split(","):
            for threads in map(int, args.threads.split(",")):
                rows.append(line(row, threads, measure(row, threads, pathlib.Path(name), args)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    text = page(rows, args)
    print(text)
    if args.write:
        report.put(pathlib.Path(args.write), text, "bench/feed.py")


if __name__ == "__main__":
    main()
