#!/usr/bin/env python3
"""Tests what --weights takes: tensors matched by name, of several files, renamed, left out,
of other types; and that nothing is taken where something does not match."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

from test_combinations import read_tensors

BIN = os.environ["DLCORE_BIN"]

NET = """[net]
name = tiny
[data]
source = synthetic
shape = 3,12,12
classes = 4
samples = 48
batch = 12
transforms = normalize(scale=0.00390625)
[data.test]
source = synthetic
shape = 3,12,12
classes = 4
samples = 24
first = 1000
batch = 12
transforms = normalize(scale=0.00390625)
[solver]
type = sgd
learning_rate = 0.01
momentum = 0.9
[train]
threads = 1
device = cpu
checkpoint_minutes = 0
keep_best = no
[conv1]
type = convolution
num_output = 6
kernel_size = 3
[bn1]
type = batch_norm
[relu1]
type = relu
[aux]
type = inner_product
num_output = 4
input = relu1
phase = train
[aux_loss]
type = softmax_loss
input = aux
phase = train
[ip1]
type = inner_product
num_output = 4
input = relu1
[loss]
type = softmax_loss
[accuracy]
type = accuracy
input = ip1
"""
CODES = {"F32": "f", "F16": "e", "F64": "d", "I64": "q"}


def pack(values, dtype):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def write(path, tensors):
    """A file as other programs write it: {name: (shape, values, dtype)}."""
    header, data = {}, b""
    for name, (shape, values, dtype) in tensors.items():
        packed = pack(values, dtype)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


class Weights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.net = cls.folder / "tiny.ini"
        cls.net.write_text(NET)
        cls.own = cls.train("--iterations=3")
        data = cls.own.read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        cls.tensors = {name: (header[name]["shape"], list(values), "F32")
                       for name, values in read_tensors(cls.own).items()
                       if "/" not in name and not name.startswith("dlcore")}

    @classmethod
    def run_it(cls, command, *options):
        return subprocess.run([BIN, command, str(cls.net), "--json", *options],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False)

    @classmethod
    def train(cls, *options):
        done = cls.run_it("train", f"--run-dir={tempfile.mkdtemp(dir=cls.folder)}", *options)
        if done.returncode:
            raise AssertionError(f"{options}: {done.stderr}")
        return pathlib.Path(json.loads(done.stdout)["checkpoint"])

    def loss_of(self, *options):
        done = self.run_it("test", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["test_loss"], done.stderr

    def refused(self, sentences, *options, code=4):
        done = self.run_it("test", *options)
        self.assertEqual(done.returncode, code, done.stderr)
        for sentence in sentences:
            self.assertIn(sentence, done.stderr)
        return done.stderr

    def file(self, tensors, name="other.safetensors"):
        return f"--weights={write(self.folder / name, tensors)}"

    def without(self, *names):
        return {name: value for name, value in self.tensors.items() if name not in names}

    def test_own(self):
        """A checkpoint has slots, and a layer that a test does not have."""
        _, said = self.loss_of(f"--weights={self.own}")
        self.assertNotIn("unexpected", said)
        self.assertNotIn("keep their initial values", said)

    def test_same_weights(self):
        """From a file of another program, in two files, renamed: the same loss."""
        loss, _ = self.loss_of(f"--weights={self.own}")
        self.assertEqual(self.loss_of(self.file(self.tensors))[0], loss)
        two = (self.file({"ip1.bias": self.tensors["ip1.bias"]}, "bias.safetensors"),
               self.file(self.without("ip1.bias")))
        self.assertEqual(self.loss_of(*two)[0], loss)
        renamed = {f"net.{name}".replace("ip1.", "fc."): value
                   for name, value in self.tensors.items()}
        self.assertEqual(self.loss_of(self.file(renamed), "--weights-map=net.fc.*=ip1.*",
                                     "--weights-map=net.*=*")[0], loss)

    def test_types(self):
        """float64 is exact; the others are as near as they can be, and exact again for
        values that they hold."""
        loss, _ = self.loss_of(f"--weights={self.own}")
        for dtype, near in (("F64", 0), ("F16", 1e-3), ("BF16", 1e-2)):
            with self.subTest(dtype=dtype):
                other = {name: (shape, values, dtype)
                         for name, (shape, values, _) in self.tensors.items()}
                self.assertAlmostEqual(self.loss_of(self.file(other))[0], loss, delta=near)
                rest = self.train(self.file(other), "--iterations=1",
                                  *[f"--set={layer}.frozen=yes"
                                    for layer in ("conv1", "bn1", "ip1")])
                for name, values in read_tensors(rest).items():
                    if name in other and not name.startswith("aux"):
                        self.assertEqual(pack(list(values), dtype),
                                         pack(other[name][1], dtype), name)

    def test_special_values(self):
        values = [0.0, -0.0, 2.0**-24, -2.0**-24, 1023 * 2.0**-24, 2.0**-14, 65504.0, 1.0,
                  float("inf"), float("-inf"), 1 / 3]
        shape, own, _ = self.tensors["conv1.weight"]
        tensors = dict(self.tensors)
        tensors["conv1.weight"] = (shape, (values * 99)[:len(own)], "F16")
        rest = self.train(self.file(tensors), "--iterations=0", "--set=conv1.frozen=yes")
        got = list(read_tensors(rest)["conv1.weight"])
        self.assertEqual(pack(got, "F16"), pack((values * 99)[:len(own)], "F16"))

    def test_missing(self):
        said = self.refused(["missing: ip1.bias\n", "1 missing, 0 unexpected, 0 unlike"],
                            self.file(self.without("ip1.bias")))
        self.assertNotIn("missing: conv1", said)
        misspelt = {**self.without("ip1.bias"), "ip1.bais": self.tensors["ip1.bias"]}
        self.refused(["missing: ip1.bias, the nearest name is ip1.bais",
                      "unexpected: ip1.bais [4]"], self.file(misspelt))
        self.loss_of(self.file(self.without("ip1.bias")), "--weights-skip=ip1.bias")

    def test_unexpected(self):
        more = {**self.tensors, "head.weight": ([2, 3], [0.0] * 6, "F32"),
                "other.mean": ([6], [5.0] * 6, "F32")}
        self.refused(["unexpected: head.weight [2, 3]", "other.mean",
                      "0 missing, 2 unexpected"], self.file(more))
        self.loss_of(self.file(more), "--weights-skip=head.*", "--weights-skip=other.*")

    def test_batch_norm_of_pytorch(self):
        """Its names need no rules, and its counter is no parameter."""
        loss, _ = self.loss_of(f"--weights={self.own}")
        names = {"scale": "weight", "mean": "running_mean", "variance": "running_var"}
        other = {}
        for name, value in self.tensors.items():
            layer, _, param = name.rpartition(".")
            other[f"{layer}.{names.get(param, param)}"] = value
        other["bn1.num_batches_tracked"] = ([], [5], "I64")
        self.assertEqual(self.loss_of(self.file(other))[0], loss)

    def test_rules_of_a_file(self):
        loss, _ = self.loss_of(f"--weights={self.own}")
        other = {f"net.{name}.x".replace("ip1.", "fc."): value
                 for name, value in self.tensors.items()}
        rules = self.folder / "rules.map"
        rules.write_text("# names\n\nnet.*.x = *  # all\nfc.* = ip1.*\r\n")
        self.assertEqual(self.loss_of(self.file(other), f"--weights-map=@{rules}")[0], loss)
        rules.write_text("net.*.x = *\nnothing\n")
        self.refused([f"{rules}:2: 'nothing' renames no tensor"], self.file(other),
                     f"--weights-map=@{rules}", code=2)
        self.refused(["cannot open none.map"], self.file(other), "--weights-map=@none.map",
                     code=2)

    def test_two_stars(self):
        """Each stands for the text of the star at the same place."""
        loss, _ = self.loss_of(f"--weights={self.own}")
        other = {"a." + name.replace(".", ".mid.") + ".b": value
                 for name, value in self.tensors.items()}
        self.assertEqual(self.loss_of(self.file(other), "--weights-map=a.*.mid.*.b=*.*")[0],
                         loss)

    def test_run_folder(self):
        """A folder stands for its newest checkpoint, and says so; `last` and `best` are links."""
        folder = self.train("--epochs=3", "--set=train.keep_best=yes").parent
        newest = sorted(folder.glob("*.safetensors"))[-1]
        loss, said = self.loss_of(f"--weights={folder}")
        self.assertIn(f"weights: {newest}, the newest in {folder}", said)
        self.assertEqual(os.readlink(folder / "last"), newest.name)
        self.assertEqual(self.loss_of(f"--weights={folder}/last")[0], loss)
        self.assertIn(folder / os.readlink(folder / "best"), folder.glob("*.safetensors"))
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused([f"--weights {empty}: the folder holds no checkpoint"],
                     f"--weights={empty}")
        (empty / newest.name).write_bytes(newest.read_bytes())
        (empty / newest.name.replace("tiny", "other")).write_bytes(newest.read_bytes())
        self.refused(["checkpoints of several nets ('other' and 'tiny')"],
                     f"--weights={empty}")

    def test_files_of_others(self):
        """They are recognized by their content, whatever their names are."""
        zip_file = b"PK\x03\x04" + bytes(26)
        caffe = b"\x0a\x07CaffeNe\xa2\x06\x10" + bytes(40)
        for what, content in (
                ("a PyTorch file", zip_file + b"model/data.pkl"),
                ("a PyTorch file", b"\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02"),
                ("a NumPy archive", zip_file + b"weight.npy"),
                ("an ONNX model", b"\x08\x07\x12\x07pytorch\x1a\x052.0.0" + bytes(40)),
                ("a caffemodel", caffe), ("a caffemodel", caffe[9:]),
                ("an HDF5 file", b"\x89HDF\r\n\x1a\n" + bytes(40))):
            with self.subTest(what=what, content=content):
                path = self.folder / "weights"
                path.write_bytes(content)
                self.refused([f"{path} is {what}", "which dlcore does not read",
                              "docs/weights.md"], f"--weights={path}")
                done = self.run_it("train", f"--resume={path}")
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(what, done.stderr)
                done = subprocess.run([BIN, "train", str(path)], capture_output=True,
                                      text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"{path} is {what}", done.stderr)
                self.assertIn("not a net", done.stderr)
        path.write_text("# A net\nname: \"LeNet\"\nlayer {\n  name: \"data\"\n}\n")
        self.refused(["is a Caffe prototxt, a net without weights"], f"--weights={path}")
        self.refused(["is a net.ini, a net without weights"], f"--weights={self.net}")
        done = subprocess.run([BIN, "check", str(path)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is a Caffe prototxt, which dlcore does not read", done.stderr)
        done = subprocess.run([BIN, "train", str(self.own)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is a safetensors file, not a net", done.stderr)

    def test_unlike(self):
        other = {**self.tensors, "ip1.bias": ([5], [0.0] * 5, "F32"),
                 "bn1.mean": ([6], [0] * 6, "I64")}
        self.refused(["unlike: ip1.bias has the shape [5], but the net needs [4]",
                      "unlike: bn1.mean is of type I64", "2 unlike"], self.file(other))

    def test_twice(self):
        self.refused(["'ip1.bias' is there twice"], self.file(self.tensors),
                     self.file({"b": self.tensors["ip1.bias"]}, "b.safetensors"),
                     "--weights-map=b=ip1.bias")

    def test_nothing_is_taken(self):
        """All kinds at once, listed; with two ranks, once. The run does not begin."""
        other = {**self.without("ip1.weight"), "ip1.bias": ([5], [0.0] * 5, "F32"),
                 "w": ([1], [0.0], "F32")}
        done = self.run_it("train", self.file(other), "--iterations=2", "--ranks=2",
                           f"--run-dir={self.folder}/none")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(done.stderr.count("missing: ip1.weight"), 1)
        self.assertIn("1 missing, 1 unexpected, 1 unlike", done.stderr)
        self.assertNotIn("iteration 1", done.stderr)
        self.assertFalse((self.folder / "none").exists())

    def test_damaged(self):
        """What matches by its header is still not taken if the bytes are not intact."""
        path = self.folder / "damaged.safetensors"
        data = bytearray(self.own.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        self.refused(["damaged"], f"--weights={path}")

    def test_each_file(self):
        """What is wrong with any of several files is found, whichever it is."""
        parts = {"ip1.bias": self.tensors["ip1.bias"]}, self.without("ip1.bias")
        good = [self.file(part, f"part{i}.safetensors") for i, part in enumerate(parts)]
        self.loss_of(*good)
        for i in range(2):
            with self.subTest(file=i):
                path = self.folder / f"part{i}.safetensors"
                whole = path.read_bytes()
                path.write_bytes(whole[:-1])
                self.refused([str(path)], *good)
                path.unlink()
                self.refused([str(path)], *good)
                path.write_bytes(whole)
        self.loss_of(*reversed(good))

    def test_second_is_damaged(self):
        """A checkpoint has a checksum; it is checked in the second file as in the first."""
        small = self.file({"unknown": ([1], [0.0], "F32")}, "small.safetensors")
        path = self.folder / "second.safetensors"
        data = bytearray(self.own.read_bytes())
        path.write_bytes(data)
        self.loss_of(small, f"--weights={path}", "--weights-skip=unknown")
        data[-5] ^= 1
        path.write_bytes(data)
        self.refused(["damaged"], small, f"--weights={path}", "--weights-skip=unknown")

    def test_rules(self):
        file = self.file(self.tensors)
        for rule, what in (("ip1.bias", "FROM=TO"), ("=x", "FROM=TO"), ("a*b*c*d*e*=c", "'*'"),
                           ("a*=b*c*", "'*'"), ("a=b*", "'*'")):
            self.refused([what], file, f"--weights-map={rule}", code=2)
        self.refused(["need --weights"], "--weights-skip=x", code=2)
        _, said = self.loss_of(file, "--weights-skip=nothing.*", "--weights-map=x=y")
        self.assertIn("--weights-skip=nothing.* applies to no tensor", said)
        self.assertIn("--weights-map=x=y applies to no tensor", said)

    def test_ranks(self):
        """Every rank gets the same, also where layers are split."""
        kept = {name: value for name, value in self.tensors.items()
                if not name.startswith("aux")}
        plain = re.sub(r"\[aux\].*?(?=\[ip1\])", "", NET, flags=re.S)
        self.net.write_text(plain)
        self.addCleanup(self.net.write_text, NET)
        for options in (["--ranks=2"], ["--ranks=2", "--set=ip1.parallel=tensor"],
                        ["--ranks=2", "--set=parallel.pipeline=ip1"]):
            with self.subTest(options=options):
                rest = read_tensors(self.train(self.file(kept), "--iterations=0",
                                               "--scaling=strong", *options))
                for name, (_, values, _) in kept.items():
                    self.assertEqual(list(rest[name]), values, name)


if __name__ == "__main__":
    unittest.main()
