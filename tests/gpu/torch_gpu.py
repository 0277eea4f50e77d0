#!/usr/bin/env python3
"""PyTorch on a GPU, for comparison: trains nets of torch_nets.py on synthetic samples that
are in the GPU's memory already, forward + backward + momentum update, channels_last.

    torch_gpu.py --precision fp16 [--compile] [--seconds 3] resnet50:256 lenet:64 ...

Prints one line of JSON per net. `first_step_seconds` of the first net counts from the start
of the process, of the others from the end of the previous net.
"""
import argparse
import gc
import json
import statistics
import time

BEGAN = time.perf_counter()

import torch  # noqa: E402
import torch_nets  # noqa: E402

AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_step(args, name, batch):
    spec = torch_nets.NETS[name]
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != "float32"
    net = torch_nets.build(name).cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")
    forward = torch.compile(net) if args.compile else net
    batches = [(torch.rand(batch, *spec.shape, device="cuda").contiguous(memory_format=torch.channels_last),
                torch.randint(0, spec.classes, (batch,), device="cuda")) for _ in range(2)]

    def step(i):
        images, labels = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=AMP.get(args.precision), enabled=args.precision in AMP):
            loss = torch_nets.loss_of(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def timed(step, steps):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(steps):
        step(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def contest(args, name, batch, began):
    step = make_step(args, name, batch)
    step(0)
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    each = timed(step, 5)
    rounds = max(3, min(9, int(args.seconds / max(each, 1e-4) / 20)))
    steps = max(3, int(args.seconds / rounds / max(each, 1e-4)))
    times = [timed(step, steps) for _ in range(rounds)]
    print(json.dumps(dict(
        net=name, batch=batch, precision=args.precision, compiled=args.compile, torch=torch.__version__,
        images_per_s=round(batch / statistics.median(times), 1), first_step_seconds=round(first, 2),
        peak_bytes=torch.cuda.max_memory_reserved())), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="+", metavar="NET:BATCH")
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16", "fp16"), default="tf32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    began = BEGAN
    for text in args.nets:
        name, batch = text.split(":")
        contest(args, name, int(batch), began)
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()


if __name__ == "__main__":
    main()
