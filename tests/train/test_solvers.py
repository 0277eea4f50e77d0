#!/usr/bin/env python3
"""Tests that every solver gets from the core what sgd gets: bitwise identical weights on
every transport, with sharded, fused, deferred and captured updates, with staleness 0, and
after a resume; gradient accumulation; and the first step of a net."""

import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from test_combinations import read_metadata, read_tensors
from test_transports import is_there, tensors_digest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS / "unit/plugins/solvers/rules"))
import test_rules  # pylint: disable=wrong-import-position

BIN = os.environ["DLCORE_BIN"]
ASYNC_PLUGINS = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"
# The environment in which the device "async" is found.
DEVICES = {"DLCORE_PLUGIN_PATH": f"{os.environ['DLCORE_PLUGIN_PATH']}:{ASYNC_PLUGINS}"}
ITERATIONS = 5

NET = """[net]
name = tiny
[data]
source = synthetic
shape = 1,8,8
classes = 4
samples = 240
batch = 12
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.01
weight_decay = 0.01
policy = poly
power = 0.5
max_iterations = 12
[train]
threads = 1
checkpoint_minutes = 0
[conv]
type = convolution
num_output = 5
kernel_size = 3
weight_filler = xavier
weight_lr_mult = 0.5
bias_decay_mult = 0
[relu]
type = relu
[ip1]
type = inner_product
num_output = 11
weight_filler = xavier
[ip2]
type = inner_product
num_output = 4
weight_filler = xavier
bias_lr_mult = 2
[loss]
type = softmax_loss
"""

TEST = """[data.test]
source = synthetic
shape = 1,8,8
classes = 4
samples = 30
first = 1000
batch = 10
transforms = normalize(scale=0.00390625)
"""

# A solver with the options that take the most state. What is WHOLE needs the norms of
# tensors, which makes it wait for all gradients: it cannot be deferred.
SOLVERS = {
    "sgd": {},
    "sgd in PyTorch's form": {"momentum_form": "pytorch", "dampening": 0.1},
    "adagrad": {"initial_accumulator": 0.1, "learning_rate_decay": 0.1},
    "rmsprop": {"centered": True, "momentum": 0.5},
    "adadelta": {"epsilon": 0.01},
    "adam": {"amsgrad": True},
    "adamw": {},
    "lars": {"nesterov": True, "trust_coefficient": 1},
    "lamb": {},
    "sgd, clipped": {"clip_gradients": 0.1},
    "lars, clipped": {"clip_gradients": 0.1},
    "lamb, clipped": {"clip_gradients": 0.1},
}
# lr_mult and decay_mult of the net's parameters.
MULTIPLIERS = {"conv.weight": (0.5, 1), "conv.bias": (1, 0), "ip2.bias": (2, 1)}
WHOLE = ("lars", "lamb", "sgd, clipped", "lars, clipped", "lamb, clipped")
PARTIAL = [name for name in SOLVERS if name not in WHOLE]
# Of layers and stages nothing is chosen by measurements.
SPLIT = ["--set=ip1.parallel=tensor", "--set=parallel.tensor_schedule=whole_batch"]
SHARDED = "--set=transport.shard_optimizer=yes"
WHOLE_UPDATES = "--set=transport.shard_optimizer=no"


def options_of(name):
    return [f"--solver={name.split()[0].strip(',')}",
            *(f"--set=solver.{key}={str(value).lower()}"
              for key, value in SOLVERS[name].items())]


