#!/usr/bin/env python3
"""The peer on a GPU: PyTorch training a net of torch_nets.py on made-up samples that are
in the GPU's memory already, forward + backward + momentum update, channels_last.

    torch_gpu.py --net resnet50 --batch 256 --precision fp16 [--compile] [--seconds 3]

The last line of stdout is one JSON object.
"""
import argparse
import json
import statistics
import time

BEGAN = time.perf_counter()

import torch  # noqa: E402
import torch_nets  # noqa: E402

AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_step(args, spec):
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != "float32"
    net = torch_nets.build(args.net).cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")
    forward = torch.compile(net) if args.compile else net
    batches = [(torch.rand(args.batch, *spec.shape, device="cuda").contiguous(memory_format=torch.channels_last),
                torch.randint(0, spec.classes, (args.batch,), device="cuda")) for _ in range(2)]

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", choices=torch_nets.NETS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16", "fp16"), default="tf32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    step = make_step(args, torch_nets.NETS[args.net])
    step(0)
    torch.cuda.synchronize()
    first = time.perf_counter() - BEGAN
    each = timed(step, 5)
    rounds = max(3, min(9, int(args.seconds / max(each, 1e-4) / 20)))
    steps = max(3, int(args.seconds / rounds / max(each, 1e-4)))
    times = [timed(step, steps) for _ in range(rounds)]
    print(json.dumps(dict(
        net=args.net, batch=args.batch, precision=args.precision, compiled=args.compile, torch=torch.__version__,
        images_per_s=round(args.batch / statistics.median(times), 1), first_step_seconds=round(first, 2),
        peak_bytes=torch.cuda.max_memory_reserved())))


if __name__ == "__main__":
    main()
