#!/usr/bin/python3
"""The peer of bench/time_to_accuracy.sh: PyTorch training LeNet on Fashion-MNIST until a test
accuracy is reached. The last line of stdout is one JSON object; its `seconds` count
from the start of the process.

    torch_accuracy.py --goal 0.9 --lr 0.03 --linear --epochs 3 [--tuned]
"""
import os
import time


def process_start():
    """The wall-clock time at which the kernel started this process, because a user also waits
    for the interpreter and the import of torch."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        return time.time() - float(uptime.read().split()[0]) + ticks / os.sysconf("SC_CLK_TCK")


STARTED = process_start()

import argparse
import gzip
import json

import numpy as np
import torch

import torch_nets
import torch_train


def fashion_mnist(folder, part):
    def read(kind, header):
        with gzip.open(f"{folder}/{part}-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    images = torch.from_numpy(read("images-idx3", 16).reshape(-1, 1, 28, 28).copy())
    return images.float().sub_(73).mul_(0.0111), torch.from_numpy(read("labels-idx1", 8).astype(np.int64))


def accuracy(trainer, images, labels):
    trainer.net.eval()
    with torch.no_grad():
        right = sum((trainer.net(x.contiguous(memory_format=trainer.format)).argmax(1) == y).sum().item()
                    for x, y in zip(images.split(500), labels.split(500)))
    trainer.net.train()
    return right / len(labels)


def reach(trainer, args):
    """Tests once per epoch. --linear: the learning rate decays linearly to 0."""
    images, labels = fashion_mnist(args.data, "train")
    test = fashion_mnist(args.data, "t10k")
    group, iteration, found = trainer.optimizer.param_groups[0], 0, 0.0
    per_epoch = -(-len(labels) // args.batch)
    for epoch in range(1, args.epochs + 1):
        for chosen in torch.randperm(len(labels)).split(args.batch):
            iteration += 1
            if args.linear:
                group["lr"] = args.lr * (1 - iteration / (per_epoch * args.epochs))
            trainer.step(images[chosen], labels[chosen])
        found = accuracy(trainer, *test)
        if found >= args.goal:
            return dict(seconds=time.time() - STARTED, epochs=epoch, accuracy=found)
    return dict(seconds=None, epochs=args.epochs, accuracy=found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--linear", action="store_true", help="decay the learning rate linearly to 0 over --epochs")
    torch_train.add_options(parser)
    args = parser.parse_args()
    torch_train.settle(args, "lenet")
    trainer = torch_train.Trainer(torch_nets.build("lenet"), args, lr=args.lr)
    print(json.dumps(dict(net="lenet", tuned=args.tuned, **reach(trainer, args))))


if __name__ == "__main__":
    main()
