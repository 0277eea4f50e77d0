#!/usr/bin/env python3
"""Tests `dlcore check`: it reports all mistakes of a net in one run, each with file and
line; `train` reports the same before anything is trained; --json lists them."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

BIN = os.environ["DLCORE_BIN"]

# A good net; the tables below change lines of it.
NET = """[net]
name = good
[data]
source = synthetic
shape = 3,16,16
classes = 10
samples = 96
batch = 24
transforms = normalize(scale=0.01)
[data.test]
source = synthetic
shape = 3,16,16
classes = 10
samples = 48
batch = 24
transforms = normalize(scale=0.01)
[solver]
type = sgd
learning_rate = 0.01
[train]
iterations = 20
[conv1]
type = convolution
num_output = 8
kernel_size = 3
[relu1]
type = relu
[pool1]
type = pooling
kernel_size = 2
stride = 2
[conv2]
type = convolution
num_output = 16
kernel_size = 3
[ip1]
type = inner_product
num_output = 10
[accuracy]
type = accuracy
[loss]
type = softmax_loss
input = ip1
"""
LAST = len(NET.splitlines())
PLAIN = "transforms = normalize(scale=0.01)"

# (what is changed, line and section of the mistake, key or None, in the message)
# A change is {line to look for: what stands there instead}; a key ending in "+" adds lines.
# With "section/" in front the line is looked for behind that section's head.
BAD = [
    # Shapes.
    ({"conv1/kernel_size = 3": "kernel_size = 17"}, ("conv1", None), "window reaches over 17"),
    ({"conv2/kernel_size = 3": "kernel_size = 9"}, ("conv2", None), "window reaches over 9"),
    ({"pool1/kernel_size = 2": "kernel_size = 15"}, ("pool1", None), "window reaches over 15"),
    ({"conv1/num_output = 8": "num_output = 8\ngroup = 2"}, ("conv1", None), "group"),
    ({"loss/input = ip1": "input = ip1, label, label"}, ("loss", None), "takes 2 inputs"),
    ({"loss/input = ip1": "input = label"}, ("loss", None), "scores"),
    ({"ip1/type = inner_product": "type = inner_product\nnum_output = 10\n[x]\n"
      "type = inner_product\ninput = label"}, ("x", None), "float32"),
    ({"accuracy/type = accuracy": "type = accuracy\ntop_k = 11"}, ("accuracy", None),
     "top_k = 11"),
    ({"relu1/type = relu": "type = relu\ninput = conv1, data"}, ("relu1", None), "1 input"),
    ({"ip1/type = inner_product": "type = eltwise\ninput = conv1, conv2\n[ip2]\n"
      "type = inner_product", "loss/input = ip1": "input = ip2"}, ("ip1", None), "one shape"),
    ({"ip1/type = inner_product": "type = concat\ninput = conv1, conv2\n[ip2]\n"
      "type = inner_product", "loss/input = ip1": "input = ip2"}, ("ip1", None), "axis 1 only"),
    # Classes.
    ({"ip1/num_output = 10": "num_output = 8"}, ("ip1", "num_output"),
     "it needs one output per class"),
    ({"ip1/num_output = 10": "num_output = 1"}, ("ip1", "num_output"), "10 classes"),
    ({"data/classes = 10": "classes = 1000"}, ("ip1", "num_output"), "1000 classes"),
    ({"data.test/classes = 10": "classes = 12"}, ("ip1", "num_output"), "[data.test]"),
    ({"ip1/num_output = 10": "num_output = 10\nphase = test", "loss/input = ip1":
      "input = ip2", "accuracy/type = accuracy": "type = accuracy\n[ip2]\n"
      "type = inner_product\nnum_output = 10\ninput = conv2"}, ("ip1", "phase"),
     "nothing trains"),
    # Data.
    ({f"data/{PLAIN}": "transforms = center_crop(12)"}, ("data.test", "transforms"),
     "transforms are center_crop(12) in [data]"),
    ({f"data/{PLAIN}": "transforms = random_crop(20, padding=2)", f"data.test/{PLAIN}": "threads = 1"},
     ("data.test", None), "and none here: make the sizes equal"),
    ({f"data/{PLAIN}": "transforms = mirror, center_crop(20)"}, ("data", "transforms"),
     "the 2nd, center_crop: cuts out 20 x 20"),
    ({f"data.test/{PLAIN}": "transforms = center_crop(12)"}, ("data.test", "transforms"), "make the sizes equal"),
    ({f"data.test/{PLAIN}": "transforms = center_crop(17)"}, ("data.test", "transforms"), "cuts out 17 x 17"),
    ({f"data/{PLAIN}": "transforms = normalize(mean=(1,2))"}, ("data", "transforms"), "mean has 2 values"),
    ({f"data.test/{PLAIN}": "transforms = normalize(mean=(1,2))"}, ("data.test", "transforms"), "mean has 2 values"),
    ({f"data/{PLAIN}": "transforms = mirrow"}, ("data", "transforms"), "did you mean mirror?"),
    ({f"data/{PLAIN}": "mirror = yes"}, ("data", "mirror"), "that is `mirror` in `transforms` of [data]"),
    ({"data.test/shape = 3,16,16": "shape = 3,20,16"}, ("data.test", "source"), "3x20x16"),
    ({"data.test/shape = 3,16,16": "shape = 1,16,16"}, ("data.test", "source"), "1x16x16"),
    ({"data/shape = 3,16,16": "shape = 3,16"}, ("data", "shape"), "takes three"),
    ({"data.test/shape = 3,16,16": "shape = 3,16"}, ("data.test", "shape"), "takes three"),
    ({"data/samples = 96": "samples = 0"}, ("data", "samples"), "samples"),
    ({"data/source = synthetic": "source = synthetics"}, ("data", "source"), "synthetics"),
    # The schedule.
    ({"solver/learning_rate = 0.01": "learning_rate = 0"}, ("solver", "learning_rate"), "nothing would be learned"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\npolicy = poly\nwarmup = 30"}, ("solver", "warmup"),
     "the learning rate would be 0 throughout"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\npolicy = cosine\nwarmup_epochs = 10"},
     ("solver", "warmup_epochs"), "the learning rate would be 0 throughout"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\npolicy = multistep\nstep_values = 0\ngamma = 0"},
     ("solver", "policy"), "would be 0 at each"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\npolicy = exp\ngamma = 1e9"}, ("solver", "gamma"),
     "grow to"),
    ({"solver/learning_rate = 0.01": "policy = multistep"}, ("solver", "policy"), "needs step_values"),
    ({"solver/learning_rate = 0.01": "policy = step"}, ("solver", "policy"), "needs step_size"),
    ({"solver/learning_rate = 0.01": "warmup = 2\nwarmup_epochs = 1"}, ("solver", "warmup_epochs"),
     "not both"),
    ({"solver/learning_rate = 0.01": "gamma = -1\npolicy = exp"}, ("solver", "gamma"), "negative"),
    # Keys and graph.
    ({"solver/learning_rate = 0.01": "learnig_rate = 0.01"}, ("solver", "learnig_rate"), "did you mean learning_rate"),
    ({"conv1/kernel_size = 3": "kernel_sise = 3"}, ("conv1", "kernel_sise"), "kernel_size"),
    ({"loss/input = ip1": "input = ip7"}, ("loss", "input"), "no layer of that name"),
    ({"loss/type = softmax_loss": "type = softmax_los"}, ("loss", "type"), "softmax_loss"),
    ({"relu1/type = relu": "type = rleu"}, ("relu1", "type"), "relu"),
    ({"train/iterations = 20": "iterations = 20\nprecision = fp16"}, ("train", "precision"),
     "float32"),
    ({"train/iterations = 20": "iterations = -1"}, ("train", "iterations"), "iterations"),
    # Legal in form, without a meaning.
    ({"ip1/type = inner_product": "type = eltwise\noperation = max\ncoeff = 1\ninput = conv2\n[ip2]\n"
      "type = inner_product", "loss/input = ip1": "input = ip2"}, ("ip1", None), "operation = sum only"),
    ({"ip1/type = inner_product": "type = eltwise\ncoeff = 1, 2\ninput = conv2\n[ip2]\n"
      "type = inner_product", "loss/input = ip1": "input = ip2"}, ("ip1", None), "2 factors for 1 inputs"),
    ({"ip1/type = inner_product": "type = concat\ninput = conv2, conv2, conv1\n[ip2]\n"
      "type = inner_product", "loss/input = ip1": "input = ip2"}, ("ip1", None), "and input 3 is"),
    ({"ip1/type = inner_product": "type = eltwise\ninput = conv2, conv2, conv1\n[ip2]\n"
      "type = inner_product", "loss/input = ip1": "input = ip2"}, ("ip1", None), "and input 3 is"),
    ({"conv2/num_output = 16": "num_output = 16\ngroup = 3"}, ("conv2", None), "must divide both"),
    ({"conv2/num_output = 16": "num_output = 12\ngroup = 8"}, ("conv2", None), "must divide both"),
    ({"conv1/kernel_size = 3": "kernel_h = 3\nkernel_w = 17"}, ("conv1", None), "17 columns"),
    ({"conv1/kernel_size = 3": "kernel_h = 17\nkernel_w = 3"}, ("conv1", None), "17 rows"),
    ({"conv1/kernel_size = 3": "kernel_w = 3"}, ("conv1", None), "the size of the window is missing"),
    ({"conv1/kernel_size = 3": "kernel_h = 3"}, ("conv1", None), "the size of the window is missing"),
    ({"conv1/type = convolution": "type = deconvolution", "conv1/kernel_size = 3":
      "kernel_size = 1\npad_w = 8"}, ("conv1", None), "leaves no column"),
    ({"conv1/type = convolution": "type = deconvolution", "conv1/kernel_size = 3":
      "kernel_size = 1\npad_h = 8"}, ("conv1", None), "leaves no row"),
    ({"pool1/stride = 2": "stride = 2\nglobal = yes"}, ("pool1", None), "kernel_h or kernel_size may not"),
    ({"pool1/kernel_size = 2": "global = yes"}, ("pool1", None), "stride must be 1 and pad 0"),
    ({"pool1/kernel_size = 2": "global = yes", "pool1/stride = 2": "pad = 1"}, ("pool1", None),
     "stride must be 1 and pad 0"),
    ({"pool1/kernel_size = 2": "kernel_size = 2\npad = 2"}, ("pool1", None), "pad"),
    ({"relu1/type = relu": "type = clip\nmin = 1\nmax = 1"}, ("relu1", None), "must be below max"),
    ({"relu1/type = relu": "type = lrn\nlocal_size = 4"}, ("relu1", None), "must be odd"),
    ({"relu1/type = relu": "type = dropout\nratio = 1"}, ("relu1", "ratio"), "out of range"),
    ({"relu1/type = relu": "type = concat\naxis = 4"}, ("relu1", None), "axis"),
    ({"accuracy/type = accuracy": "type = accuracy\ninput = ip1, conv1"}, ("accuracy", None), "label"),
    ({"conv1/[conv1]": "[label]"}, ("label", None), "reserved for the batch"),
    ({"train/iterations = 20": "iterations = 20\nepochs = 2"}, ("train", "iterations"), "has both epochs"),
    ({"train/iterations = 20": "iterations = 20\ndevice = cpu\ngpu = 0"}, ("train", "gpu"), "has both gpu"),
    ({"train/iterations = 20": "iterations = 20\ntest_ema = yes"}, ("train", "test_ema"), "needs an average"),
    ({"solver/type = sgd": "type = sgd\ndampening = 0.1\nmomentum = 0.9"}, ("solver", "dampening"),
     "dampening needs momentum_form = pytorch"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nema = 0.5\n[consistency]\ntype = ssp"},
     ("solver", "ema"), "needs ranks that have the same weights"),
    ({"solver/type = sgd": "type = lars", "train/iterations = 20":
      "iterations = 20\n[transport]\noverlap_forward = yes"}, ("transport", "overlap_forward"),
     "doesn't work with [solver] type = lars"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nclip_gradients = 1", "train/iterations = 20":
      "iterations = 20\n[transport]\noverlap_forward = yes"}, ("transport", "overlap_forward"),
     "doesn't work with"),
    ({"net/name = good": "name = .good"}, ("net", "name"), "do not begin with '.'"),
    ({"net/name = good": "name = go/od"}, ("net", "name"), "becomes part of file names"),
    ({"net/name = good": f"name = {65 * 'x'}"}, ("net", "name"), "1 to 64 ASCII letters"),
    # The mesh and the batch.
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = ip1, ip1"}, ("parallel", "pipeline"),
     "'ip1' comes before the layers of the stage that it should end"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = ip1, conv2"}, ("parallel", "pipeline"),
     "'conv2' comes before"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = conv1"}, ("parallel", "pipeline"),
     "'conv1' comes before"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = conv2, ip"}, ("parallel", "pipeline"),
     "there is no layer 'ip'"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = 0"}, ("parallel", "pipeline"),
     "must be from 1 to 1024"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = 1025"}, ("parallel", "pipeline"),
     "must be from 1 to 1024"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\ntensor = 0"}, ("parallel", "tensor"),
     "'0' is not a number from 1 to 1024"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\ntensor = 2, 2"}, ("parallel", "tensor"),
     "must be one number or auto"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\ndata = 1025"}, ("parallel", "data"),
     "'1025' is not a number from 1 to 1024"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline_ranks = 1,0"},
     ("parallel", "pipeline_ranks"), "'0' is not a number"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = 3\npipeline_ranks = 1, 2"},
     ("parallel", "pipeline_ranks"), "has 2 numbers for 3 stages"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\npipeline = ip1\npipeline_ranks = 1, 1, 1"},
     ("parallel", "pipeline_ranks"), "has 3 numbers for 2 stages"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\nbatch_split = 1, -1"},
     ("parallel", "batch_split"), "value 2 of"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\nbatch_split = 0, 0"},
     ("parallel", "batch_split"), "no rank has any samples"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\nranks = 25\nscaling = strong"},
     ("data", "batch"), "cannot be split among 25 ranks"),
    # The ends of what is allowed.
    ({"train/iterations = 20": "iterations = 20\n[parallel]\nranks = 1025"}, ("parallel", "ranks"), "1 .. 1024"),
    ({"train/iterations = 20": "iterations = 20\ntarget_accuracy = 1.01"}, ("train", "target_accuracy"), "0 .. 1"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nmomentum = 1.01"}, ("solver", "momentum"), "0 .. 1"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nweight_decay = -0.1"}, ("solver", "weight_decay"),
     "out of range"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nema = 1"}, ("solver", "ema"), "out of range"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\naccumulation_steps = 0"},
     ("solver", "accumulation_steps"), "1 .. 65536"),
    ({"data/batch = 24": "batch = 0"}, ("data", "batch"), "1 .. 1048576"),
    ({"data.test/batch = 24": "batch = 0"}, ("data.test", "batch"), "1 .. 1048576"),
]

# Of several ranks, which fit each other and the net only in number: (options, in the message)
UNFIT = [
    (["--ranks=2", "--set=parallel.data=3"], "data 3 x tensor 1 makes 3 ranks of a stage, but it has 2"),
    (["--ranks=4", "--set=parallel.tensor=3"], "cannot be split into tensor groups of 3 ranks"),
    (["--ranks=3", "--set=parallel.pipeline=2"], "3 ranks cannot be split among 2 stages"),
    (["--ranks=2", "--set=parallel.pipeline_ranks=1,2"], "pipeline_ranks names 3 ranks, but there are 2"),
    (["--ranks=4", "--set=parallel.pipeline_ranks=3,1", "--set=parallel.tensor=2"],
     "the 3 ranks of a stage cannot be split into tensor groups of 2"),
    (["--ranks=4", "--set=parallel.pipeline=4"], "the net has layers with weights for 3 stages, not for 4"),
    (["--ranks=2", "--set=parallel.pipeline=2", "--set=parallel.micro_batches=49"],
     "cannot be divided into 49 micro-batches"),
    (["--ranks=4", "--set=parallel.pipeline=2", "--set=parallel.micro_batches=30", "--scaling=strong"],
     "with a sample for each of the 2 ranks of a stage"),
    (["--ranks=2", "--set=parallel.pipeline=2", "--set=parallel.batch_split=1,0"],
     "batch_split gives rank 1 no samples"),
    (["--ranks=3", "--set=parallel.batch_split=1,1"], "has 2 proportions, but there are 3 ranks"),
    (["--ranks=11", "--set=ip1.parallel=tensor"], "its 10 channels cannot be split among 11 ranks"),
    (["--ranks=2", "--set=ip1.parallel=tensor", "--set=parallel.batch_split=1,0"],
     "rank 1 has no samples and therefore makes no passes"),
    (["--ranks=2", "--set=ip1.parallel=tensor", "--set=parallel.pipeline=2", "--set=parallel.tensor=1",
      "--set=parallel.tensor_schedule=by_rank", "--set=parallel.data=2"], "data 2 x tensor 1"),
    (["--ranks=4", "--set=ip1.parallel=tensor", "--set=parallel.pipeline=2", "--set=parallel.tensor=2",
      "--set=parallel.tensor_schedule=by_rank"], "a micro-batch of a pipeline stage is the chunk already"),
    (["--ranks=2", "--consistency=ssp", "--set=consistency.servers=2"],
     "needs 2 servers, but there are 2 ranks"),
    (["--ranks=2", "--consistency=ssp", "--set=transport.shard_optimizer=yes"], "remove shard_optimizer"),
    (["--ranks=3", "--consistency=ssp", "--set=consistency.servers=1", "--set=parallel.pipeline=3"],
     "remove [consistency] servers, or remove stages"),
    (["--ranks=2", "--set=transport.type=host-staged+"], 'there is no transport ""'),
    (["--ranks=2", "--set=transport.type=+host-staged"], 'there is no transport ""'),
    (["--ranks=2", "--set=transport.type=host-staged+host-staged+host-staged+host-staged"],
     "there is no transport"),
]

# No mistakes, but worth a warning: (change, section, key, in the message)
ODD = [
    ({"ip1/num_output = 10": "num_output = 16"}, ("ip1", "num_output"), "the others are never"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nwarmup = 20"}, ("solver", "warmup"),
     "it ends before the learning rate"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\nwarmup = 15\npolicy = poly"}, ("solver", "learning_rate"),
     "is never reached"),
    ({"solver/learning_rate = 0.01": "learning_rate = 0.01\npolicy = poly\nmax_iterations = 10"},
     ("solver", "max_iterations"), "nothing more is learned"),
    ({"train/iterations = 20": "iterations = 20\n[parallel]\nmicro_batches = 4"},
     ("parallel", "micro_batches"), "there are no pipeline stages"),
]


def change(changes):
    """The net with these lines replaced."""
    lines, section = [], ""
    left = dict(changes)
    for line in NET.splitlines():
        section = line[1:-1] if line.startswith("[") else section
        new = left.pop(f"{section}/{line}", line)
        lines += new.split("\n")
    assert not left, left
    return "\n".join(lines) + "\n"


def line_of(text, section, key):
    """The line of a section's key, or of its head; lines count from 1."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line == f"[{section}]":
            inside, head = True, number
        elif line.startswith("["):
            inside = False
        elif inside and key and line.split(" = ")[0] == key:
            return number
    return head


