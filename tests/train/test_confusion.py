#!/usr/bin/env python3
"""Tests what `dlcore test` counts beside the metrics: which classes are taken for which, each
class's accuracy and the K best scores, with any number of ranks, as text, JSON and a picture."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

BIN = os.environ["DLCORE_BIN"]
CLASSES, SAMPLES = 4, 50

# The scores are the pixels themselves: what the net predicts is known.
NET = f"""[net]
name = pixels
[data]
source = idx
images = images
labels = labels
batch = 8
[data.test]
source = idx
images = images
labels = labels
batch = 8
[solver]
type = sgd
learning_rate = 0.01
[train]
device = cpu
threads = 1
[ip]
type = inner_product
num_output = {CLASSES}
bias = no
[loss]
type = softmax_loss
[accuracy]
type = accuracy
input = ip
[accuracy2]
type = accuracy
input = ip
top_k = 2
"""


def weights(path, values):
    packed = struct.pack(f"<{len(values)}f", *values)
    header = json.dumps({"ip.weight": {"dtype": "F32", "shape": [CLASSES, CLASSES],
                                       "data_offsets": [0, len(packed)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + packed)


class Confusion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "net.ini").write_text(NET)
        # Sample i shows scores that are a permutation, or ties where i is a multiple of 10.
        cls.scores = [[(7 * i + 3 * c * (i % 3 + 1)) % 11 if i % 10 else 5
                       for c in range(CLASSES)] for i in range(SAMPLES)]
        cls.labels = [i * i % CLASSES for i in range(SAMPLES)]
        (cls.folder / "images").write_bytes(struct.pack(">4I", 0x803, SAMPLES, 2, 2) +
                                            bytes(sum(cls.scores, [])))
        (cls.folder / "labels").write_bytes(struct.pack(">2I", 0x801, SAMPLES) +
                                            bytes(cls.labels))
        weights(cls.folder / "w.safetensors", [float(i == j) for i in range(CLASSES)
                                               for j in range(CLASSES)])

    def run_it(self, *options):
        return subprocess.run([BIN, "test", "net.ini", "--weights=w.safetensors", *options],
                              cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False)

    def report(self, *options):
        done = self.run_it("--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def expected(self):
        """A class whose score equals the label's ranks before it."""
        matrix = [[0] * CLASSES for _ in range(CLASSES)]
        for scores, label in zip(self.scores, self.labels):
            others = [c for c in range(CLASSES) if c != label and scores[c] >= scores[label]]
            best = max(others, key=lambda c: (scores[c], -c)) if others else label
            matrix[label][best] += 1
        return matrix

    def test_counts(self):
        matrix = self.expected()
        for ranks in (1, 2, 3):
            report = self.report("--confusion", "--top=2", f"--ranks={ranks}")
            self.assertEqual(report["confusion"], matrix)
            self.assertEqual(report["accuracy"],
                             sum(matrix[i][i] for i in range(CLASSES)) / SAMPLES)
            self.assertEqual(report["top"]["k"], 2)
            self.assertAlmostEqual(report["top"]["accuracy"], report["metrics"]["accuracy2"])
            for i, row in enumerate(report["classes"]):
                samples = sum(matrix[i])
                predicted = sum(matrix[j][i] for j in range(CLASSES))
                self.assertEqual((row["name"], row["samples"]), (str(i), samples))
                self.assertAlmostEqual(row["accuracy"], matrix[i][i] / samples if samples else 0)
                self.assertAlmostEqual(row["precision"],
                                       matrix[i][i] / predicted if predicted else 0)

    def test_not_asked_for(self):
        report = self.report()
        self.assertFalse({"confusion", "classes", "top"} & set(report))
        self.assertEqual(report["accuracy"], self.report("--confusion")["accuracy"])

    def test_text(self):
        matrix = self.expected()
        said = self.run_it("--confusion", "--top=4").stdout
        self.assertIn("top-4 accuracy 1.0000", said)
        rows = re.findall(r"^(\d) +((?:\d+ *){4})$", said, re.M)
        self.assertEqual([[int(n) for n in row.split()] for _, row in rows], matrix)

    def test_picture(self):
        done = self.run_it("--plot=c.svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = xml.etree.ElementTree.parse(self.folder / "c.svg")
        numbers = [int(text.text) for text in svg.iter("{http://www.w3.org/2000/svg}text")
                   if text.get("class") in ("on", "number")]
        self.assertEqual(numbers, [n for row in self.expected() for n in row if n])

    def test_title_fits(self):
        for name in ("x", "name-of-many-letters-" * 3):
            done = self.run_it("--plot=c.svg", f"--set=net.name={name}")
            self.assertEqual(done.returncode, 0, done.stderr)
            svg = xml.etree.ElementTree.parse(self.folder / "c.svg").getroot()
            title = next(text for text in svg.iter("{http://www.w3.org/2000/svg}text")
                         if text.get("class") == "title")
            self.assertTrue(title.text.startswith(name), title.text)
            # A bold letter of 20 pixels is about 12 wide.
            self.assertLess(float(title.get("x")) + 12 * len(title.text),
                            float(svg.get("width")))

    def test_refused(self):
        for options, code, sentence in ((["--top=5"], 2, "only 4 classes"),
                                        (["--top=0"], 2, "--top=0"),
                                        (["--plot=c.png"], 2, ".svg"),
                                        (["--plot=none/c.svg"], 1, "cannot write")):
            done = self.run_it(*options)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main()
