#!/usr/bin/python3
"""Trains the same net from the same weights on the same samples with dlcore and with PyTorch,
once for every solver and for everything that the core adds to a solver, and prints the largest
difference of any weight after 200 iterations, relative to the largest of its tensor.

    bench/rules_beside_torch.py [--write docs/results/solvers.md] [--only TEXT]

PyTorch trains in double precision, so that only dlcore's rounding is seen, and once more in
float32 to show PyTorch's own. What PyTorch does not have is compared with the formulas of
tests/unit/plugins/solvers/rules/test_rules.py, with the gradients of PyTorch.
"""
import argparse
import copy
import functools
import gzip
import json
import math
import pathlib
import platform
import struct
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/unit/plugins/solvers/rules"))
import test_rules  # noqa: E402

STEPS, BATCH, SAMPLES, CLASSES, SIZE, TEST_INTERVAL = 200, 12, 252, 4, 8, 10
LIMIT = 1e-5
MARK = "<!-- report: made by bench/rules_beside_torch.py -->\n"

# tanh, as a relu whose input is nearly 0 would turn a rounding into another gradient.
NET = """[net]
name = shapes
[data]
source = idx
images = train-images.gz
labels = train-labels.gz
batch = {batch}
shuffle = no
transforms = normalize(scale=0.00390625)
[data.test]
source = idx
images = train-images.gz
labels = train-labels.gz
batch = 63
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
[train]
threads = 1
test_interval = {test_interval}
checkpoint_minutes = 0
keep_best = no
[conv1]
type = convolution
num_output = 5
kernel_size = 3
weight_filler = gaussian(0.4)
bias_filler = gaussian(0.2)
[tanh1]
type = tanh
[conv2]
type = convolution
num_output = 8
kernel_size = 3
stride = 2
weight_filler = gaussian(0.2)
bias_filler = gaussian(0.2)
[tanh2]
type = tanh
[ip1]
type = inner_product
num_output = 11
weight_filler = gaussian(0.2)
bias_filler = gaussian(0.2)
[tanh3]
type = tanh
[ip2]
type = inner_product
num_output = 4
weight_filler = gaussian(0.3)
bias_filler = gaussian(0.2)
[loss]
type = softmax_loss
"""
LAYERS = ("conv1", "conv2", "ip1", "ip2")


class Net(nn.Sequential):
    """The same layers, whose parameters have dlcore's names."""

    def __init__(self, start, dtype):
        convolutions = nn.Conv2d(1, 5, 3), nn.Conv2d(5, 8, 3, 2)
        products = nn.Linear(32, 11), nn.Linear(11, CLASSES)
        super().__init__(convolutions[0], nn.Tanh(), convolutions[1], nn.Tanh(), nn.Flatten(),
                         products[0], nn.Tanh(), products[1])
        self.to(dtype)
        self.names = {f"{layer}.{part}": getattr(module, name)
                      for layer, module in zip(LAYERS, convolutions + products)
                      for part, name in (("weight", "weight"), ("bias", "bias"))}
        for name, parameter in self.names.items():
            parameter.data.copy_(start[name].reshape(parameter.shape))


# ---- What PyTorch has not ---------------------------------------------------------


class Formula(torch.optim.Optimizer):
    """A rule of test_rules.py, as an optimizer."""

    def __init__(self, groups, lr, rule, weight_decay=0, **options):
        super().__init__(groups, dict(lr=lr, weight_decay=weight_decay, decay_mult=1))
        self.rule, self.options, self.t = getattr(test_rules, rule), options, 0
        self.known = {}

    def step(self, closure=None):
        self.t += 1
        for group in self.param_groups:
            for tensor in group["params"]:
                p = self.known.setdefault(tensor, test_rules.Parameter(None, 1, 1))
                p.w, p.decay_mult = tensor.detach().flatten().tolist(), group["decay_mult"]
                test_rules.step_of(self.rule, p, self.t, group["lr"], group["weight_decay"],
                                   tensor.grad.flatten().tolist(), self.options)
                tensor.data.copy_(torch.tensor(p.w, dtype=tensor.dtype).reshape(tensor.shape))


