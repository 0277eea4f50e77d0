#!/usr/bin/env python3
"""Compares the steps of every solver with references in double precision, which are written
from the published formulas that each one names."""

import math
import unittest

from rule_cases import CASES, SEGMENTS, STEPS, Inputs, distance, parts, require_device, steps_of

TOLERANCE = 1e-5


def norm(numbers):
    return math.sqrt(sum(x * x for x in numbers))


def sgd(p, t, lr, g, momentum=0.9, nesterov=False, momentum_form="caffe", dampening=0):
    """Sutskever et al. 2013, equations 1-4, as Caffe has them: the gradient is that of the
    point ahead, where the weights are kept. PyTorch's form as torch.optim.SGD documents it."""
    for i, x in enumerate(g):
        old = p.state("v", i)
        if momentum_form == "caffe":
            v = p.keep("v", i, momentum * old + lr * x)
            p.w[i] -= v + momentum * (v - old) if nesterov else v
        else:
            b = p.keep("v", i, momentum * old + (1 - dampening) * x if t > 1 else x)
            p.w[i] -= lr * (x + momentum * b if nesterov else b)


def adagrad(p, t, lr, g, initial_accumulator=0, learning_rate_decay=0, epsilon=1e-10):
    """Duchi et al. 2011, figure 1 (diagonal); lr_decay as torch.optim.Adagrad documents it."""
    rate = lr / (1 + (t - 1) * learning_rate_decay)
    for i, x in enumerate(g):
        h = p.state("h", i, initial_accumulator) + x ** 2
        p.keep("h", i, h)
        p.w[i] -= rate * x / (math.sqrt(h) + epsilon)


def rmsprop(p, t, lr, g, alpha=0.99, epsilon=1e-8, momentum=0, centered=False):
    """Tieleman and Hinton 2012, slide 29; Graves 2013, equations 38-41; epsilon outside of the
    root, as torch.optim.RMSprop documents it."""
    for i, x in enumerate(g):
        n = p.keep("n", i, alpha * p.state("n", i) + (1 - alpha) * x ** 2)
        m = p.keep("g", i, alpha * p.state("g", i) + (1 - alpha) * x) if centered else 0
        d = p.keep("d", i, momentum * p.state("d", i) + x / (math.sqrt(n - m ** 2) + epsilon))
        p.w[i] -= lr * d


def adadelta(p, t, lr, g, rho=0.9, epsilon=1e-6):
    """Zeiler 2012, algorithm 1."""
    def rms(mean):
        return math.sqrt(mean + epsilon)
    for i, x in enumerate(g):
        squares = p.keep("E[g2]", i, rho * p.state("E[g2]", i) + (1 - rho) * x ** 2)
        dx = -rms(p.state("E[dx2]", i)) / rms(squares) * x
        p.keep("E[dx2]", i, rho * p.state("E[dx2]", i) + (1 - rho) * dx ** 2)
        p.w[i] += lr * dx


def adam(p, t, lr, g, beta1=0.9, beta2=0.999, epsilon=1e-8, amsgrad=False):
    """Kingma and Ba 2015, algorithm 1; Reddi et al. 2018, algorithm 2."""
    for i, x in enumerate(g):
        m = p.keep("m", i, beta1 * p.state("m", i) + (1 - beta1) * x)
        v = p.keep("v", i, beta2 * p.state("v", i) + (1 - beta2) * x ** 2)
        if amsgrad:
            v = p.keep("max v", i, max(p.state("max v", i), v))
        p.w[i] -= lr * (m / (1 - beta1 ** t)) / (math.sqrt(v / (1 - beta2 ** t)) + epsilon)


def adamw(p, t, lr, g, decay, **options):
    """Loshchilov and Hutter 2019, algorithm 2, with the learning rate as the multiplier of
    both terms of line 12."""
    before = list(p.w)
    adam(p, t, lr, g, **options)
    p.w = [now - lr * decay * old for now, old in zip(p.w, before)]


def lars(p, t, lr, g, decay, momentum=0.9, nesterov=False, trust_coefficient=0.001,
         epsilon=1e-8, trust_undecayed=False):
    """You et al. 2017, algorithm 1 and equation 6; Nesterov as in Sutskever et al. 2013."""
    size, own = norm(p.w), 1
    if (trust_undecayed or p.decay_mult != 0) and size > 0 and norm(g) > 0:
        own = trust_coefficient * size / (norm(g) + decay * size + epsilon)
    for i, x in enumerate(g):
        old = p.state("v", i)
        v = p.keep("v", i, momentum * old + lr * own * (x + decay * p.w[i]))
        p.w[i] -= v if not nesterov else (1 + momentum) * v - momentum * old