class Check(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def run_dlcore(self, command, text, *options):
        (self.path / "net.ini").write_text(text)
        return subprocess.run([BIN, command, "net.ini", *options], cwd=self.path, text=True,
                              capture_output=True, timeout=100, check=False)

    def errors(self, done):
        return [l for l in done.stderr.splitlines() if l.startswith("error: net.ini:")]

    def test_good_net(self):
        done = self.run_dlcore("check", NET, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads(done.stdout)
        self.assertEqual(report["mistakes"], [])
        self.assertEqual([(l["name"], l["phase"]) for l in report["layers"]][-2:],
                         [("loss", "both"), ("accuracy", "test")])
        table = self.run_dlcore("check", NET).stdout
        self.assertRegex(table, r"(?m)^accuracy +accuracy +2 +0 +0 .*in tests")

    def test_good_net_without_num_output(self):
        """Between the layer that sets the number of scores and the loss are others that don't."""
        text = change({"loss/[loss]": "[relu2]\ntype = relu\ninput = ip1\n[loss]",
                       "loss/input = ip1": "input = relu2"})
        done = self.run_dlcore("check", text)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_each_mistake(self):
        for changes, (section, key), words in BAD:
            with self.subTest(changes=changes):
                text = change(changes)
                line = line_of(text, section, key)
                done = self.run_dlcore("check", text, "--json")
                self.assertIn(done.returncode, (2, 4), done.stderr)
                found = [m for m in json.loads(done.stdout)["mistakes"]
                         if m["severity"] == "error"]
                mine = [m for m in found if words in m["message"]]
                self.assertEqual(len(mine), 1, done.stdout)
                place = mine[0]["line"]
                self.assertEqual(place, line, mine)
                self.assertEqual(mine[0]["section"], section)
                self.assertEqual(mine[0]["file"], "net.ini")
                if key:
                    self.assertEqual(mine[0]["key"], key)
                self.assertEqual(len(found), 1, done.stdout)
                self.assertTrue(any(l.startswith(f"error: net.ini:{place}: ") and words in l
                                    for l in done.stderr.splitlines()), done.stderr)

    def test_unfit(self):
        for options, words in UNFIT:
            with self.subTest(options):
                done = self.run_dlcore("check", NET, *options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)

    def test_train_says_the_same(self):
        for changes, _, _ in BAD[:40:4]:
            with self.subTest(changes=changes):
                text = change(changes)
                check = self.run_dlcore("check", text)
                train = self.run_dlcore("train", text, "--ranks=2")
                self.assertEqual(train.returncode, check.returncode)
                self.assertEqual(self.errors(train), self.errors(check))
                self.assertFalse((self.path / "runs").exists())

    def test_odd(self):
        for changes, (section, key), words in ODD:
            with self.subTest(changes=changes):
                text = change(changes)
                done = self.run_dlcore("check", text, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                found = json.loads(done.stdout)["mistakes"]
                self.assertEqual([(m["severity"], m["section"], m["key"], m["line"])
                                  for m in found],
                                 [("warning", section, key, line_of(text, section, key))])
                self.assertIn(words, found[0]["message"])
                self.assertEqual(done.stderr.count("warning: "), 1, done.stderr)

    def test_all_at_once(self):
        """All kinds at once; layers that depend on a broken one are not reported."""
        text = change({"loss/input = ip1": "input = ip1\n[also]\ntype = softmax_loss\n"
                       "input = conv2", "solver/learning_rate = 0.01": "learning_rate = 0\nmometum = 3",
                       f"data/{PLAIN}": "transforms = center_crop(12)",
                       "conv1/kernel_size = 3": "kernel_size = 17",
                       "ip1/num_output = 10": "num_output = 8\ninput = data",
                       "data.test/shape = 3,16,16": "shape = 3,16"})
        done = self.run_dlcore("check", text, "--json")
        self.assertEqual(done.returncode, 2)
        found = json.loads(done.stdout)["mistakes"]
        self.assertEqual([(m["section"], m["key"]) for m in found],
                         [("data.test", "shape"), ("solver", "mometum"), ("conv1", None),
                          ("ip1", "num_output")])
        self.assertIn("4 mistakes in net.ini", done.stderr)

    def test_copies_of_a_block(self):
        """A mistake in a block is reported once, with the line in the block."""
        block = "[block b]\n[b.c]\ntype = convolution\nnum_output = 8\nkernel_size = {}\n"
        text = NET.replace("[relu1]", "[b1]\nblock = b\n[b2]\nblock = b\n[relu1]")
        good = self.run_dlcore("check", block.format(3) + text)
        self.assertEqual((good.returncode, good.stderr), (0, ""))
        bad = self.run_dlcore("check", block.format(40) + text, "--json")
        self.assertEqual(bad.returncode, 2, bad.stderr)
        found = json.loads(bad.stdout)["mistakes"]
        self.assertEqual([(m["line"], m["section"]) for m in found], [(2, "b.c")])

    def write_idx(self, name, magic, dims, data):
        head = struct.pack(">I", magic) + b"".join(struct.pack(">I", d) for d in dims)
        (self.path / name).write_bytes(head + data)

    def idx_net(self, labels, test_labels):
        for name, some in (("train", labels), ("test", test_labels)):
            self.write_idx(f"{name}-i", 0x803, [len(some), 8, 8], bytes(64 * len(some)))
            self.write_idx(f"{name}-l", 0x801, [len(some)], bytes(some))
        return ("[data]\nsource = idx\nimages = train-i\nlabels = train-l\nbatch = 4\n"
                "[data.test]\nsource = idx\nimages = test-i\nlabels = test-l\n"
                "[solver]\ntype = sgd\n[train]\niterations = 3\n"
                "[ip]\ntype = inner_product\nnum_output = 3\n[loss]\ntype = softmax_loss\n")

    def test_labels_of_tests(self):
        """A label without an output is found even if it is the last one of [data.test]."""
        text = self.idx_net([0, 1, 2] * 8, [0] * 500 + [3])
        for command in ("check", "train"):
            done = self.run_dlcore(command, text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"net.ini:16: \[ip\] num_output = 3, but \[loss\] "
                             r"compares its scores with the labels of \[data.test\] "
                             r"\(net.ini:7\), which has 4 classes")
        fits = self.run_dlcore("check", self.idx_net([0, 1, 2] * 8, [0, 1, 2]))
        self.assertEqual((fits.returncode, fits.stderr), (0, ""))

    def test_files(self):
        """Problems with files of both sections are reported in one run, as bad data."""
        text = self.idx_net([0, 1, 2], [0, 1, 2])
        (self.path / "train-i").unlink()
        (self.path / "test-l").write_bytes(b"\0\0\x08\x01\0\0\0\x05abc")
        done = self.run_dlcore("check", text, "--json")
        self.assertEqual(done.returncode, 4, done.stderr)
        found = json.loads(done.stdout)["mistakes"]
        self.assertEqual([(m["section"], m["line"], m["severity"]) for m in found],
                         [(None, None, "warning"), ("data", 2, "error"),
                          ("data.test", 7, "error")])
        self.assertIn("shapes were not checked", found[0]["message"])

    def test_classes_above_a_broken_shape(self):
        """num_output is compared although the shapes there are not known, but only once, and
        only where no shape is needed for it."""
        broken = {"conv1/kernel_size = 3": "kernel_size = 17"}
        few = {"ip1/num_output = 10": "num_output = 8"}
        behind = {"ip1/num_output = 10": "num_output = 8\n[r]\ntype = relu",
                  "loss/input = ip1": "input = r"}
        last = {"ip1/type = inner_product": "type = convolution\nkernel_size = 99"}
        pooled = {**behind, "ip1/num_output = 10":
                  "num_output = 8\n[r]\ntype = pooling\nglobal = yes"}
        for changes, sections in (({**broken, **few}, ["conv1", "ip1"]),
                                  ({**broken, **behind}, ["conv1", "ip1"]),
                                  ({**few, **last}, ["ip1", "ip1"]),
                                  ({**broken, **pooled}, ["conv1"]), (broken, ["conv1"])):
            with self.subTest(changes):
                text = change(changes)
                done = self.run_dlcore("check", text, "--json")
                self.assertEqual(done.returncode, 2, done.stderr)
                found = json.loads(done.stdout)["mistakes"]
                self.assertEqual([m["section"] for m in found], sections, found)
                if len(sections) == 2:
                    self.assertEqual(found[1]["line"], line_of(text, "ip1", "num_output"))
                    self.assertIn("it needs one output per class", found[1]["message"])

    def peak(self, text, *options):
        done = self.run_dlcore("check", text, "--json", "--overcommit", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["peak_bytes"]

    def test_memory(self):
        """A net that needs more memory than the machine has is refused before anything is
        allocated; with --overcommit there is only a warning."""
        huge = change({"data/batch = 24": "batch = 1000000",
                       "conv1/num_output = 8": "num_output = 5000"})
        words = re.compile(r"^error: net.ini:8: \[data\] batch = 1000000: training would need "
                           r"\d+\.\d GB of memory, but this machine has \d+\.\d GB; .*"
                           r"--overcommit", re.M)
        for command in ("check", "train"):
            done = self.run_dlcore(command, huge)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, words)
        listed = [mistake for mistake in
                  json.loads(self.run_dlcore("check", huge, "--json").stdout)["mistakes"]
                  if mistake["severity"] == "error"]
        self.assertEqual([(m["file"], m["line"], m["section"], m["key"]) for m in listed],
                         [("net.ini", 8, "data", "batch")])
        both = self.run_dlcore("train", huge, "--ranks=2")
        self.assertEqual(both.returncode, 2, both.stderr)
        self.assertIn("the 2 ranks of a machine would need", both.stderr)
        forced = self.run_dlcore("check", huge, "--overcommit")
        self.assertEqual(forced.returncode, 0, forced.stderr)
        self.assertIn("warning: net.ini:8: [data] batch = 1000000", forced.stderr)

    def test_memory_of_tests(self):
        """The message names the batch of the tests if training fits and testing does not."""
        huge = change({"data.test/batch = 24": "batch = 1000000",
                       "conv1/num_output = 8": "num_output = 5000"})
        words = (r"^error: net.ini:\d+: \[data.test\] batch = 1000000: {} would need "
                 r"\d+\.\d GB of memory, but this machine has \d+\.\d GB; use a smaller "
                 r"batch or fewer ranks; --overcommit")
        (self.path / "some.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
        weights = "--weights=some.safetensors"
        for command, who, options in (("check", "training", ()), ("train", "training", ()),
                                      ("test", "testing", (weights,))):
            done = self.run_dlcore(command, huge, *options)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, re.compile(words.format(who), re.M))
        listed = [mistake for mistake in
                  json.loads(self.run_dlcore("check", huge, "--json").stdout)["mistakes"]
                  if mistake["severity"] == "error"]
        self.assertEqual([(m["section"], m["key"]) for m in listed],
                         [("data.test", "batch")])
        both = self.run_dlcore("test", huge, weights, "--ranks=2")
        self.assertEqual(both.returncode, 2, both.stderr)
        self.assertIn("the 2 ranks of a machine would need", both.stderr)
        # With a small test batch, what training would need does not matter.
        few = change({"data/batch = 24": "batch = 1000000",
                      "conv1/num_output = 8": "num_output = 5000"})
        done = self.run_dlcore("test", few, weights)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("missing: conv1.bias", done.stderr)

    def machine_bytes(self):
        """The memory that the ranks may use, from the message that refuses a net: a container
        may have less than its machine."""
        huge = self.run_dlcore("check", change({"data/batch = 24": "batch = 1000000",
                                                "conv1/num_output = 8": "num_output = 5000"}))
        found = float(re.search(r"machine has (\d+\.\d) GB", huge.stderr)[1]) * 1e9
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.assertLess(found, 1.01 * physical + 1e8)
        return found

    def test_ranks_add_up(self):
        """One rank fits into memory, but many ranks do not."""
        machine = self.machine_bytes()
        base, more = self.peak(NET), self.peak(change({"data/batch = 24": "batch = 1024"}))
        batch = min(int(machine / 4 / ((more - base) / 1000)), 1 << 20)
        text = change({"data/batch = 24": f"batch = {batch}"})
        ranks = int(machine / (self.peak(text) - base)) + 2
        self.assertEqual(self.run_dlcore("check", text).returncode, 0)
        done = self.run_dlcore("check", text, f"--ranks={ranks}")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"the {ranks} ranks of a machine", done.stderr)

    def test_batch_split(self):
        """Shows the rank that has the most samples, as training splits them."""
        split = "--set=parallel.batch_split=1,1,2"
        shown = json.loads(self.run_dlcore("check", NET, "--json", "--ranks=3", split).stdout)
        self.assertEqual((shown["batch"], shown["effective_batch"]), (36, 72))
        text = self.run_dlcore("check", NET, "--ranks=3", split).stdout
        self.assertIn(" at most 36 per rank, 72 effective\n", text)
        done = self.run_dlcore("check", NET, "--ranks=2", split)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("batch_split has 3 proportions, but there are 2 ranks", done.stderr)

    def test_plan_agrees(self):
        """check and plan give one number for one net and batch."""
        for more in ((), ("--set=data.batch=96",), ("--ranks=2",)):
            with self.subTest(more):
                done = self.run_dlcore("plan", NET, "--json", "--no-check", "--passes=1", *more)
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = json.loads(done.stdout)["scaling"]
                peak = self.peak(NET, *more)
                for row in rows:
                    self.assertAlmostEqual(row["weak"]["memory_bytes"], peak, delta=4.1e6)

    def test_no_file(self):
        done = subprocess.run([BIN, "check", "nothing.ini", "--json"], cwd=self.path, text=True,
                              capture_output=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 2)
        found = json.loads(done.stdout)["mistakes"]
        self.assertEqual(len(found), 1)
        self.assertIn("nothing.ini", found[0]["message"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
