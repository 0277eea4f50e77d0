#!/usr/bin/python3
"""The peer of bench/train.sh: PyTorch training the two networks of Caffe that
models/lenet.ini and models/cifar10-full.ini describe.

    torch_train.py lenet|cifar10-full [--tuned] [--seconds S]   images/s
    torch_train.py lenet --to-accuracy 0.9 [--tuned]            seconds to it

--tuned turns on what can be had from inside the script; jemalloc and the
binding of threads have to stand in the environment (bench/train.sh sets them).
The last line of stdout is one JSON object.
"""
import os
import time


def process_start():
    """Wall-clock time at which the kernel started this process: what a user
    waits for includes the interpreter and the import of torch."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        return time.time() - float(uptime.read().split()[0]) + ticks / os.sysconf("SC_CLK_TCK")


STARTED = process_start()

import argparse
import gzip
import json
import statistics

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class WithinChannelLRN(nn.Module):
    """x / (1 + alpha * mean of x^2 over a size x size window) ^ beta, the form
    Caffe calls WITHIN_CHANNEL. With beta = 0.75 the power is two reciprocal
    square roots, which is several times faster than pow()."""

    def __init__(self, size, alpha, beta):
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, x):
        mean = F.avg_pool2d(x * x, self.size, 1, self.size // 2)
        scale = mean.mul(self.alpha).add(1)
        if self.beta == 0.75:
            return x * (torch.rsqrt(scale) * torch.rsqrt(torch.sqrt(scale)))
        return x * scale.pow(-self.beta)


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(inplace=True), nn.Linear(500, 10))


def cifar10_full():
    def lrn():
        return WithinChannelLRN(3, 5e-5, 0.75)

    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.ReLU(inplace=True), lrn(),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(inplace=True),
        nn.AvgPool2d(3, 2, ceil_mode=True), lrn(),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(1024, 10))


# name: build, batch, input shape, momentum-SGD settings (Caffe's)
NETS = {
    "lenet": (lenet, 64, (1, 28, 28), dict(lr=0.01, momentum=0.9, weight_decay=5e-4)),
    "cifar10-full": (cifar10_full, 100, (3, 32, 32), dict(lr=0.001, momentum=0.9, weight_decay=4e-3)),
}


class Trainer:
    def __init__(self, name, args):
        build, self.batch, self.shape, settings = NETS[name]
        self.net = build()
        for layer in self.net:
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.format = torch.channels_last if args.channels_last else torch.contiguous_format
        self.net = self.net.to(memory_format=self.format)
        self.set_to_none = args.tuned
        if args.lr:
            settings = dict(settings, lr=args.lr)
        self.optimizer = torch.optim.SGD(self.net.parameters(), foreach=args.foreach, **settings)
        self.loss = nn.CrossEntropyLoss()

    def step(self, images, labels):
        images = images.contiguous(memory_format=self.format)
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        loss = self.loss(self.net(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss


def images_per_s(trainer, seconds):
    """Median over slices of the time, after a warm-up of a quarter of it. A few
    batches take turns, so that no input stays in a near cache."""
    batches = [(torch.rand(trainer.batch, *trainer.shape), torch.randint(0, 10, (trainer.batch,)))
               for _ in range(8)]

    def run(duration):
        slices, end = [], time.perf_counter() + duration
        while True:
            begin = time.perf_counter()
            for batch in batches:
                trainer.step(*batch)
            now = time.perf_counter()
            slices.append(len(batches) * trainer.batch / (now - begin))
            if now > end:
                return slices

    run(seconds / 4)
    return statistics.median(run(seconds))


def fashion_mnist(folder, part):
    def read(kind, header):
        with gzip.open(f"{folder}/{part}-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    images = torch.from_numpy(read("images-idx3", 16).reshape(-1, 1, 28, 28).copy())
    labels = torch.from_numpy(read("labels-idx1", 8).astype(np.int64))
    return images.float().div_(256), labels


def time_to_accuracy(trainer, goal, folder, epochs, linear):
    """Seconds from the start of the process to a test accuracy of `goal`, tested
    once an epoch; the second value is the epochs it took (None: never). `linear`:
    the rate rises over a tenth of an epoch, then falls to 0 at the last one."""
    images, labels = fashion_mnist(folder, "train")
    test_images, test_labels = fashion_mnist(folder, "t10k")
    accuracy, iteration = 0.0, 0
    rate = trainer.optimizer.param_groups[0]["lr"]
    per_epoch = -(-len(labels) // trainer.batch)
    for epoch in range(1, epochs + 1):
        trainer.net.train()
        order = torch.randperm(len(labels))
        for chosen in order.split(trainer.batch):
            iteration += 1
            if linear:
                trainer.optimizer.param_groups[0]["lr"] = rate * min(
                    10 * iteration / per_epoch, 1 - iteration / (per_epoch * epochs))
            trainer.step(images[chosen], labels[chosen])
        trainer.net.eval()
        with torch.no_grad():
            right = sum((trainer.net(x.contiguous(memory_format=trainer.format)).argmax(1) == y).sum().item()
                        for x, y in zip(test_images.split(500), test_labels.split(500)))
        accuracy = right / len(test_labels)
        if accuracy >= goal:
            return time.time() - STARTED, epoch, accuracy
    return None, None, accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", choices=NETS)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--channels-last", type=int, help="force the layout (0 or 1)")
    parser.add_argument("--foreach", type=int, help="force the foreach optimizer (0 or 1)")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--to-accuracy", type=float, metavar="A")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, help="instead of Caffe's")
    parser.add_argument("--linear", action="store_true", help="let the rate fall to 0 over --epochs")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    # What is faster here, by measurement; the default form leaves torch alone.
    args.channels_last = bool(args.tuned if args.channels_last is None else args.channels_last)
    args.foreach = bool(args.tuned if args.foreach is None else args.foreach)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    trainer = Trainer(args.net, args)
    result = dict(net=args.net, batch=trainer.batch, torch=torch.__version__, threads=args.threads,
                  tuned=args.tuned, channels_last=args.channels_last, foreach=args.foreach)
    if args.to_accuracy:
        result.update(zip(("seconds", "epochs", "accuracy"),
                          time_to_accuracy(trainer, args.to_accuracy, args.data, args.epochs, args.linear)))
    else:
        result["images_per_s"] = round(images_per_s(trainer, args.seconds), 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
