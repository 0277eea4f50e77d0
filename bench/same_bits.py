#!/usr/bin/env python3
"""Trains ten nets in every mode with one or more builds, and compares the weights bit by bit.

    bench/same_bits.py build                         prints the digests
    bench/same_bits.py --write before.json build     and keeps them
    bench/same_bits.py --compare before.json build   and compares with those that were kept
    bench/same_bits.py build-before build            compares two builds
    bench/same_bits.py --only lenet,ssp build        nets and modes with one of these names

A change that moves code must not change a bit: run it before and after. Exits with 1 if a
digest differs or a job fails."""
import argparse
import hashlib
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
# (name, shape of a sample, classes, batch)
MODELS = (("lenet", "1, 28, 28", 10, 12), ("lenet-fashion", "1, 28, 28", 10, 12), ("cifar10-quick", "3, 32, 32", 10, 12),
          ("cifar10-full", "3, 32, 32", 10, 12), ("resnet18", "3, 64, 64", 1000, 4), ("resnet50", "3, 64, 64", 1000, 4),
          ("mobilenet-v2", "3, 64, 64", 1000, 4), ("caffenet", "3, 227, 227", 1000, 2))
# Nets of their own: batch normalization, dropout, sums, a split of channels; and fields.
OWN = {
    "mixed": ("2, 12, 12", 5, 12, """
[conv1]
type = convolution
num_output = 8
kernel_size = 3
pad = 1
[norm1]
type = batch_norm
[relu1]
type = relu
[conv2]
type = convolution
num_output = 8
kernel_size = 3
pad = 1
group = 2
[sum]
type = eltwise
input = conv2, relu1
[drop]
type = dropout
[ip1]
type = inner_product
num_output = 32
[tanh]
type = tanh
[ip2]
type = inner_product
num_output = 5
[loss]
type = softmax_loss
"""),
    "layers": ("1, 6, 6", 3, 24, """
[ip1]
type = inner_product
num_output = 64
[sigmoid]
type = sigmoid
[ip2]
type = inner_product
num_output = 64
[relu]
type = relu
[ip3]
type = inner_product
num_output = 3
[loss]
type = softmax_loss
"""),
}
STRONG = ["--scaling=strong"]
# Left open, the order in which split layers get samples follows from a measurement.
TENSOR = ["--set", "parallel.tensor=2", "--set", "parallel.tensor_schedule=whole_batch"]
# Without names, stages are cut by a measurement as well: the first layer of the second stage of each net.
SECOND_STAGE = {"lenet": "ip1", "lenet-fashion": "ip1", "cifar10-quick": "conv3", "cifar10-full": "conv3",
                "mixed": "conv2", "layers": "ip2"}
PIPELINE = ["--set", "parallel.pipeline=SECOND_STAGE", "--set", "parallel.micro_batches=2"]
SMALL, ALL = tuple(SECOND_STAGE), None
# (name, options, the nets for which it runs)
MODES = (
    ("1 rank", [], ALL),
    ("2 ranks", ["--ranks=2", *STRONG], ALL),
    ("3 ranks", ["--ranks=3", *STRONG], SMALL),
    ("host-staged", ["--ranks=2", "--transport=host-staged", *STRONG], ALL),
    ("p2p-tree", ["--ranks=3", "--transport=p2p-tree"], SMALL),
    ("ucx", ["--ranks=2", "--transport=ucx", *STRONG], SMALL),
    ("accumulation", ["--set", "solver.accumulation_steps=2"], SMALL),
    ("bf16", ["--set", "train.precision=bf16"], ALL),
    ("adamw", ["--ranks=2", "--solver=adamw", *STRONG], SMALL),
    ("averages", ["--ranks=2", "--set", "solver.ema=0.9", *STRONG], SMALL),
    ("clipping", ["--ranks=2", "--set", "solver.clip_gradients=1", *STRONG], SMALL),
    ("tensor", ["--ranks=2", *TENSOR], SMALL),
    ("tensor x data", ["--ranks=4", *TENSOR, *STRONG], SMALL),
    ("pipeline", ["--ranks=2", *PIPELINE], SMALL),
    ("pipeline x data", ["--ranks=4", *PIPELINE, *STRONG], SMALL),
    ("ssp", ["--ranks=2", "--consistency=ssp", "--set", "consistency.staleness=0"], SMALL),
    ("resume", "resume", SMALL),
)


