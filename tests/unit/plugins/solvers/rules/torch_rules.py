#!/usr/bin/env python3
"""Compares the steps of the solvers that PyTorch has, too, with those of torch.optim."""

import sys
import unittest

from rule_cases import CASES, SEGMENTS, STEPS, Inputs, distance, parts, require_device, steps_of

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)

TOLERANCE = 1e-5

OPTIMIZERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad,
              "rmsprop": torch.optim.RMSprop, "adadelta": torch.optim.Adadelta,
              "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
NAMES = {"epsilon": "eps", "learning_rate_decay": "lr_decay",
         "initial_accumulator": "initial_accumulator_value"}


def torch_options(solver, options):
    made = {NAMES.get(key, key): value for key, value in options.items()
            if key not in ("beta1", "beta2", "momentum_form")}
    if solver in ("adam", "adamw"):
        made["betas"] = (options.get("beta1", 0.9), options.get("beta2", 0.999))
    if solver == "sgd":
        made.setdefault("momentum", 0.9)
    return made


def is_known(solver, options):
    """Caffe's momentum is the same as PyTorch's only without momentum, as the learning rate
    changes."""
    return solver in OPTIMIZERS and (solver != "sgd" or options.get("momentum") == 0 or
                                     options.get("momentum_form") == "pytorch")


def torch_steps(solver, inputs, weight_decay, options):
    """In double precision, so that only our rounding remains."""
    parameters = [torch.tensor(w, dtype=torch.float64, requires_grad=True)
                  for w in parts(inputs.weights)]
    groups = [{"params": [p], "weight_decay": weight_decay * decay_mult}
              for p, (_, _, decay_mult) in zip(parameters, SEGMENTS)]
    optimizer = OPTIMIZERS[solver](groups, lr=1, **torch_options(solver, options))
    for t in range(STEPS):
        for group, (_, lr_mult, _) in zip(optimizer.param_groups, SEGMENTS):
            group["lr"] = inputs.rates[t] * lr_mult
        for p, g in zip(parameters, parts(inputs.gradients[t])):
            p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
    return [x for p in parameters for x in p.detach().tolist()]


class TorchRules(unittest.TestCase):
    def test_steps(self):
        for solver, rate, decay, options in CASES:
            if not is_known(solver, options):
                continue
            with self.subTest(solver=solver, rate=rate, decay=decay, **options):
                inputs = Inputs(rate)
                expected = torch_steps(solver, inputs, decay, options)
                found = steps_of(solver, inputs, decay, options)[0]
                self.assertLess(distance(expected, found), TOLERANCE)


if __name__ == "__main__":
    require_device()
    unittest.main(verbosity=2)
