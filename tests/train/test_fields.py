#!/usr/bin/env python3
"""Nets that read fields of their samples by name: a class for each pixel, numbers, several
classes, and samples that are mixed. They learn, any number of ranks and any layout trains the
same, and a run that resumes in the middle of an epoch is bitwise the run that never stopped."""

import array
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from test_transports import tensors_digest

BIN = os.environ["DLCORE_BIN"]
EXAMPLES = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "examples" / "fields"
CLOSE = 1e-3  # of the largest weight of a tensor; the order of float32 sums differs
SMALL = ["--set=data.samples=330", "--set=data.test.samples=50", "--set=data.batch=15"]
# Nothing that is measured decides, so that runs can be compared.
WINDOW = "--set=data.shuffle_window=64"
PINNED = ["--threads=1", "--transport=p2p-tree", "--scaling=strong",
          "--set=train.autotune=no"]


def tensors(path):
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = entry["data_offsets"]
            found[name] = array.array("f", data[begin + first:begin + end])
    return found


class Fields(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.runs = 0

    def run_net(self, *arguments, fails=False):
        done = subprocess.run([BIN, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode == 0, not fails, done.stderr)
        return done

    def train(self, net, *arguments):
        """Trains; returns what it says, and its last checkpoint."""
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        done = self.run_net("train", EXAMPLES / f"{net}.ini", "--json", "-q",
                            f"--run-dir={folder}", *PINNED, *arguments)
        return json.loads(done.stdout), max(folder.glob("*.safetensors"))

    def assert_close(self, one, other):
        one, other = tensors(one), tensors(other)
        self.assertEqual(one.keys(), other.keys())
        for name in one:
            most = max(map(abs, one[name]), default=0)
            far = max((abs(a - b) for a, b in zip(one[name], other[name])), default=0)
            self.assertLessEqual(far, CLOSE * most, name)

    def test_they_learn(self):
        for net, least, most in (("segmentation", 0.93, 0.3), ("regression", 0, 0.02),
                                 ("multi-label", 0, 0.1)):
            found, _ = self.train(net, "--epochs=2", "--set=data.samples=768",
                                  "--set=train.test_interval=1000")
            self.assertLess(found["test_loss"], most, net)
            if least:
                self.assertGreater(found["accuracy"], least, net)

    def test_masks(self):
        """A U-Net learns, and the masks that it predicts are right as often as its test says."""
        net = EXAMPLES / "unet.ini"
        found, weights = self.train("unet", "--set=data.samples=768", "--set=train.test_interval=1000")
        self.assertGreater(found["accuracy"], 0.94)
        self.run_net("predict", net, "--weights", weights, "--data=test", "--masks", "--threads=1")
        self.run_net("data", "convert", net, "--test", "-o", "shards")
        predicted = (self.folder / "masks.npy").read_bytes()
        self.assertIn(b"'|u1'", predicted)
        self.assertIn(b"(200, 24, 24)", predicted)
        shard, = (self.folder / "shards").glob("*.tar")
        with tarfile.open(shard) as tar:
            masks = [tar.extractfile(member).read() for member in tar if member.name.endswith(".mask.npy")]
        true = b"".join(mask[-24 * 24:] for mask in masks)
        right = sum(map(int.__eq__, true, predicted[-len(true):])) / len(true)
        self.assertEqual(len(true), 200 * 24 * 24)
        self.assertAlmostEqual(right, found["accuracy"], 4)
        said = self.run_net("predict", net, "--weights", weights, "--data=test", fails=True).stderr
        self.assertIn("--masks writes the best classes", said)

    def test_ranks(self):
        """Also where a batch of 15 is split into unequal parts, and pairs between ranks, and in
        an order of windows."""
        for net, *more in (("segmentation", "--set=data.cutmix=1"), ("regression", WINDOW),
                           ("multi-label", "--set=data.mixup=0.4")):
            _, alone = self.train(net, "--iterations=16", *SMALL, *more)
            for ranks in (2, 3):
                _, split = self.train(net, "--iterations=16", *SMALL, *more,
                                      f"--ranks={ranks}")
                self.assert_close(alone, split)

    def test_layouts(self):
        """Masks and numbers go to the last stage, and to tensor-parallel layers."""
        for net, *more in (("segmentation", "--set=parallel.pipeline=far"),
                           ("multi-label", "--set=parallel.pipeline=ip1",
                            "--set=parallel.micro_batches=4"),
                           ("regression", "--set=ip1.parallel=tensor",
                            "--set=place.parallel=tensor",
                            "--set=parallel.tensor_schedule=chunked")):
            _, alone = self.train(net, "--iterations=12", *SMALL)
            tested, split = self.train(net, "--iterations=12", *SMALL, "--ranks=2", *more)
            self.assert_close(alone, split)
            self.assertGreater(tested["test_loss"], 0)

    def test_resume(self):
        """The iteration after which it stops is in the middle of an epoch of 22."""
        for net, *more in (("segmentation", "--set=data.cutmix=1"),
                           ("multi-label", "--set=data.mixup=0.4", WINDOW, "--ranks=2")):
            _, whole = self.train(net, "--iterations=30", *SMALL, *more)
            _, first = self.train(net, "--iterations=13", *SMALL, *more)
            _, rest = self.train(net, "--iterations=30", *SMALL, *more,
                                 f"--resume={first}")
            self.assertEqual(tensors_digest(whole), tensors_digest(rest), net)

    def test_what_does_not_count(self):
        """A sample of class -1, or whose targets are NaN, changes neither weights nor results."""
        rows = ["1,0,3,4,0,1,0,0.5,2", "2,1,1,0,1,0,1,-1,3", "0,2,1,5,1,1,1,2,0.5"]
        for name, label, unknown, *more in (
                ("softmax_loss", "label", "9,9,9,9,-1,1,0,1,1", "[accuracy]", "type = accuracy", "input = ip, label"),
                ("sigmoid_cross_entropy_loss", "labels", "9,9,9,9,0,nan,-1,1,1"),
                ("euclidean_loss", "vector", "9,9,9,9,0,1,0,nan,NaN")):
            found = []
            for table in (rows, [rows[0], unknown, *rows[1:]]):
                (self.folder / "table.csv").write_text("\n".join(["p0,p1,p2,p3,label,a,b,x,y", *table]))
                data = ("source = csv\nfile = table.csv\nimage = p0..p3\nlabel = label\nlabels = a, b\n"
                        "vector = x, y\nshuffle = no\nbatch =")
                (self.folder / "net.ini").write_text("\n".join((
                    f"[net]\nname = net\n[data]\n{data} {len(table)}\n[data.test]\n{data} 2\n[train]\nseed = 2",
                    "[solver]\ntype = sgd\nlearning_rate = 0.1\n[ip]\ntype = inner_product\nnum_output = 2",
                    f"weight_filler = xavier\n[loss]\ntype = {name}\nlabel = {label}", *more)))
                folder = self.folder / f"{name}{len(table)}"
                done = self.run_net("train", "net.ini", "--json", "-q", f"--run-dir={folder}", "--iterations=3", *PINNED)
                found.append((json.loads(done.stdout), max(folder.glob("*.safetensors"))))
            self.assertGreater(found[0][0]["test_loss"], 0.1, name)
            for key in ("training_loss", "test_loss", "accuracy"):
                self.assertAlmostEqual(found[0][0][key] or 0, found[1][0][key] or 0, 5, name)
            self.assert_close(found[0][1], found[1][1])

    def test_samples_without_a_label(self):
        """Nothing can be learned from them, but they can be predicted."""
        (self.folder / "table.csv").write_text("a,b,l\n1,2,0\n3,4,1\n")
        data = "source = csv\nfile = table.csv\nvector = a, b\nbatch = 2\n"
        net = ("[net]\nname = net\n[data]\n{}[data.test]\n{}[solver]\ntype = sgd\nlearning_rate = 0.1\n"
               "[ip]\ntype = inner_product\nnum_output = 2\n[loss]\ntype = softmax_loss\n")
        path = self.folder / "net.ini"
        path.write_text(net.format(data + "label = l\n", data))
        self.run_net("train", path, "-q", f"--run-dir={self.folder}/run", "--iterations=1")
        weights, = (self.folder / "run").glob("*.safetensors")
        done = self.run_net("predict", path, f"--weights={weights}", "--data=test", "--json")
        self.assertEqual(len(done.stdout.splitlines()), 2)
        path.write_text(net.format(data, data + "label = l\n"))
        self.assertIn("net.ini:4: [data] the samples have no field label, which layer 'loss' reads",
                      self.run_net("train", path, fails=True).stderr)

    def test_mistakes(self):
        for net, sets, *sentences in (
                ("segmentation", ["loss.label=mask2"], "[loss] label = mask2: there is no "
                 "layer of that name above, and the samples have no such field; did you mean "
                 "'mask'?"),
                ("segmentation", ["data.test.mask=no"], "[data.test]",
                 "the samples have no field mask, which layer 'loss' reads"),
                ("segmentation", ["data.mixup=1"], "[data]",
                 "mixup: field mask is a mask, which cannot be mixed"),
                ("regression", ["place.num_output=3"], "[loss]",
                 "a target for each of the values 16x3; it is 16x2"),
                ("segmentation", ["score.num_output=2"], "[score]", "which has 3 classes")):
            done = self.run_net("check", EXAMPLES / f"{net}.ini",
                                *[f"--set={text}" for text in sets], fails=True)
            for sentence in sentences:
                self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