def sections(text):
    """The net's own sections: all but the data, the solver's schedule and the job."""
    parts = re.split(r"(?m)^(?=\[)", text)
    return "".join(p for p in parts if not re.match(r"\[(data|data\.test|solver|train|parallel)\]", p) and p.startswith("["))


def write_net(folder, name):
    if name in OWN:
        shape, classes, batch, body = OWN[name]
    else:
        _, shape, classes, batch = next(m for m in MODELS if m[0] == name)
        body = sections((SOURCE / "models" / f"{name}.ini").read_text())
    path = folder / f"{name}.ini"
    path.write_text(f"""[data]
source = synthetic
shape = {shape}
classes = {classes}
samples = {8 * batch}
kind = noise
batch = {batch}
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.01
weight_decay = 0.0005
[train]
iterations = {3 if name not in SMALL else 8}
seed = 7
{body}""")
    return path


def digest(checkpoint):
    """Of names, shapes and values; not of the metadata, which has a time."""
    data = checkpoint.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    state = hashlib.sha256()
    for name in sorted(header):
        if name != "__metadata__":
            begin, end = header[name]["data_offsets"]
            state.update(json.dumps([name, header[name]["dtype"], header[name]["shape"]]).encode())
            state.update(data[8 + length + begin:8 + length + end])
    return state.hexdigest()[:16]


def train(build, net, folder, options):
    command = [str(build / "bin" / "dlcore"), "train", str(net), "--threads=1", "-q", f"--run-dir={folder}", *options]
    if "--solver=adamw" not in options:
        command += ["--set", "solver.momentum=0.9"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if run.returncode:
        return f"exit code {run.returncode}: {run.stderr.strip().splitlines()[-1:]}"
    return digest(max(pathlib.Path(folder).glob("*.safetensors")))


def try_mode(build, net, folder, options):
    if options != "resume":
        stage = SECOND_STAGE.get(net.stem, "")
        return train(build, net, folder, [o.replace("SECOND_STAGE", stage) for o in options])
    first = train(build, net, folder, ["--ranks=2", "--iterations=3", *STRONG])
    if first.startswith("exit"):
        return first
    return train(build, net, folder, ["--ranks=2", f"--resume={folder}", *STRONG])


def digests(build, wanted):
    found = {}
    for name in [m[0] for m in MODELS] + list(OWN):
        for mode, options, nets in MODES:
            if (nets and name not in nets) or (wanted and name not in wanted and mode not in wanted):
                continue
            with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
                net = write_net(pathlib.Path(folder), name)
                found[f"{name}, {mode}"] = try_mode(build, net, f"{folder}/run", options)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--compare", metavar="FILE")
    parser.add_argument("--only", default="", metavar="NAMES")
    parser.add_argument("builds", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    wanted = [n for n in args.only.split(",") if n]
    tables = [digests(build.resolve(), wanted) for build in args.builds]
    if args.compare:
        tables.insert(0, json.loads(pathlib.Path(args.compare).read_text()))
    wrong = 0
    for name, value in tables[-1].items():
        values = [table.get(name) for table in tables]
        same = len(set(values)) == 1 and not value.startswith("exit")
        wrong += not same
        print(f"{name:32} {value if same else '  '.join(map(str, values)) + '  WRONG'}")
    if args.write:
        pathlib.Path(args.write).write_text(json.dumps(tables[-1], indent=1) + "\n")
    print(f"{len(tables[-1]) - wrong} right, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main())