def lamb(p, t, lr, g, decay, beta1=0.9, beta2=0.999, epsilon=1e-6, bias_correction=True,
         min_weight_norm=0, max_weight_norm=math.inf, max_trust=math.inf,
         trust_undecayed=False):
    """You et al. 2020, algorithm 2; without the correction as in NVIDIA's and Google's code of
    BERT; the largest trust as in Fong et al. 2020."""
    update = []
    for i, x in enumerate(g):
        m = p.keep("m", i, beta1 * p.state("m", i) + (1 - beta1) * x)
        v = p.keep("v", i, beta2 * p.state("v", i) + (1 - beta2) * x ** 2)
        if bias_correction:
            m, v = m / (1 - beta1 ** t), v / (1 - beta2 ** t)
        update.append(m / (math.sqrt(v) + epsilon) + decay * p.w[i])
    phi, ratio = min(max(norm(p.w), min_weight_norm), max_weight_norm), 1
    if (trust_undecayed or p.decay_mult != 0) and phi > 0 and norm(update) > 0:
        ratio = min(phi / norm(update), max_trust)
    p.w = [w - lr * ratio * u for w, u in zip(p.w, update)]


DECOUPLED = (adamw, lars, lamb)  # these add the weight decay themselves


class Parameter:
    """The weights of one parameter, and what is remembered for each."""

    def __init__(self, weights, lr_mult, decay_mult):
        self.w, self.lr_mult, self.decay_mult = weights, lr_mult, decay_mult
        self.memory = {}

    def state(self, name, i, initial=0):
        return self.memory.get((name, i), initial)

    def keep(self, name, i, value):
        self.memory[name, i] = value
        return value


def step_of(rule, p, t, lr, decay, g, options):
    if rule in DECOUPLED:
        rule(p, t, lr, g, decay=decay, **options)
    else:
        rule(p, t, lr, [x + decay * w for x, w in zip(g, p.w)], **options)


def reference(rule, inputs, weight_decay, options):
    parameters = [Parameter(w, lr_mult, decay_mult) for w, (_, lr_mult, decay_mult) in
                  zip(parts(inputs.weights), SEGMENTS)]
    for t in range(1, STEPS + 1):
        for p, g in zip(parameters, parts(inputs.gradients[t - 1])):
            step_of(rule, p, t, inputs.rates[t - 1] * p.lr_mult, weight_decay * p.decay_mult,
                    g, options)
    return [x for p in parameters for x in p.w]


class Rules(unittest.TestCase):
    def test_steps(self):
        simplest = {}
        for solver, rate, decay, options in CASES:
            with self.subTest(solver=solver, rate=rate, decay=decay, **options):
                inputs = Inputs(rate)
                expected = reference(globals()[solver], inputs, decay, options)
                found = steps_of(solver, inputs, decay, options)[0]
                self.assertLess(distance(expected, found), TOLERANCE)
                # It could not be right by chance: the weights have changed, and the option
                # has changed them, by far more than the tolerance.
                self.assertGreater(distance(expected, inputs.weights), 1000 * TOLERANCE)
                other = simplest.setdefault(solver, expected)
                if other is not expected:
                    self.assertGreater(distance(expected, other), 100 * TOLERANCE)

    def test_slots(self):
        """What a rule doesn't need takes no memory."""
        for solver, options, slots in (
                ("sgd", {}, 1), ("adagrad", {}, 1), ("rmsprop", {}, 1),
                ("rmsprop", {"momentum": 0.5}, 2),
                ("rmsprop", {"centered": True}, 2),
                ("rmsprop", {"centered": True, "momentum": 0.5}, 3), ("adadelta", {}, 2),
                ("adam", {}, 2), ("adam", {"amsgrad": True}, 3), ("adamw", {}, 2),
                ("lars", {}, 1), ("lamb", {}, 3)):
            with self.subTest(solver=solver, **options):
                self.assertEqual(len(steps_of(solver, Inputs(0), 0, options)) - 1, slots)


if __name__ == "__main__":
    require_device()
    unittest.main(verbosity=2)
