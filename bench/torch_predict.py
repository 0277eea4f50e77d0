#!/usr/bin/env python3
"""The peer of bench/predict.py: a net of torch_nets.py classifies files, read by PyTorch's
DataLoader with torchvision and Pillow. Prints the images, and the seconds that passed and those of
CPUs after a first batch. Without gradients, on oneDNN, in channels_last, denormals flushed.

    bench/torch_predict.py NET BATCH THREADS LIST
"""
import pathlib
import sys
import time

import torch
import torchvision.transforms as T
from PIL import Image

import torch_feed
import torch_nets

PICTURE = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(),
                     T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


class Files(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as picture:
            return PICTURE(picture.convert("RGB"))


def main():
    name, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    net = torch_nets.build(name).eval().to(memory_format=torch.channels_last)
    paths = pathlib.Path(sys.argv[4]).read_text().split("\n")[:-1]
    workers = threads - 1  # one beside a single thread of computing would be a second one
    loader = torch.utils.data.DataLoader(Files(paths), batch_size=batch, num_workers=workers,
                                         persistent_workers=workers > 0)
    with torch.inference_mode():
        batches = iter(loader)
        children = getattr(batches, "_workers", [])
        begin = cpu = done = 0
        for images in batches:
            scores = net(images.contiguous(memory_format=torch.channels_last))
            (scores[0] if isinstance(scores, tuple) else scores).softmax(1).topk(5)
            if not begin:  # after the first batch
                begin, cpu = time.monotonic(), torch_feed.cpu_seconds(children)
                continue
            done += len(images)
    print(done, time.monotonic() - begin, torch_feed.cpu_seconds(children) - cpu)


if __name__ == "__main__":
    main()