class Solvers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.net = cls.folder / "tiny.ini"
        cls.net.write_text(NET)
        cls.known = {}

    def run_it(self, *options, ranks=1, iterations=ITERATIONS, **variables):
        return subprocess.run(
            [BIN, "train", str(self.net), "--json", f"--ranks={ranks}", "--scaling=strong",
             f"--iterations={iterations}", f"--run-dir={tempfile.mkdtemp(dir=self.folder)}",
             *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            env={**os.environ, **variables})

    def train(self, *options, **more):
        """The checkpoint, and what the command has said."""
        done = self.run_it(*options, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(json.loads(done.stdout)["checkpoint"]), done.stderr

    def plain(self, name, ranks):
        """The checkpoint of a run without any of what is tested here."""
        if (name, ranks) not in self.known:
            self.known[name, ranks], _ = self.train(
                *options_of(name), "--transport=host-staged", WHOLE_UPDATES, ranks=ranks)
        return self.known[name, ranks]

    def same(self, name, *options, ranks=2, says=None, **variables):
        with self.subTest(name, ranks=ranks, options=options):
            path, said = self.train(*options_of(name), *options, ranks=ranks, **variables)
            self.assertEqual(tensors_digest(path), tensors_digest(self.plain(name, ranks)))
            if says:
                self.assertIn(says, said)

    def test_transports(self):
        transports = ["p2p-tree", *(["ucx"] if is_there("ucx") else [])]
        for i, name in enumerate(SOLVERS):
            self.same(name, f"--transport={transports[i % len(transports)]}", WHOLE_UPDATES,
                      ranks=2 + i // 2 % 2)

    def test_sharded(self):
        """On p2p-tree the update is fused with the exchange, unless it takes norms."""
        jobs = [("p2p-tree", 3, "1K"), ("host-staged", 2, "4M"), ("p2p-tree", 2, "4M")]
        jobs += [("ucx", 3, "4M")] if is_there("ucx") else []
        for name, (transport, ranks, bytes_) in zip(SOLVERS, itertools.cycle(jobs)):
            self.same(name, f"--transport={transport}", SHARDED,
                      f"--set=transport.bucket_bytes={bytes_}", ranks=ranks)

    def test_deferred(self):
        for name in PARTIAL:
            self.same(name, "--transport=p2p-tree", WHOLE_UPDATES,
                      "--set=transport.overlap_forward=yes")

    def test_stale_by_nothing(self):
        for i, (name, ranks) in enumerate(zip(SOLVERS, itertools.cycle((1, 3, 2)))):
            if i % 2:
                self.same(name, "--consistency=ssp", "--set=consistency.staleness=0", ranks=3)
            else:
                self.same(name, "--consistency=ssp", "--set=consistency.staleness=0",
                          "--device=async", ranks=ranks, **DEVICES)
        for name in WHOLE:  # a server, whose gradients are all 0
            with self.subTest(name):
                server, _ = self.train(*options_of(name), "--consistency=ssp",
                                       "--set=consistency.servers=1", ranks=3)
                self.assertEqual(tensors_digest(server), tensors_digest(self.plain(name, 2)))

    def test_stale_norms(self):
        """Alone a worker trains synchronously. Of several, each makes the step of its own
        gradient, with norms of its own: the weights are the mean of their weights."""
        stale = ("--consistency=ssp", "--set=consistency.staleness=2")
        for name in WHOLE:
            self.same(name, *stale, ranks=1)
            with self.subTest(name):
                options = [*options_of(name), "--set=data.shuffle=no"]
                both, _ = self.train(*options, *stale, ranks=2, iterations=1)
                parts = [read_tensors(self.train(*options, "--set=data.batch=6",
                                                 f"--set=data.first={6 * i}",
                                                 iterations=1)[0]) for i in range(2)]
                mean = {key: [(a + b) / 2 for a, b in zip(x, parts[1][key])]
                        for key, x in parts[0].items()}
                self.check_near(mean, read_tensors(both), 1e-5)
                path, _ = self.train(*options_of(name), *stale, ranks=3)
                self.assertTrue(all(map(math.isfinite, itertools.chain(
                    *read_tensors(path).values()))))

    def test_captured(self):
        """Norms stay in the memory of the device, with sharded updates, too."""
        for name, (ranks, more) in zip(SOLVERS, itertools.cycle(
                ((1, []), (2, [SHARDED]), (3, [WHOLE_UPDATES]), (2, [SHARDED])))):
            self.same(name, "--device=async", "--transport=p2p-tree",
                      "--set=transport.overlap_forward=no", *more, ranks=ranks,
                      says="iterations are captured as a graph", **DEVICES)

    def test_resumed(self):
        """Also where each rank updates only a shard."""
        for name in SOLVERS:
            half, _ = self.train(*options_of(name), iterations=3, ranks=2)
            self.same(name, f"--resume={half}", SHARDED)

    def test_accumulated(self):
        """Two micro-batches are the same on every transport, and one batch but for
        rounding."""
        for name in SOLVERS:
            options = [*options_of(name), "--set=data.batch=6",
                       "--set=solver.accumulation_steps=2"]
            with self.subTest(name):
                two, _ = self.train(*options, "--transport=host-staged", ranks=2)
                other, _ = self.train(*options, "--transport=p2p-tree", SHARDED,
                                      ranks=2)
                self.assertEqual(tensors_digest(two), tensors_digest(other))
                self.check_near(read_tensors(self.plain(name, 2)), read_tensors(two), 1e-3)

    def check_near(self, expected, found, within):
        self.assertEqual(list(expected), list(found))
        for name, wanted in expected.items():
            most = max(map(abs, wanted))
            off = max(abs(a - b) for a, b in zip(wanted, found[name]))
            self.assertLessEqual(off, within * most, name)

    def weights_after(self, iterations, *options):
        tensors = read_tensors(self.train(*options, iterations=iterations)[0])
        return {name: list(x) for name, x in tensors.items() if "/" not in name}

    def test_first_step(self):
        """The gradient, which a step of sgd without momentum shows if the learning rate is
        large, and the reference of each rule give the weights after one iteration."""
        large = 2 ** 16
        start = self.weights_after(0)
        moved = self.weights_after(1, f"--set=solver.learning_rate={large}",
                                   "--set=solver.momentum=0", "--set=solver.weight_decay=0")
        for name, options in SOLVERS.items():
            if "clipped" in name: # the reference knows one tensor at a time
                continue
            rule = getattr(test_rules, name.split()[0])
            expected = {}
            for key, weights in start.items():
                lr_mult, decay_mult = MULTIPLIERS.get(key, (1, 1))
                p = test_rules.Parameter(list(weights), lr_mult, decay_mult)
                g = [(a - b) / (large * lr_mult) for a, b in zip(weights, moved[key])]
                test_rules.step_of(rule, p, 1, 0.01 * lr_mult, 0.01 * decay_mult, g, options)
                expected[key] = [a - b for a, b in zip(p.w, weights)]
            with self.subTest(name):
                found = self.weights_after(1, *options_of(name))
                steps = {key: [a - b for a, b in zip(found[key], weights)]
                         for key, weights in start.items()}
                self.check_near(expected, steps, 1e-3)

    def test_scaled_rate(self):
        """The same as the product given as the learning rate; also after a resume on more
        ranks, whose steps follow their own batch."""
        def scaled(how, ranks, rate, *more):
            weights, said = self.train(f"--set=solver.scale_learning_rate={how}", *more,
                                       ranks=ranks)
            plain, _ = self.train(f"--set=solver.learning_rate={rate}", *more, ranks=ranks)
            self.assertEqual(tensors_digest(weights), tensors_digest(plain))
            return said
        weak = "--scaling=weak"
        self.assertIn("learning rate 0.01 x 3 = 0.03 for a batch of 36 (base 12)",
                      scaled("linear", 3, 0.03, weak))
        self.assertIn("learning rate 0.01 x 2 = 0.02 for a batch of 48 (base 12)",
                      scaled("sqrt", 2, 0.02, weak, "--set=solver.accumulation_steps=2"))
        for said in (scaled("linear", 2, 0.01), scaled("none", 2, 0.01, weak)):
            self.assertNotIn("for a batch of", said)
        linear = ("--set=solver.scale_learning_rate=linear", weak)
        half, _ = self.train(*linear, iterations=3, ranks=1)
        rest, said = self.train(*linear, f"--resume={half}", ranks=2)
        self.assertIn("learning rate 0.01 x 2 = 0.02", said)
        plain, _ = self.train("--set=solver.learning_rate=0.02", weak, f"--resume={half}",
                              ranks=2)
        self.assertEqual(tensors_digest(rest), tensors_digest(plain))

    def average_of(self, decay, *options, ranks, iterations=4, **variables):
        """Checks the average of every iteration against the weights of the checkpoints;
        returns the last checkpoint."""
        options = [f"--set=solver.ema={decay}", *options]
        last, said = self.train(*options, "--set=train.checkpoint_interval=1",
                                "--set=train.keep=0", ranks=ranks, iterations=iterations,
                                **variables)
        start, _ = self.train(*options, ranks=ranks, iterations=0)
        expected = {f"ema/{name}": list(w) for name, w in read_tensors(start).items()
                    if "/" not in name}
        for i in range(iterations + 1):
            path = last.with_name(f"tiny-{i:08}.safetensors") if i else start
            tensors = read_tensors(path)
            for name, average in expected.items():
                if i:
                    weights = tensors[name.removeprefix("ema/")]
                    average[:] = (decay * a + (1 - decay) * w
                                  for a, w in zip(average, weights))
            found = {name: x for name, x in tensors.items() if name.startswith("ema/")}
            self.check_near({name: expected[name] for name in found}, found, 1e-6)
            self.assertEqual(len(found), len(expected))
        return last, said

    def test_average(self):
        """By its definition; and it changes neither the weights nor what is saved of them."""
        for ranks in (1, 2, 3):
            whole, _ = self.average_of(0.75, SHARDED, "--transport=p2p-tree", ranks=ranks)
            plain, _ = self.train("--transport=p2p-tree", ranks=ranks, iterations=4)
            kept = {name: x for name, x in read_tensors(whole).items()
                    if not name.startswith("ema/")}
            self.assertEqual(kept, read_tensors(plain))
        for more in (SPLIT, ["--set=parallel.pipeline=ip1"],
                     ["--set=solver.accumulation_steps=2", "--solver=lamb"]):
            with self.subTest(more):
                self.average_of(0.75, *more, ranks=2)

    def test_average_everywhere(self):
        """Bitwise identical however the weights are updated, and after a resume."""
        ema = "--set=solver.ema=0.75"
        device = {"DLCORE_PLUGIN_PATH":
                  f"{os.environ['DLCORE_PLUGIN_PATH']}:{ASYNC_PLUGINS}"}
        for ranks in (1, 2):
            whole, _ = self.train(ema, "--transport=host-staged", WHOLE_UPDATES, ranks=ranks)
            half, _ = self.train(ema, iterations=3, ranks=ranks)
            for options, says, variables in (
                    ((SHARDED,), "", {}),
                    ((SHARDED, "--transport=p2p-tree"), "", {}),
                    ((WHOLE_UPDATES, "--set=transport.overlap_forward=yes"),
                     "forward overlaps" if ranks > 1 else "", {}),
                    ((f"--resume={half}",), "resumed from", {}),
                    ((f"--resume={half}", SHARDED), "resumed from", {}),
                    (("--device=async", "--transport=p2p-tree"),
                     "captured as a graph" if ranks == 1 else "", device)):
                with self.subTest(options, ranks=ranks):
                    path, said = self.train(ema, *options, ranks=ranks, **variables)
                    self.assertIn(says, said)
                    self.assertEqual(tensors_digest(path), tensors_digest(whole))

    def test_average_comes_and_goes(self):
        """A checkpoint without one begins it; one with it needs not go on with it."""
        without, _ = self.train(ranks=2, iterations=3)
        begun, said = self.train("--set=solver.ema=0.75", f"--resume={without}", ranks=2,
                                 iterations=4)
        self.assertIn("has no average of the weights", said)
        before, after = read_tensors(without), read_tensors(begun)
        names = [name for name in before if "/" not in name]
        self.check_near({name: [0.75 * a + 0.25 * b for a, b in zip(before[name], after[name])]
                         for name in names}, {name: after[f"ema/{name}"] for name in names},
                        1e-6)
        end, _ = self.train(f"--resume={begun}", ranks=2)
        self.assertFalse([name for name in read_tensors(end) if name.startswith("ema/")])

    def test_tests_of_the_average(self):
        """An average that hardly moves tests as the initial weights did, and tests leave
        the run as it would be without."""
        self.net.write_text(NET + TEST)
        try:
            device = {"DLCORE_PLUGIN_PATH":
                      f"{os.environ['DLCORE_PLUGIN_PATH']}:{ASYNC_PLUGINS}"}
            self.check_tests(1, ["--set=solver.learning_rate=0.2", "--device=async"], **device)
            for ranks, more in ((1, []), (2, [SHARDED, "--transport=p2p-tree"]),
                                (2, SPLIT), (2, ["--set=parallel.pipeline=ip1"])):
                with self.subTest(more, ranks=ranks):
                    self.check_tests(ranks, ["--set=solver.learning_rate=0.2", *more])
        finally:
            self.net.write_text(NET)

    def check_tests(self, ranks, more, **variables):
        def losses(*options):
            path, _ = self.train(*more, *options, ranks=ranks, **variables)
            return path, float(read_metadata(path)["dlcore.test_loss"])
        often = "--set=train.test_interval=1"
        _, first = losses("--iterations=0")
        still = "--set=solver.ema=0.9999999"
        raw, moved = losses(still)
        averaged, same = losses(still, "--set=train.test_ema=yes", often)
        self.assertEqual(tensors_digest(raw), tensors_digest(averaged))
        self.assertAlmostEqual(same, first, delta=1e-4)
        self.assertGreater(abs(moved - first), 1e-3)
        average, last = "--set=train.test_ema=yes", "--set=train.test_ema=no"
        self.assertAlmostEqual(self.loss_of(raw, average, ranks), first, delta=1e-4)
        self.assertAlmostEqual(self.loss_of(raw, last, ranks), moved, delta=1e-4)

    def loss_of(self, weights, option, ranks):
        """The loss of `dlcore test`."""
        done = subprocess.run([BIN, "test", str(self.net), "--json", "--device=cpu",
                               f"--weights={weights}", f"--ranks={ranks}", option],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["test_loss"]

    def test_no_average_to_test(self):
        self.net.write_text(NET + TEST)
        try:
            path, _ = self.train("--iterations=1", ranks=1)
            done = subprocess.run([BIN, "test", str(self.net), "--device=cpu",
                                   f"--weights={path}", "--set=train.test_ema=yes"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=120, check=False)
        finally:
            self.net.write_text(NET)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("no average of the weights", done.stderr)

    def test_average_is_refused(self):
        for options, reason in (
                (["--set=solver.ema=0.9", "--consistency=ssp"],
                 "ema needs ranks that have the same weights"),
                (["--set=train.test_ema=yes"], "test_ema = yes needs an average")):
            done = self.run_it(*options, ranks=2)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)

    def test_plateau(self):
        """Its state is a part of checkpoints, and the same on all ranks."""
        self.net.write_text(NET.replace("poly", "plateau") + TEST)
        try:
            options = ["--set=solver.patience=0", "--set=solver.threshold=1",
                       "--set=train.test_interval=1", "--set=solver.type=adam"]
            whole, said = self.train(*options, ranks=2)
            self.assertIn("the test loss has stopped falling", said)
            half, _ = self.train(*options, ranks=2, iterations=3)
            for ranks in (2, 3):
                rest, _ = self.train(*options, f"--resume={half}", ranks=ranks)
                if ranks == 2:
                    self.assertEqual(tensors_digest(rest), tensors_digest(whole))
                self.assertEqual(read_metadata(rest)["dlcore.plateau"].split()[0],
                                 read_metadata(whole)["dlcore.plateau"].split()[0])
            # Ranks that may be in different iterations are in the same one at a test.
            none, _ = self.train(*options, "--consistency=ssp", ranks=2)
            self.assertEqual(tensors_digest(none), tensors_digest(whole))
            stale, said = self.train(*options, "--consistency=ssp",
                                     "--set=consistency.staleness=2", ranks=2)
            self.assertIn("the test loss has stopped falling", said)
            self.assertEqual(read_metadata(stale)["dlcore.plateau"].split()[0],
                             read_metadata(whole)["dlcore.plateau"].split()[0])
        finally:
            self.net.write_text(NET)
        done = self.run_it("--set=solver.policy=plateau")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no [data.test]", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