def formula(name, **options):
    return functools.partial(Formula, rule=name, **options)


# ---- Cases ------------------------------------------------------------------------


class Case:
    """Settings of dlcore, and what makes the same of PyTorch: an optimizer, a schedule, and
    what is done to gradients before a step. mults: learning rate and decay by parameter."""

    def __init__(self, name, sets, optimizer, *, peer=None, schedule=None, gradients=None,
                 mults=None, accumulate=1, ema=None, **options):
        self.name, self.sets, self.peer = name, sets, peer or optimizer.__name__
        self.make = functools.partial(optimizer, **options)
        self.schedule, self.gradients, self.ema = schedule, gradients, ema
        self.mults, self.accumulate = mults or {}, accumulate

    def options(self):
        sets = {f"solver.{key}": value for key, value in self.sets.items()}
        for name, (rate, decay) in self.mults.items():
            layer, part = name.split(".")
            sets[f"{layer}.{part}_lr_mult"] = rate
            sets[f"{layer}.{part}_decay_mult"] = decay
        return [f"--set={key}={value}" for key, value in sets.items()]

    def optimizer(self, net):
        whole = self.make([nn.Parameter(torch.zeros(1))]).defaults
        groups = []
        for name, parameter in net.names.items():
            rate, decay = self.mults.get(name, (1, 1))
            groups.append({"params": [parameter], "lr": whole["lr"] * rate, "decay_mult": decay,
                           "weight_decay": whole["weight_decay"] * decay})
        return self.make(groups)


def l1(amount):
    def add(parameters):
        for p in parameters:
            p.grad += amount * p.detach().sign()
    return add


def norm(most):
    return lambda parameters: nn.utils.clip_grad_norm_(parameters, most)


def value(most):
    return lambda parameters: nn.utils.clip_grad_value_(parameters, most)


def both(first, second):
    return lambda parameters: (first(parameters), second(parameters))


SGD, ADAM = torch.optim.SGD, torch.optim.Adam
MULTS = {"conv1.weight": (0.5, 1), "conv1.bias": (2, 0), "conv2.bias": (1, 0),
         "ip1.weight": (1, 0.5), "ip2.bias": (0.25, 3)}
TORCH_SGD = {"type": "sgd", "momentum_form": "pytorch", "learning_rate": 0.05}


def scheduled(name, sets, schedule, **options):
    return Case(f"policy = {name}", {**TORCH_SGD, "policy": name.split(",")[0], **sets}, SGD,
                peer=schedule.__name__, schedule=functools.partial(schedule, **options),
                lr=0.05, momentum=0.9)


