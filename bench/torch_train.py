#!/usr/bin/python3
"""The peer of the benchmarks: PyTorch training one of the nets of torch_nets.py on
synthetic samples, forward + backward + momentum update.

    torch_train.py --net resnet50 [--batch N] [--threads N] [--tuned] [--bf16]
    torch_train.py ... --ddp FILE --rank 0 --ranks 2      one of several, over gloo

--tuned turns on what can be had from inside the script; jemalloc and the binding of
threads have to stand in the environment (side_by_side.py sets them). The last line
of stdout is one JSON object.
"""
import argparse
import contextlib
import json
import resource
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import torch_nets

# Nets that channels_last makes slower here, by measurement (README.md).
PLAIN_IS_FASTER = {"float32": {"vgg16"}, "bf16": set()}


class Trainer:
    """A net, its optimizer, and what the options make of them."""

    def __init__(self, net, args, **settings):
        self.bf16 = args.bf16
        for module in net.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, torch_nets.AcrossChannelsLRN):
                module.fast = args.fast_lrn
        self.format = torch.channels_last if args.channels_last else torch.contiguous_format
        net.to(memory_format=self.format).train()
        self.set_to_none = args.tuned
        if getattr(args, "ddp", None):
            net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), momentum=0.9, foreach=args.foreach,
                                         **{"lr": 0.001, "weight_decay": 5e-4, **settings})

    def step(self, images, labels):
        images = images.contiguous(memory_format=self.format)
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        cast = torch.autocast("cpu", dtype=torch.bfloat16) if self.bf16 else contextlib.nullcontext()
        with cast:
            loss = torch_nets.loss_of(self.net(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss


def add_options(parser):
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="torch.autocast")
    parser.add_argument("--seed", type=int, default=1)
    for what in ("channels-last", "foreach", "fast-lrn"):
        parser.add_argument(f"--{what}", type=int, help="force it on or off (1 or 0)")


def settle(args, net):
    """The settings of --tuned, unless forced; by default torch is unchanged."""
    plain = net in PLAIN_IS_FASTER["bf16" if args.bf16 else "float32"]
    for option, tuned in (("channels_last", not plain), ("foreach", True), ("fast_lrn", True)):
        if getattr(args, option) is None:
            setattr(args, option, args.tuned and tuned)
        setattr(args, option, bool(getattr(args, option)))
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(args.tuned)


def step_times(trainer, spec, batch, seconds, least):
    """Seconds of each step, after a warm-up of a quarter of the time. A few batches alternate,
    so that no input stays in the cache."""
    batches = [(torch.rand(batch, *spec.shape), torch.randint(0, spec.classes, (batch,)))
               for _ in range(8 if spec.classes == 10 else 2)]

    def run(duration, least):
        times, end = [], time.perf_counter() + duration
        while len(times) < least or time.perf_counter() < end:
            begin = time.perf_counter()
            trainer.step(*batches[len(times) % len(batches)])
            times.append(time.perf_counter() - begin)
        return times

    def slowest(value):
        both = torch.tensor([float(value)])
        dist.all_reduce(both, op=dist.ReduceOp.MAX)
        return both.item()

    if dist.is_initialized():  # the ranks must take as many steps
        each = slowest(statistics.median(run(0, 3)))
        run(0, max(2, round(seconds / 4 / each)))
        return run(0, max(least, round(seconds / each)))
    run(seconds / 4, 2)
    return run(seconds, least)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", choices=torch_nets.NETS, required=True)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seconds", type=float, default=8, help="minimum duration")
    parser.add_argument("--steps", type=int, default=5, help="minimum number of steps")
    parser.add_argument("--ddp", metavar="FILE", help="train with other ranks, with this file as rendezvous")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    add_options(parser)
    args = parser.parse_args()
    settle(args, args.net)

    if args.ddp:
        dist.init_process_group("gloo", init_method=f"file://{args.ddp}", rank=args.rank, world_size=args.ranks)
    spec = torch_nets.NETS[args.net]
    batch = args.batch or spec.batch
    trainer = Trainer(torch_nets.build(args.net), args)
    times = step_times(trainer, spec, batch, args.seconds, args.steps)
    print(json.dumps(dict(
        net=args.net, batch=batch, torch=torch.__version__, threads=args.threads, tuned=args.tuned,
        bf16=args.bf16, channels_last=args.channels_last, foreach=args.foreach, steps=len(times),
        images_per_s=round(batch / statistics.median(times), 2),
        peak_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))


if __name__ == "__main__":
    main()
