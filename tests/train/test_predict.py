#!/usr/bin/env python3
"""Tests `dlcore predict`: classes with their names and probabilities, features, samples of data
sections and of .npy files, in every format, on any device; and what it refuses."""

import csv
import io
import json
import math
import os
import pathlib
import pty
import random
import re
import struct
import subprocess
import tempfile
import unittest

from test_confusion import CLASSES, NET, SAMPLES, weights
from test_resuming import png

BIN = os.environ["DLCORE_BIN"]
ASYNC_PLUGINS = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/support/async/plugins"
ENVIRONMENT = {**os.environ, "DLCORE_PLUGIN_PATH":
               f"{os.environ['DLCORE_PLUGIN_PATH']}:{ASYNC_PLUGINS}"}
TYPES = {"|u1": "B", "<f4": "f"}


def npy(path, descr, shape, values, fortran=False, version=1):
    header = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode()
    start = b"\x93NUMPY" + bytes((version, 0))
    width = 2 if version == 1 else 4
    header += b" " * (-(len(start) + width + len(header) + 1) % 64) + b"\n"
    path.write_bytes(start + len(header).to_bytes(width, "little") + header +
                     struct.pack(f"<{len(values)}{TYPES[descr]}", *values))


def read_npy(path):
    """The shape and the values of an array of float32."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    end = 10 + int.from_bytes(data[8:10], "little")
    assert end % 64 == 0
    header = eval(data[10:end], {})  # as NumPy's documentation has it
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    values = struct.unpack(f"<{(len(data) - end) // 4}f", data[end:])
    assert math.prod(header["shape"]) == len(values), header
    return header["shape"], list(values)


class Predict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        source = random.Random(1)
        cls.scores = [[source.randrange(12) for _ in range(CLASSES)] for _ in range(SAMPLES)]
        cls.labels = [source.randrange(CLASSES) for _ in range(SAMPLES)]
        (cls.folder / "net.ini").write_text(NET)
        (cls.folder / "images").write_bytes(struct.pack(">4I", 0x803, SAMPLES, 2, 2) +
                                            bytes(sum(cls.scores, [])))
        (cls.folder / "labels").write_bytes(struct.pack(">2I", 0x801, SAMPLES) +
                                            bytes(cls.labels))
        weights(cls.folder / "w.safetensors", [float(i == j) for i in range(CLASSES)
                                               for j in range(CLASSES)])

    def run_it(self, *options, weights="w.safetensors", input=""):
        return subprocess.run([BIN, "predict", "net.ini", f"--weights={weights}", *options],
                              cwd=self.folder, capture_output=True, text=True, timeout=120,
                              check=False, env=ENVIRONMENT, input=input)

    def predicted(self, *options, **more):
        done = self.run_it("--json", *options, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refused(self, code, sentence, *options):
        done = self.run_it(*options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(sentence, done.stderr)

    def check(self, rows, first, count, top):
        self.assertEqual(len(rows), count)
        for i, row in enumerate(rows, first):
            scores = self.scores[i]
            order = sorted(range(CLASSES), key=lambda c: (-scores[c], c))[:top]
            total = sum(math.exp(s) for s in scores)
            self.assertEqual([best["class"] for best in row["top"]], order)
            for best, c in zip(row["top"], order):
                self.assertEqual(best["name"], str(c))
                self.assertAlmostEqual(best["probability"], math.exp(scores[c]) / total,
                                       delta=1e-6)

    def test_section(self):
        for section in "test", "train":
            rows = self.predicted(f"--data={section}")
            self.check(rows, 0, SAMPLES, CLASSES)
            self.assertEqual([row["label"] for row in rows], self.labels)
            self.assertEqual([row["sample"] for row in rows],
                             [str(i) for i in range(SAMPLES)])

    def test_range(self):
        """Also one that does not begin or end with a batch, and a single sample."""
        for begin, end in ((0, 8), (3, 22), (SAMPLES - 1, SAMPLES)):
            rows = self.predicted("--data=test", f"--range={begin}:{end}", "--top=2")
            self.check(rows, begin, end - begin, 2)
            self.assertEqual(rows[0]["sample"], str(begin))
        self.refused(2, "only 50 samples", "--data=test", "--range=40:51")
        for wrong in ("5", "5:5", "-1:2", "a:b", "1:2x"):
            self.refused(2, "--range", "--data=test", f"--range={wrong}")

    def test_devices(self):
        """Also one with queues and memory that the CPU cannot read."""
        rows = self.predicted("--data=test")
        self.assertEqual(self.predicted("--data=test", "--device=async"), rows)
        self.assertEqual(self.predicted("--data=test", "--set=parallel.ranks=3"), rows)
        self.assertEqual(self.predicted("--data=test", "--set=train.threads=2"), rows)

    def test_files(self):
        """The data sections need not be there. Bytes and float32 give the same."""
        flat = sum(self.scores, [])
        folder = self.folder / "files"
        (folder / "below").mkdir(parents=True, exist_ok=True)
        npy(folder / "a.npy", "|u1", (20, 1, 2, 2), flat[:80])
        npy(folder / "b.npy", "|u1", (1, 2, 2), flat[80:84])
        npy(folder / "below/c.npy", "|u1", (29, 1, 2, 2), flat[84:], version=2)
        npy(self.folder / "all.npy", "<f4", (50, 1, 2, 2), flat)
        (folder / "readme.txt").write_text("no sample")
        (self.folder / "list.txt").write_text("files/a.npy\n\nfiles/b.npy\r\n"
                                              "files/below/c.npy\n")
        gone = ("--set=data.images=gone", "--set=data.test.images=gone")
        names = [f"files/a.npy:{i}" for i in range(20)] + ["files/b.npy"]
        names += [f"files/below/c.npy:{i}" for i in range(29)]
        for words, more in ((["files"], {}), (["list.txt"], {}),
                            (["-"], {"input": (self.folder / "list.txt").read_text()}),
                            (["-"], {"input": "\ufeff" + (self.folder / "list.txt").read_text()}),
                            (["files/a.npy", "files/b.npy", "files/below"], {})):
            rows = self.predicted(*words, *gone, **more)
            self.check(rows, 0, SAMPLES, CLASSES)
            self.assertEqual([row["sample"] for row in rows], names)
            self.assertNotIn("label", rows[0])
        self.check(self.predicted("all.npy", *gone), 0, SAMPLES, CLASSES)
        self.check(self.predicted("files", "--range=18:23"), 18, 5, CLASSES)
        self.refused(4, "another shape or type", "all.npy", "files")

    def test_without_a_test_section(self):
        """Files are treated as [data] says: scaled, too."""
        npy(self.folder / "one.npy", "|u1", (1, 2, 2), [2 * s for s in self.scores[3]])
        text = re.sub(r"(?s)\[data.test\].*?(?=\[solver\])", "", NET)
        (self.folder / "net.ini").write_text(text.replace("batch = 8", "batch = 8\ntransforms = normalize(scale=0.5)"))
        self.addCleanup((self.folder / "net.ini").write_text, NET)
        self.check(self.predicted("one.npy"), 3, 1, CLASSES)
        self.refused(2, "has no [data.test]", "--data=test")

    def test_csv(self):
        strange = 'a,"b"\u00fc .npy'
        npy(self.folder / strange, "|u1", (1, 2, 2), self.scores[0])
        done = self.run_it(strange, "--csv", "--top=3")
        rows = list(csv.reader(io.StringIO(done.stdout)))
        self.assertEqual(rows[0], ["sample", "label", "rank", "class", "name", "probability"])
        self.assertEqual([row[:3] for row in rows[1:]],
                         [[strange, "", str(i)] for i in (1, 2, 3)])
        labelled = self.run_it("--data=test", "--csv", "--top=1").stdout.splitlines()
        self.assertEqual([line.split(",")[1] for line in labelled[1:]],
                         [str(label) for label in self.labels])

    def test_table(self):
        lines = self.run_it("--data=test", "--top=1", "--range=7:9").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["sample", "label", "best", "classes"])
        best = max(range(CLASSES), key=lambda c: (self.scores[7][c], -c))
        self.assertEqual(lines[1].split()[:3], ["7", str(self.labels[7]), str(best)])
        self.assertEqual(len(lines), 3)

    def test_output(self):
        done = self.run_it("--data=test", "--json", "--output=out.jsonl")
        self.assertEqual(done.stdout, "")
        rows = [json.loads(line) for line in
                (self.folder / "out.jsonl").read_text().splitlines()]
        self.check(rows, 0, SAMPLES, CLASSES)
        self.refused(1, "cannot write", "--data=test", "--output=none/x")
        done = subprocess.run(f"{BIN} predict net.ini --weights=w.safetensors --data=test "
                              "> /dev/full", shell=True, cwd=self.folder, text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("writing to stdout", done.stderr)

    def test_features(self):
        for device in "cpu", "async":
            done = self.run_it("--data=test", "--features=ip", f"--device={device}")
            self.assertEqual(done.returncode, 0, done.stderr)
            shape, values = read_npy(self.folder / "features.npy")
            self.assertEqual(shape, (SAMPLES, CLASSES))
            self.assertEqual(values, [float(s) for s in sum(self.scores, [])])
        self.run_it("--data=test", "--features=ip", "--range=5:8", "--output=f.npy")
        self.assertEqual(read_npy(self.folder / "f.npy"),
                         ((3, CLASSES), [float(s) for s in sum(self.scores[5:8], [])]))
        self.assertFalse((self.folder / "f.npy.part").exists())
        self.refused(2, "no layer 'ipp' in a test; did you mean ip?", "--data=test",
                     "--features=ipp")
        self.refused(2, "no output for each sample", "--data=test", "--features=loss")

    def test_refused(self):
        for sentence, options in (("predict what?", []), ("give no files", ["x", "--data=test"]),
                                  ("leave out", ["x", "--features=ip", "--top=2"]),
                                  ("one of --csv", ["x", "--csv", "--json"]),
                                  ("test or train", ["--data=all"])):
            self.refused(2, sentence, *options)
        (self.folder / "empty").mkdir(exist_ok=True)
        self.refused(4, "no samples in it", "empty")
        self.refused(4, "cannot open gone.npy", "gone.npy")
        self.refused(4, "cannot open gone.txt", "gone.txt")

    def test_a_net_that_does_not_classify(self):
        """Such as one of several classes: its last layer has what there is to see."""
        (self.folder / "net.ini").write_text(
            NET.partition("[accuracy]")[0].replace("softmax_loss", "euclidean_loss"))
        self.addCleanup((self.folder / "net.ini").write_text, NET)
        npy(self.folder / "one.npy", "|u1", (1, 2, 2), self.scores[0])
        self.refused(2, "no loss for classification, so it has no scores of classes; --features=LAYER", "one.npy")
        self.assertEqual(self.run_it("one.npy", "--features=ip", "--output=one-ip.npy").returncode, 0)

    def test_several_classes(self):
        """Each has a probability of its own; those of at least a half are shown, in every format."""
        (self.folder / "net.ini").write_text(
            NET.partition("[accuracy]")[0].replace("softmax_loss", "sigmoid_cross_entropy_loss"))
        self.addCleanup((self.folder / "net.ini").write_text, NET)
        npy(self.folder / "two.npy", "<f4", (2, 1, 2, 2), [-1, 3, 0.5, -2, -1, -5, -0.5, -2])
        expected = [[(1, 3), (2, 0.5)], []]
        for options, rows in (([], expected), (["--threshold=0.2"], [[*expected[0], (0, -1)], [(2, -0.5), (0, -1)]]),
                              (["--top=1"], [[(1, 3)], [(2, -0.5)]]), (["--threshold=0.3", "--top=1"], [[(1, 3)], [(2, -0.5)]]),
                              (["--threshold=1"], [[], []])):
            found = self.predicted("two.npy", *options)
            self.assertEqual([[one["class"] for one in row["top"]] for row in found], [[c for c, _ in row] for row in rows])
            for row, scores in zip(found, rows):
                for one, (_, score) in zip(row["top"], scores):
                    self.assertAlmostEqual(one["probability"], 1 / (1 + math.exp(-score)), 6)
        rows = list(csv.reader(io.StringIO(self.run_it("two.npy", "--csv").stdout)))
        self.assertEqual([row[:4] for row in rows[1:]],
                         [["two.npy:0", "", "1", "1"], ["two.npy:0", "", "2", "2"], ["two.npy:1", "", "", ""]])
        table = self.run_it("two.npy").stdout.splitlines()
        self.assertEqual(table[1].split(), ["two.npy:0", "1", "95.3", "%", "2", "62.2", "%"])
        self.assertEqual(table[2].split(), ["two.npy:1", "-"])
        self.refused(2, "give a probability", "two.npy", "--threshold=2")
        self.refused(2, "leave out", "two.npy", "--features=ip", "--threshold=0.1")
        (self.folder / "net.ini").write_text(NET)
        self.refused(2, "--threshold is for multi-label nets", "two.npy", "--threshold=0.1")

    def test_names_of_several_classes(self):
        (self.folder / "several.csv").write_text("a,b,c,d,l,m\n1,2,3,4,1,0\n4,3,2,1,1,1\n")
        (self.folder / "net.ini").write_text(re.sub(
            r"source = idx\nimages = .*\nlabels = .*\n", "source = csv\nfile = several.csv\nimage = a..d\n"
            "labels = l, m\nclasses = cat, dog\n", NET.partition("[accuracy]")[0]).replace(
            "softmax_loss", "sigmoid_cross_entropy_loss").replace("num_output = 4", "num_output = 2")
            .replace("batch = 8", "batch = 2"))
        self.addCleanup((self.folder / "net.ini").write_text, NET)
        done = subprocess.run([BIN, "train", "net.ini", "--json", "--iterations=1", "--run-dir=several"],
                              cwd=self.folder, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        (self.folder / "several.csv").rename(self.folder / "gone.csv")
        npy(self.folder / "one.npy", "<f4", (1, 4, 1, 1), [1, 2, 3, 4])
        row, = self.predicted("one.npy", "--threshold=0", weights=json.loads(done.stdout)["checkpoint"])
        self.assertEqual({one["class"]: one["name"] for one in row["top"]}, {0: "cat", 1: "dog"})

    def test_bad_files(self):
        good = self.scores[0]
        for sentence, descr, shape, values, fortran in (
                ("Fortran", "|u1", (1, 2, 2), good, True),
                ("must be N, C, H, W", "|u1", (2, 2), good, False),
                ("must be N, C, H, W", "|u1", (1, 1, 1, 2, 2), good, False),
                ("must be N, C, H, W", "|u1", (0, 1, 2, 2), [], False),
                ("shorter than its array", "|u1", (9, 1, 2, 2), good, False),
                ("shorter than its array", "|u1", (2**40, 1, 2, 2), good, False)):
            npy(self.folder / "bad.npy", descr, shape, values, fortran)
            self.refused(4, sentence, "bad.npy")
        npy(self.folder / "bad.npy", "|u1", (1, 3, 3), [0] * 9)
        done = self.run_it("bad.npy")  # the net's weights are for four pixels
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("unlike: ip.weight", done.stderr)

    def test_mutations(self):
        npy(self.folder / "whole.npy", "|u1", (2, 1, 2, 2), self.scores[0] + self.scores[1])
        data = (self.folder / "whole.npy").read_bytes()
        source = random.Random(2)
        for _ in range(60):
            broken = bytearray(data)
            for _ in range(source.randrange(1, 4)):
                broken[source.randrange(80)] = source.randrange(256)
            (self.folder / "broken.npy").write_bytes(broken[:source.randrange(len(data) + 9)])
            self.assertIn(self.run_it("broken.npy").returncode, (0, 4))

    def test_bar(self):
        """Shown where stderr is a terminal."""
        master, slave = pty.openpty()
        with subprocess.Popen([BIN, "predict", "net.ini", "--weights=w.safetensors",
                               "--data=test"], cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=slave, env={**os.environ, "TERM": "xterm"}) as job:
            os.close(slave)
            said = b""
            try:
                while chunk := os.read(master, 65536):
                    said += chunk
            except OSError:  # all of it was read
                pass
        self.assertEqual(job.returncode, 0)
        self.assertRegex(said.decode(), r"\[=*\.*\] +\d+ %  left \d+:\d\d  \d+ images/s")

    def test_photographs(self):
        """Files, a folder of them and a list give what the data source gives; classes have
        the names of the checkpoint, even where the training data is gone."""
        names = ["Zebra", "ant", "bee, small", "\u00e9cureuil"]
        for i, name in enumerate(names):
            (self.folder / "photos" / name).mkdir(parents=True)
            for k in range(4):
                (self.folder / "photos" / name / f"{k} {i}.png").write_bytes(
                    png(2, bytes([60 * i + k] * 3)))
        (self.folder / "photos/ant/notes.txt").write_text("no image")
        net = NET.replace("source = idx\nimages = images\nlabels = labels\n",
                          "source = images\nfolder = photos\ngrey = yes\n"
                          "transforms = center_crop(2), normalize(scale=0.004)\n")
        (self.folder / "net.ini").write_text(net)
        self.addCleanup((self.folder / "net.ini").write_text, NET)
        done = subprocess.run([BIN, "train", "net.ini", "--json", "--iterations=2",
                               "--run-dir=run"], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, check=False, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        file = json.loads(done.stdout)["checkpoint"]
        known = self.predicted("--data=test", weights=file)
        self.assertEqual(len(known), 16)
        self.assertEqual({best["class"]: best["name"] for best in known[0]["top"]},
                         dict(enumerate(names)))
        # Columns are as wide in characters, of which some have two bytes.
        table = self.run_it("--data=test", "--top=1", weights=file).stdout.splitlines()
        self.assertEqual(len({line.index(" %") for line in table[1:] if "bee" not in line}), 1, table)
        done = subprocess.run([BIN, "test", "net.ini", f"--weights={file}", "--confusion"], cwd=self.folder,
                              capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
        matrix = done.stdout.split("prediction (columns)\n")[1].splitlines()
        self.assertEqual(len({len(line) for line in matrix}), 1, done.stdout)
        self.assertIn("\u00e9cureu\n", done.stdout)
        (self.folder / "photos").rename(self.folder / "moved")
        # A test of some of the classes has their labels, although [data] is gone, too.
        for name in names[1], names[3]:
            (self.folder / "some" / name).mkdir(parents=True)
            for path in (self.folder / "moved" / name).glob("*.png"):
                (self.folder / "some" / name / path.name).symlink_to(path)
        done = subprocess.run([BIN, "test", "net.ini", f"--weights={file}", "--json", "--confusion",
                               "--set=data.test.folder=some"], cwd=self.folder, capture_output=True, text=True,
                              timeout=60, check=False, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("[data] cannot be read", done.stderr)
        expected = [[0] * 4 for _ in names]
        for row in known:
            if row["label"] in (1, 3):
                expected[row["label"]][row["top"][0]["class"]] += 1
        self.assertEqual(json.loads(done.stdout)["confusion"], expected)
        paths = sorted(str(path.relative_to(self.folder))
                       for path in (self.folder / "moved").rglob("*.png"))
        listed = "\n".join(paths) + "\n"
        for words, more in ((["moved"], ""), (["-"], listed), (paths, "")):
            rows = self.predicted(*words, weights=file, input=more)
            self.assertEqual(sorted(row["sample"] for row in rows), paths)
            by_name = {row["sample"].split("/", 1)[1]: row["top"] for row in rows}
            for row in known:
                self.assertEqual(by_name[row["sample"].split("photos/")[-1]], row["top"])
        # A file of another program does not say how many channels there are.
        self.assertEqual(len(self.predicted("moved")), 16)
        # What a Mac leaves beside files is no sample; a list may be that of `find -print0`.
        (self.folder / "moved/ant/._0 1.png").write_bytes(b"\0\5\26\7")
        (self.folder / "moved/.trash").mkdir()
        (self.folder / "moved/.trash/0.png").write_bytes(b"")
        self.assertEqual(len(self.predicted("moved", weights=file)), 16)
        done = self.run_it("-", weights=file, input="\0".join(paths))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("give one file per line", done.stderr)
        (self.folder / "moved/ant/zero.png").symlink_to("nowhere")
        done = self.run_it("moved", weights=file)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("cannot read moved/ant/zero.png: No such file", done.stderr)
        (self.folder / "moved/ant/zero.png").unlink()
        (self.folder / "moved/ant/0 1.png").write_bytes(b"no picture at all")
        done = self.run_it("moved", weights=file)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("0 1.png", done.stderr)

    def test_pictures_for_a_net_of_numbers(self):
        (self.folder / "table.csv").write_text("a,b,c,y\n" + "1,2,3,0\n4,5,6,1\n")
        (self.folder / "table.ini").write_text(NET.replace(
            "source = idx\nimages = images\nlabels = labels\n",
            "source = csv\nfile = table.csv\nvector = a..c\nlabel = y\n"))
        (self.folder / "one.png").write_bytes(png(2, bytes(4)))
        done = subprocess.run([BIN, "train", "table.ini", "--json", "--iterations=1", "--run-dir=table"],
                              cwd=self.folder, capture_output=True, text=True, timeout=60, check=False,
                              env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stderr)
        file = json.loads(done.stdout)["checkpoint"]
        done = subprocess.run([BIN, "predict", "table.ini", f"--weights={file}", "one.png"], cwd=self.folder,
                              capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("not trained on images", done.stderr)


class Memory(unittest.TestCase):
    def test_no_gradients(self):
        """A net of 128 MB of weights: predicting holds them, and while they are read
        the largest tensor once more, but no gradients; a layer behind the one asked for
        takes nothing."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "net.ini").write_text("""[net]
name = wide
[data]
source = synthetic
shape = 1,16,16
classes = 4
samples = 8
batch = 4
[solver]
type = sgd
learning_rate = 0.01
[train]
device = cpu
threads = 1
iterations = 1
keep_best = no
[ip1]
type = inner_product
num_output = 4096
[ip2]
type = inner_product
num_output = 8192
[ip3]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
""")
            def peak(*words):
                with subprocess.Popen([BIN, *words], cwd=folder, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True) as job:
                    said = job.stderr.read()
                    _, status, usage = os.wait4(job.pid, 0)  # includes its ranks
                    job.returncode = os.waitstatus_to_exitcode(status)
                self.assertEqual(job.returncode, 0, said)
                return usage.ru_maxrss / 1024

            peak("train", "net.ini", "--run-dir=run")
            file, = (folder / "run").glob("*.safetensors")
            file = str(file)
            rest = peak("predict", "net.ini", f"--weights={file}", "--data=train",
                        "--features=ip1")
            whole = peak("predict", "net.ini", f"--weights={file}", "--data=train")
            self.assertLess(whole - rest, 2.5 * 128)
            self.assertGreater(whole - rest, 128)


if __name__ == "__main__":
    unittest.main()