RULES = [
    Case("sgd", {"type": "sgd", "momentum": 0, "learning_rate": 0.05}, SGD, lr=0.05),
    Case("sgd, momentum", {"type": "sgd", "learning_rate": 0.05}, SGD, lr=0.05, momentum=0.9),
    Case("sgd, nesterov", {"type": "sgd", "nesterov": "yes", "learning_rate": 0.05},
         formula("sgd", nesterov=True), peer="formula", lr=0.05),
    Case("sgd, momentum_form = pytorch, dampening", {**TORCH_SGD, "dampening": 0.1}, SGD,
         lr=0.05, momentum=0.9, dampening=0.1),
    Case("sgd, momentum_form = pytorch, nesterov", {**TORCH_SGD, "nesterov": "yes"}, SGD,
         lr=0.05, momentum=0.9, nesterov=True),
    Case("adagrad", {"type": "adagrad", "learning_rate": 0.05}, torch.optim.Adagrad, lr=0.05),
    Case("adagrad, learning_rate_decay, initial_accumulator",
         {"type": "adagrad", "learning_rate": 0.05, "learning_rate_decay": 0.01,
          "initial_accumulator": 0.1}, torch.optim.Adagrad, lr=0.05, lr_decay=0.01,
         initial_accumulator_value=0.1),
    Case("rmsprop", {"type": "rmsprop", "learning_rate": 0.003}, torch.optim.RMSprop, lr=0.003),
    Case("rmsprop, centered, momentum",
         {"type": "rmsprop", "learning_rate": 0.001, "centered": "yes", "momentum": 0.5,
          "epsilon": 1e-4}, torch.optim.RMSprop, lr=0.001, centered=True, momentum=0.5, eps=1e-4),
    Case("adadelta", {"type": "adadelta", "learning_rate": 1}, torch.optim.Adadelta, lr=1),
    Case("adam", {"type": "adam", "learning_rate": 0.003}, ADAM, lr=0.003),
    Case("adam, amsgrad", {"type": "adam", "learning_rate": 0.003, "amsgrad": "yes"}, ADAM,
         lr=0.003, amsgrad=True),
    Case("adamw", {"type": "adamw", "learning_rate": 0.003, "weight_decay": 0.1},
         torch.optim.AdamW, lr=0.003, weight_decay=0.1),
    Case("adamw, amsgrad",
         {"type": "adamw", "learning_rate": 0.003, "weight_decay": 0.1, "amsgrad": "yes"},
         torch.optim.AdamW, lr=0.003, weight_decay=0.1, amsgrad=True),
    Case("lars", {"type": "lars", "learning_rate": 0.2, "weight_decay": 0.01,
                  "trust_coefficient": 0.01},
         formula("lars", trust_coefficient=0.01), peer="formula", lr=0.2, weight_decay=0.01),
    Case("lars, nesterov", {"type": "lars", "learning_rate": 0.05, "nesterov": "yes",
                            "trust_coefficient": 0.01},
         formula("lars", trust_coefficient=0.01, nesterov=True), peer="formula", lr=0.05),
    Case("lamb", {"type": "lamb", "learning_rate": 0.003}, formula("lamb"), peer="formula",
         lr=0.003, weight_decay=0.01),
]

SETTINGS = [
    Case("weight_decay", {**TORCH_SGD, "weight_decay": 0.01}, SGD, lr=0.05, momentum=0.9,
         weight_decay=0.01),
    Case("weight_decay, adam", {"type": "adam", "learning_rate": 0.003, "weight_decay": 0.01},
         ADAM, lr=0.003, weight_decay=0.01),
    Case("lr_mult, decay_mult", {**TORCH_SGD, "weight_decay": 0.01}, SGD, mults=MULTS, lr=0.05,
         momentum=0.9, weight_decay=0.01),
    Case("lr_mult, decay_mult, adamw",
         {"type": "adamw", "learning_rate": 0.003, "weight_decay": 0.1}, torch.optim.AdamW,
         mults=MULTS, lr=0.003, weight_decay=0.1),
    Case("lr_mult, decay_mult, lars",
         {"type": "lars", "learning_rate": 0.2, "weight_decay": 0.01, "trust_coefficient": 0.01},
         formula("lars", trust_coefficient=0.01), peer="formula", mults=MULTS, lr=0.2,
         weight_decay=0.01),
    Case("l1_decay", {**TORCH_SGD, "l1_decay": 1e-4}, SGD, gradients=l1(1e-4),
         peer="the gradient + 1e-4 sign(w)", lr=0.05, momentum=0.9),
    Case("clip_gradients", {**TORCH_SGD, "clip_gradients": 0.3}, SGD, gradients=norm(0.3),
         peer="clip_grad_norm_", lr=0.05, momentum=0.9),
    Case("clip_value", {**TORCH_SGD, "clip_value": 0.01}, SGD, gradients=value(0.01),
         peer="clip_grad_value_", lr=0.05, momentum=0.9),
    Case("clip_gradients, clip_value, weight_decay, adam",
         {"type": "adam", "learning_rate": 0.003, "clip_value": 0.02, "clip_gradients": 0.1,
          "weight_decay": 0.01}, ADAM, gradients=both(norm(0.1), value(0.02)),
         peer="clip_grad_norm_, clip_grad_value_", lr=0.003, weight_decay=0.01),
    Case("accumulation_steps = 3", {**TORCH_SGD, "accumulation_steps": 3}, SGD, accumulate=3,
         peer="3 backward passes", lr=0.05, momentum=0.9),
    Case("ema = 0.98", {**TORCH_SGD, "ema": 0.98}, SGD, ema=0.98, peer="swa_utils.AveragedModel",
         lr=0.05, momentum=0.9),
]

