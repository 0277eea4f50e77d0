#!/usr/bin/env python3
"""The peer of bench/feed.py: PyTorch's DataLoader, with torchvision and Pillow, in the turns
that it asks for (turns.h).

    echo 5 | bench/torch_feed.py THREADS LIST     files, one a line

One thread is the process itself, without workers, which is the fastest; more are workers.
"""
import os
import pathlib
import resource
import sys
import time

import torch
import torchvision.transforms as T
from PIL import Image

BATCH, AHEAD = 64, 2
PICTURE = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(),
                     T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


class Files(torch.utils.data.Dataset):
    """The same files again and again; more of them than any measurement takes."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return 10**8

    def __getitem__(self, index):
        with Image.open(self.paths[index % len(self.paths)]) as picture:
            return PICTURE(picture.convert("RGB")), 0


def cpu_seconds(workers):
    """Of this process and its workers, which are alive."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for worker in workers:
        fields = pathlib.Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def main():
    torch.set_num_threads(1)
    threads = int(sys.argv[1])
    paths = pathlib.Path(sys.argv[2]).read_text().split("\n")[:-1]
    workers = threads if threads > 1 else 0
    loader = torch.utils.data.DataLoader(Files(paths), batch_size=BATCH, num_workers=workers)
    batches = iter(loader)
    children = getattr(batches, "_workers", [])
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(AHEAD * workers + 1):
            next(batches)
        begin, cpu, samples = time.monotonic(), cpu_seconds(children), 0
        while time.monotonic() - begin < float(line):
            samples += len(next(batches)[0])
        print(samples, time.monotonic() - begin, cpu_seconds(children) - cpu, flush=True)


if __name__ == "__main__":
    main()
