"""Steps of every solver with every option, by rule_steps, for comparison with references."""

import array
import math
import os
import random
import subprocess
import sys

STEPS = 200

# Number of elements, lr_mult and decay_mult of each parameter; a bias has no decay.
SEGMENTS = ((37, 1, 1), (5, 2, 0), (64, 1, 1), (9, 0.5, 0), (90, 1, 0.5), (1, 1, 1))
COUNT = sum(count for count, _, _ in SEGMENTS)

# Solver, learning rate, weight decay, options. The first case of a solver is the simplest;
# the others must give other weights.
CASES = (
    ("sgd", 0.01, 0, {"momentum": 0}),
    ("sgd", 0.01, 0.1, {"momentum": 0}),
    ("sgd", 0.003, 0.1, {}),
    ("sgd", 0.003, 0, {"nesterov": True, "momentum": 0.8}),
    ("sgd", 0.003, 0, {"momentum_form": "pytorch"}),
    ("sgd", 0.003, 0.1, {"momentum_form": "pytorch", "dampening": 0.5}),
    ("sgd", 0.003, 0.1, {"momentum_form": "pytorch", "nesterov": True, "momentum": 0.8}),
    ("adagrad", 0.05, 0, {}),
    ("adagrad", 0.05, 0.1, {}),
    ("adagrad", 0.05, 0, {"initial_accumulator": 4}),
    ("adagrad", 0.05, 0, {"learning_rate_decay": 0.01}),
    ("adagrad", 0.05, 0, {"epsilon": 0.5}),
    ("rmsprop", 0.003, 0, {}),
    ("rmsprop", 0.003, 0.1, {}),
    ("rmsprop", 0.003, 0, {"alpha": 0.8}),
    ("rmsprop", 0.003, 0, {"epsilon": 0.1}),
    ("rmsprop", 0.001, 0, {"momentum": 0.9}),
    ("rmsprop", 0.003, 0, {"centered": True}),
    ("rmsprop", 0.001, 0.1, {"centered": True, "momentum": 0.8, "alpha": 0.95}),
    ("adadelta", 1, 0, {}),
    ("adadelta", 0.5, 0.1, {}),
    ("adadelta", 1, 0, {"rho": 0.95}),
    ("adadelta", 1, 0, {"epsilon": 1e-4}),
    ("adam", 0.003, 0, {}),
    ("adam", 0.003, 0.1, {}),
    ("adam", 0.003, 0, {"beta1": 0.5}),
    ("adam", 0.003, 0, {"beta1": 0}),
    ("adam", 0.003, 0, {"beta2": 0.9}),
    ("adam", 0.003, 0, {"epsilon": 0.1}),
    ("adam", 0.003, 0, {"beta2": 0.8, "amsgrad": True}),
    ("adamw", 0.003, 0, {}),
    ("adamw", 0.003, 0.5, {}),
    ("adamw", 0.003, 0.5, {"beta1": 0.8, "beta2": 0.99, "epsilon": 0.01}),
    ("adamw", 0.003, 0.5, {"beta2": 0.8, "amsgrad": True}),
    ("lars", 2, 0, {"momentum": 0}),
    ("lars", 2, 0, {}),
    ("lars", 2, 0.5, {}),
    ("lars", 2, 0.5, {"trust_undecayed": True}),
    ("lars", 1, 0.5, {"nesterov": True, "momentum": 0.8}),
    ("lars", 2, 0, {"trust_coefficient": 0.005}),
    ("lars", 2, 0, {"epsilon": 3}),
    ("lamb", 0.003, 0, {}),
    ("lamb", 0.003, 0.5, {}),
    ("lamb", 0.003, 0.5, {"trust_undecayed": True}),
    ("lamb", 0.003, 0, {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.1}),
    ("lamb", 0.003, 0, {"bias_correction": False}),
    ("lamb", 0.003, 0, {"min_weight_norm": 3}),
    ("lamb", 0.003, 0, {"max_weight_norm": 2}),
    ("lamb", 0.003, 0, {"max_trust": 0.3}),
)


def float32(values):
    return array.array("f", values)


class Inputs:
    """Learning rates, weights and gradients, float32 numbers that look random."""

    def __init__(self, learning_rate):
        source = random.Random(7)
        self.rates = float32(learning_rate * (1 + 0.5 * math.sin(t / 10)) for t in range(STEPS))
        self.weights = float32(source.gauss(0, 0.5) for _ in range(COUNT))
        means = [source.gauss(0, 0.5) for _ in range(COUNT)]
        scales = [math.exp(source.gauss(0, 1)) for _ in range(COUNT)]
        scales[3] = 0  # the gradient of this weight is always 0
        self.gradients = [float32(scale * (mean + source.gauss(0, 1))
                                  for mean, scale in zip(means, scales)) for _ in range(STEPS)]


def require_device():
    """Exits as a skipped test where the device cannot be used."""
    done = subprocess.run([os.environ["RULE_STEPS"], "sgd", "0", "0", "1:1:1"],
                          input=bytes(4), stdout=subprocess.PIPE, timeout=120)
    if done.returncode == 77:
        print(done.stdout.decode(), end="")
        sys.exit(77)


def steps_of(solver, inputs, weight_decay, options):
    """The weights after all steps, and the slots, as rule_steps makes them."""
    texts = [f"{key}={str(value).lower()}" for key, value in options.items()]
    sizes = [":".join(map(str, segment)) for segment in SEGMENTS]
    data = b"".join(part.tobytes() for part in [inputs.rates, inputs.weights, *inputs.gradients])
    done = subprocess.run([os.environ["RULE_STEPS"], solver, str(STEPS), str(weight_decay),
                           *sizes, *texts], input=data, capture_output=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode())
    numbers = float32([])
    numbers.frombytes(done.stdout)
    return [numbers[i:i + COUNT] for i in range(0, len(numbers), COUNT)]


def parts(numbers):
    """One list for each parameter."""
    found, begin = [], 0
    for count, _, _ in SEGMENTS:
        found.append(list(numbers[begin:begin + count]))
        begin += count
    return found


def distance(expected, found):
    """The largest difference, relative to the largest number of the parameter."""
    most = 0
    for wanted, got in zip(parts(expected), parts(found)):
        scale = max(map(abs, wanted)) or 1
        most = max(most, max(abs(a - b) for a, b in zip(wanted, got)) / scale)
    return most