SCHEDULES = [
    scheduled("step", {"step_size": 40, "gamma": 0.5}, lr_scheduler.StepLR, step_size=40,
              gamma=0.5),
    scheduled("multistep", {"step_values": "30,70,150", "gamma": 0.3}, lr_scheduler.MultiStepLR,
              milestones=[30, 70, 150], gamma=0.3),
    scheduled("exp", {"gamma": 0.99}, lr_scheduler.ExponentialLR, gamma=0.99),
    scheduled("poly", {"power": 2}, lr_scheduler.PolynomialLR, total_iters=STEPS, power=2),
    scheduled("inv", {"gamma": 0.01, "power": 0.75}, lr_scheduler.LambdaLR,
              lr_lambda=lambda i: (1 + 0.01 * i) ** -0.75),
    scheduled("sigmoid", {"gamma": -0.05, "step_size": 100}, lr_scheduler.LambdaLR,
              lr_lambda=lambda i: 1 / (1 + math.exp(0.05 * (i - 100)))),
    scheduled("cosine", {"min_learning_rate": 0.001}, lr_scheduler.CosineAnnealingLR,
              T_max=STEPS, eta_min=0.001),
    scheduled("cosine_restarts", {"min_learning_rate": 0.001, "step_size": 30,
                                  "period_mult": 2},
              lr_scheduler.CosineAnnealingWarmRestarts, T_0=30, T_mult=2, eta_min=0.001),
    scheduled("one_cycle", {"min_learning_rate": 0.001}, lr_scheduler.OneCycleLR, max_lr=0.05,
              total_steps=STEPS, final_div_factor=2, cycle_momentum=False),
    scheduled("one_cycle, cycle_momentum",
              {"min_learning_rate": 0.001, "cycle_momentum": "yes"}, lr_scheduler.OneCycleLR,
              max_lr=0.05, total_steps=STEPS, final_div_factor=2),
    scheduled("plateau", {"gamma": 0.8, "patience": 0, "threshold": 0.15},
              lr_scheduler.ReduceLROnPlateau, factor=0.8, patience=0, threshold=0.15),
    scheduled("fixed, warmup", {"warmup": 50, "warmup_learning_rate": 0.005},
              lr_scheduler.LinearLR, start_factor=0.1, total_iters=50),
]


# ---- Both sides -------------------------------------------------------------------


class Samples:
    """Images of classes that differ in a stripe, as files for dlcore and as tensors."""

    def __init__(self, folder):
        generator = torch.Generator().manual_seed(3)
        self.labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
        self.images = torch.randint(160, (SAMPLES, SIZE, SIZE), generator=generator)
        for i, label in enumerate(self.labels):
            self.images[i, 2 * label:2 * label + 2] += 95
        for kind, header, data in (("images", (0x803, SAMPLES, SIZE, SIZE), self.images),
                                   ("labels", (0x801, SAMPLES), self.labels)):
            with gzip.open(folder / f"train-{kind}.gz", "wb") as file:
                file.write(struct.pack(f">{len(header)}I", *header))
                file.write(bytes(data.flatten().tolist()))

    def batch(self, i, dtype):
        chosen = torch.arange(i * BATCH, (i + 1) * BATCH) % SAMPLES
        return self.images[chosen][:, None].to(dtype) / 256, self.labels[chosen]

    def all(self, dtype):
        return self.images[:, None].to(dtype) / 256, self.labels


def tensors(path):
    data = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    return {name: torch.frombuffer(bytearray(data[begin + e["data_offsets"][0]:begin + e["data_offsets"][1]]),
                                   dtype=torch.float32).double()
            for name, e in json.loads(data[8:begin]).items() if e.get("dtype") == "F32"}


