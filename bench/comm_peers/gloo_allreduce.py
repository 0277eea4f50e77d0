#!/usr/bin/python3
"""A peer of bench/comm.py: gloo's all-reduce through PyTorch, in place, float32, size by
size. A line of JSON each, from rank 0, measured as `dlcore bench comm` does.

    gloo_allreduce.py RANKS SECONDS BYTES...
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist


def block(tensor, iterations):
    """Seconds of one operation, on the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(tensor)
    each = torch.tensor([(time.perf_counter() - start) / iterations], dtype=torch.float64)
    dist.all_reduce(each, op=dist.ReduceOp.MAX)
    return each.item()


def measure(size, seconds):
    tensor, iterations = torch.zeros(size // 4), 1
    while (each := block(tensor, iterations)) * iterations < seconds / 4:
        iterations *= 4
    return block(tensor, max(3, int(seconds / each)))


def run_rank(rank, ranks, seconds, sizes, rendezvous):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]} if ranks <= len(cores) else cores)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    for size in sizes:
        each = measure(size, seconds)
        if rank == 0:
            print(json.dumps(dict(bytes=size, us=each * 1e6)), flush=True)
    dist.destroy_process_group()


def main():
    ranks, seconds, sizes = int(sys.argv[1]), float(sys.argv[2]), [int(word) for word in sys.argv[3:]]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                run_rank(rank, ranks, seconds, sizes, f"{folder}/rendezvous")
                sys.stdout.flush()
                os._exit(0)
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1]]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