def dlcore(folder, case, steps, *more):
    net = folder / "shapes.ini"
    tests = case.sets.get("policy") == "plateau"
    net.write_text(NET.format(batch=BATCH, test_interval=TEST_INTERVAL if tests else 0))
    done = subprocess.run(
        [ROOT / "build/bin/dlcore", "train", net, "--json", "--device=cpu", f"--iterations={steps}",
         f"--run-dir={tempfile.mkdtemp(dir=folder)}", *case.options(), *more],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case.name}: {done.stderr}")
    return tensors(json.loads(done.stdout)["checkpoint"])


def pytorch(case, samples, start, dtype):
    net = Net(start, dtype)
    optimizer = case.optimizer(net)
    schedule = case.schedule and case.schedule(optimizer)
    is_plateau = isinstance(schedule, lr_scheduler.ReduceLROnPlateau)
    average = None
    if case.ema:
        average = swa_utils.AveragedModel(net, avg_fn=lambda a, w, n: case.ema * a + (1 - case.ema) * w)
        average.update_parameters(net)
    for i in range(STEPS):
        optimizer.zero_grad()
        for part in range(case.accumulate):
            images, labels = samples.batch(i * case.accumulate + part, dtype)
            (nn.functional.cross_entropy(net(images), labels) / case.accumulate).backward()
        if case.gradients:
            case.gradients(list(net.parameters()))
        optimizer.step()
        if is_plateau:
            if (i + 1) % TEST_INTERVAL == 0:
                with torch.no_grad():
                    images, labels = samples.all(dtype)
                    schedule.step(nn.functional.cross_entropy(net(images), labels).item())
        elif schedule:
            schedule.step()
        if average:
            average.update_parameters(net)
    found = {name: p.detach().flatten().double() for name, p in net.names.items()}
    if average:
        kept = dict(zip((id(p) for p in net.parameters()), average.module.parameters()))
        found.update((f"ema/{name}", kept[id(p)].detach().flatten().double())
                     for name, p in net.names.items())
    return found


def distance(expected, found):
    return max(((found[name] - wanted).abs().max() / wanted.abs().max()).item()
               for name, wanted in expected.items())


def compare(folder, samples, case):
    start = dlcore(folder, case, 0)
    found = dlcore(folder, case, STEPS)
    expected = pytorch(case, samples, copy.deepcopy(start), torch.float64)
    single = pytorch(case, samples, copy.deepcopy(start), torch.float32)
    weights = {name: w for name, w in start.items() if "/" not in name}
    return distance(expected, found), distance(expected, single), distance(weights, found)


def rows(folder, samples, cases):
    for case in cases:
        off, own, moved = compare(folder, samples, case)
        print(f"{case.name:50} {off:.1e} {own:.1e} {moved:.2g}{'' if off < LIMIT else '  TOO FAR'}", flush=True)
        yield off, [case.name, case.peer, f"{off:.1e}", f"{own:.1e}", f"{moved:.2g}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--write", type=pathlib.Path, help="page into which the report is put, below its marker")
    args = parser.parse_args()
    torch.set_num_threads(1)
    made, worst = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        samples = Samples(folder)
        for what, cases in (("solver", RULES), ("setting", SETTINGS), ("schedule", SCHEDULES)):
            done = list(rows(folder, samples, [case for case in cases if args.only in case.name]))
            worst = max([worst, *(off for off, _ in done)])
            made.append(report.table([what, "compared with", "dlcore", "PyTorch in float32", "change of the weights"],
                                     [row for _, row in done]))
    version = subprocess.run([ROOT / "build/bin/dlcore", "--version"], capture_output=True, text=True,
                             check=True).stdout.splitlines()[0]
    text = f"{version}; PyTorch {torch.__version__}; {platform.machine()}.\n\n" + "\n\n".join(made) + "\n"
    if args.write:
        head = args.write.read_text().split(MARK)[0] if args.write.exists() else "# Solvers\n\n"
        args.write.write_text(head + MARK + "\n" + text)
    return worst >= LIMIT


if __name__ == "__main__":
    sys.exit(main())
