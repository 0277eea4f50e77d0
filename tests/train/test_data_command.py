#!/usr/bin/env python3
"""Tests `dlcore data`: what it counts, lists, draws and splits is what is in the files."""

import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest
import zlib

BIN = os.environ["DLCORE_BIN"]
SIDE, SAMPLES, CLASSES = 6, 40, 4

HEAD = """[net]
name = data
[data]
batch = 4
"""
TAIL = """[solver]
type = sgd
[train]
iterations = 1
seed = 3
[ip]
type = inner_product
num_output = 4
[loss]
type = softmax_loss
"""


def png(width, height, pixels):
    """A PNG of red, green and blue bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * width * 3:(y + 1) * width * 3] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def read_png(data):
    """Width, height and rows of pixels of a PNG that is not filtered; checks all of it."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds, body = 8, [], b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        content = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + content)
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", content)
            assert form == [8, 2, 0, 0, 0]
        body += content if kind == b"IDAT" else b""
        at += 12 + size
    assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND"
    raw, rows = zlib.decompress(body), []
    for y in range(height):
        line = raw[y * (1 + 3 * width):(y + 1) * (1 + 3 * width)]
        assert line[0] == 0
        rows.append([tuple(line[1 + 3 * x:4 + 3 * x]) for x in range(width)])
    assert len(raw) == height * (1 + 3 * width)
    return width, height, rows


class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        draw = random.Random(1)
        self.images = [bytes(draw.choice((draw.randrange(256), 0, 255)) for _ in range(SIDE * SIDE))
                       for _ in range(SAMPLES)]
        self.labels = [i % CLASSES if i < 20 else 1 for i in range(SAMPLES)]

    def run_dlcore(self, command, *options, ok=0):
        done = subprocess.run([BIN, "data", command, *options], cwd=self.path, text=True, capture_output=True,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, ok, done.stderr)
        return done

    def write_idx(self, more="", labels=None):
        """MNIST's format: gray images."""
        (self.path / "images").write_bytes(struct.pack(">IIII", 0x803, SAMPLES, SIDE, SIDE) + b"".join(self.images))
        (self.path / "labels").write_bytes(struct.pack(">II", 0x801, SAMPLES) + bytes(labels or self.labels))
        (self.path / "net.ini").write_text(
            HEAD + f"source = idx\nimages = images\nlabels = labels\n{more}\n" + TAIL)

    def write_files(self, more=""):
        """A folder of PNG files for each class, of several sizes."""
        for i, (image, label) in enumerate(zip(self.images, self.labels)):
            folder = self.path / "photos" / f"class {label}"
            folder.mkdir(parents=True, exist_ok=True)
            width = 3 + i % 3
            pixels = b"".join(bytes([v, 255 - v, 7]) for v in image[:width * 4])
            (folder / f"{i:03}.png").write_bytes(png(width, 4, pixels))
        (self.path / "net.ini").write_text(
            HEAD + f"source = images\nfolder = photos\ntransforms = resize(height=4, width=4)\n{more}\n" + TAIL)

    def write_table(self, file, more):
        (self.path / "net.ini").write_text(HEAD + f"source = csv\nfile = {file}\npath = file\n{more}\n" + TAIL)

    def test_stats(self):
        self.write_idx()
        found = json.loads(self.run_dlcore("stats", "net.ini", "--json").stdout)
        values = [v for image in self.images for v in image]
        mean = sum(values) / len(values)
        deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
        self.assertEqual((found["samples"], found["bad"], found["channels"]), (SAMPLES, 0, 1))
        self.assertAlmostEqual(found["mean"][0], mean, 6)
        self.assertAlmostEqual(found["std"][0], deviation, 6)
        self.assertEqual([c["samples"] for c in found["classes"]],
                         [self.labels.count(c) for c in range(CLASSES)])
        self.assertEqual(found["smallest"], {"width": SIDE, "height": SIDE})
        text = self.run_dlcore("stats", "net.ini").stdout
        self.assertIn(f"normalize(mean=({mean:.4g}), std=({deviation:.4g}))", text)

    def test_stats_of_files(self):
        self.write_files()
        found = json.loads(self.run_dlcore("stats", "net.ini", "--json").stdout)
        self.assertEqual((found["samples"], found["channels"]), (SAMPLES, 3))
        self.assertEqual(found["smallest"], {"width": 3, "height": 4})
        self.assertEqual(found["largest"], {"width": 5, "height": 4})
        self.assertEqual([c["name"] for c in found["classes"]], [f"class {c}" for c in range(CLASSES)])
        self.assertEqual((found["mean"][2], found["std"][2]), (7, 0))

    def test_normalize_of_stats_can_be_used(self):
        self.write_idx()
        line = next(l for l in self.run_dlcore("stats", "net.ini").stdout.splitlines() if l.startswith("normalize "))
        self.write_idx("transforms = mirror, " + line.split(None, 1)[1])
        self.run_dlcore("preview", "net.ini", "-o", "sheet.png")

    def test_preview(self):
        """Each cell has the pixels of a sample after the transforms, and its label."""
        self.write_idx("transforms = center_crop(4), normalize(mean=100, std=50)\nshuffle = no")
        done = self.run_dlcore("preview", "net.ini", "-o", "sheet.png", "--count=9", "--json")
        self.assertEqual(json.loads(done.stdout), {"path": "sheet.png", "samples": 9})
        width, height, rows = read_png((self.path / "sheet.png").read_bytes())
        zoom, gap, line = 24, 4, 9
        cell_width, cell_height = 4 * zoom + gap, 4 * zoom + line + gap
        self.assertEqual((width, height), (3 * cell_width + gap, 3 * cell_height + gap))
        texts = {}
        for i in range(9):
            left, top = gap + i % 3 * cell_width, gap + i // 3 * cell_height
            for y in range(4 * zoom):
                for x in range(4 * zoom):
                    value = self.images[i][(1 + y // zoom) * SIDE + 1 + x // zoom]
                    self.assertEqual(rows[top + y][left + x], (value,) * 3, (i, y, x))
            text = tuple(tuple(rows[top + 4 * zoom + 1 + y][left:left + 6]) for y in range(7))
            self.assertIn((0, 0, 0), [p for row in text for p in row])
            self.assertEqual(texts.setdefault(self.labels[i], text), text)
        self.assertEqual(len(set(texts.values())), CLASSES)

    def test_preview_of_random_transforms(self):
        """The picture is drawn by the seed: twice the same, and another with another."""
        self.write_idx("transforms = random_crop(6, padding=2), mirror")
        sheets = []
        for seed in (3, 3, 4):
            self.run_dlcore("preview", "net.ini", "-o", "sheet.png", f"--seed={seed}")
            sheets.append((self.path / "sheet.png").read_bytes())
        self.assertEqual(sheets[0], sheets[1])
        self.assertNotEqual(sheets[0], sheets[2])

    def test_verify(self):
        self.write_idx()
        self.assertEqual(self.run_dlcore("verify", "net.ini").stdout, f"all {SAMPLES} samples are good\n")
        self.write_files()
        bad = self.path / "photos" / "class 1" / "001.png"
        bad.write_bytes(bad.read_bytes()[:60])
        also = self.path / "photos" / "class 3" / "003.png"
        also.write_bytes(b"")
        done = self.run_dlcore("verify", "net.ini", ok=4)
        self.assertEqual([l.split(": ")[0].rsplit("/", 1)[-1] for l in done.stdout.splitlines()],
                         ["001.png", "003.png"])
        self.assertIn(f"2 of {SAMPLES} samples are bad", done.stderr)
        found = json.loads(self.run_dlcore("verify", "net.ini", "--json", ok=4).stdout)
        self.assertEqual(len(found["bad"]), 2)
        self.assertTrue(found["bad"][0]["name"].endswith("class 1/001.png"))
        stats = json.loads(self.run_dlcore("stats", "net.ini", "--json").stdout)
        self.assertEqual((stats["samples"], stats["bad"]), (SAMPLES, 2))

    def test_verify_reads_all_fields(self):
        """A number that training could not read is found, not only an image."""
        self.write_files()
        files = sorted((self.path / "photos").glob("*/*.png"))
        (self.path / "table.csv").write_text("file,size\n" + "".join(
            f"{path},{'none' if i == 7 else i}\n" for i, path in enumerate(files)))
        self.write_table("table.csv", "vector = size")
        done = self.run_dlcore("verify", "net.ini", ok=4)
        self.assertRegex(done.stdout, 'table.csv:9: .*"none" is not a number\n$')
        self.assertIn(f"1 of {SAMPLES} samples are bad", done.stderr)

    def test_split(self):
        self.write_files()
        self.run_dlcore("split", "net.ini", "-o", "part", "--validation=0.2")
        lists = {}
        for name in ("train", "validation"):
            lines = (self.path / f"part-{name}.txt").read_text().splitlines()
            lists[name] = [(p, int(l)) for p, l in (line.rsplit(" ", 1) for line in lines)]
        everything = sorted(lists["train"] + lists["validation"])
        self.assertEqual(everything, sorted((str(p.resolve()), int(p.parent.name[-1]))
                                            for p in (self.path / "photos").glob("*/*.png")))
        for c in range(CLASSES):
            count = self.labels.count(c)
            self.assertEqual(sum(l == c for _, l in lists["validation"]), round(count * 0.2), c)
        before = (self.path / "part-validation.txt").read_text()
        done = self.run_dlcore("split", "net.ini", "-o", "part", "--validation=0.2", "--json")
        self.assertEqual(json.loads(done.stdout), {"classes": [f"class {c}" for c in range(CLASSES)]} | {
            name: {"path": f"part-{name}.txt", "samples": len(lists[name])} for name in lists})
        self.assertEqual((self.path / "part-validation.txt").read_text(), before)
        self.run_dlcore("split", "net.ini", "-o", "part", "--validation=0.2", "--seed=9")
        self.assertNotEqual((self.path / "part-validation.txt").read_text(), before)
        self.assertIn("no class has enough samples: a share of 0.01",
                      self.run_dlcore("split", "net.ini", "-o", "none", "--validation=0.01", ok=2).stderr)
        self.assertEqual(list(self.path.glob("none*")), [])
        # The lists are data again.
        (self.path / "net.ini").write_text(
            HEAD + "source = images\nlist = part-train.txt\ntransforms = resize(height=4, width=4)\n" + TAIL)
        found = json.loads(self.run_dlcore("stats", "net.ini", "--json").stdout)
        self.assertEqual(found["samples"], len(lists["train"]))

    def test_numbers(self):
        """A table without images has numbers, which have no size and no transforms."""
        draw = random.Random(2)
        rows = [[draw.gauss(10 * k, k + 1) for k in range(20)] for _ in range(SAMPLES)]
        names = [f"c{k}" for k in range(20)]
        (self.path / "table.csv").write_text(",".join([*names, "y"]) + "\n" + "".join(
            ",".join([*map(repr, row), str(label)]) + "\n" for row, label in zip(rows, self.labels)))
        table = HEAD + "source = csv\nfile = table.csv\nvector = c0..c19\nlabel = y\n"
        (self.path / "net.ini").write_text(table + TAIL)
        found = json.loads(self.run_dlcore("stats", "net.ini", "--json").stdout)
        self.assertNotIn("smallest", found)
        self.assertEqual(len(found["mean"]), 20)
        for k in range(20):
            values = [row[k] for row in rows]
            mean = sum(values) / SAMPLES
            self.assertAlmostEqual(found["mean"][k], mean, 4)
            self.assertAlmostEqual(found["std"][k], (sum((v - mean) ** 2 for v in values) / SAMPLES) ** 0.5, 4)
        text = self.run_dlcore("stats", "net.ini").stdout
        self.assertIn("numbers     20\nmean        ", text)
        self.assertNotIn("normalize", text)
        done = self.run_dlcore("preview", "net.ini", "-o", "sheet.png", ok=4)
        self.assertIn("the samples have no images", done.stderr)
        (self.path / "net.ini").write_text(table + "transforms = normalize(mean=1)\n" + TAIL)
        for command in ("check", "train"):
            done = subprocess.run([BIN, command, "net.ini"], cwd=self.path, text=True, capture_output=True,
                                  timeout=100, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("net.ini:9: [data] transforms change images, but the samples have none", done.stderr)

    def test_several_classes(self):
        """What a list says of each image is counted, and kept by a split."""
        self.write_files()
        files = sorted((self.path / "photos").glob("*/*.png"))
        labels = {str(path.resolve()): [c for c in range(3) if i >> c & 1] for i, path in enumerate(files)}
        (self.path / "all.txt").write_text("".join(
            " ".join([path, *map(str, classes)]) + "\n" for path, classes in labels.items()))
        (self.path / "net.ini").write_text(
            HEAD + "source = images\nlist = all.txt\nmulti_label = yes\nclasses = a, b, c\n"
            "transforms = resize(height=4, width=4)\n" + TAIL)
        found = json.loads(self.run_dlcore("stats", "net.ini", "--json").stdout)
        self.assertEqual(found["classes"], [{"name": name, "samples": sum(c in classes for classes in labels.values())}
                                            for c, name in enumerate("abc")])
        self.assertEqual(found["unlabelled"], sum(not classes for classes in labels.values()))
        self.run_dlcore("split", "net.ini", "-o", "part", "--validation=0.2")
        lists = [(self.path / f"part-{name}.txt").read_text().splitlines() for name in ("train", "validation")]
        self.assertEqual(len(lists[1]), round(SAMPLES * 0.2))
        self.assertEqual(sorted(lists[0] + lists[1]), (self.path / "all.txt").read_text().splitlines())

    def test_preview_of_several_classes(self):
        """The names of all of them are drawn, as one of the same letters is."""
        lines, names = "", ["a", "b, c", "a, b, c"]
        for i, name in enumerate(names):
            (self.path / "photos" / name).mkdir(parents=True)
            for k in range(3):
                (self.path / "photos" / name / f"{k}.png").write_bytes(png(90, 8, bytes([60 * i + k] * 90 * 8 * 3)))
        for name in sorted(names):
            lines += "".join(f"photos/{name}/{k}.png {' '.join(str('abc'.index(c)) for c in name.split(', '))}\n"
                             for k in range(3))
        (self.path / "list.txt").write_text(lines)
        for k, source in enumerate(("folder = photos", "list = list.txt\nmulti_label = yes\nclasses = a, b, c",
                                    "list = list.txt\nmulti_label = yes")):
            (self.path / "net.ini").write_text(
                f"{HEAD}source = images\n{source}\ntransforms = center_crop(height=8, width=90)\n{TAIL}")
            self.run_dlcore("preview", "net.ini", "-o", f"{k}.png")
        sheets = [(self.path / f"{k}.png").read_bytes() for k in range(3)]
        self.assertEqual(sheets[0], sheets[1])
        self.assertNotEqual(sheets[1], sheets[2])  # numbers instead of names

    def test_split_of_tables(self):
        """Each row goes to one of two tables as it is written, class by class; without classes, too."""
        self.write_files()
        rows = [f'"{path}",{path.parent.name[-1]},{i}\n' if i % 3 else f'"{path}",{path.parent.name[-1]},"{i}\n"\n\n'
                for i, path in enumerate(sorted((self.path / "photos").glob("*/*.png")))]
        (self.path / "far").mkdir()
        for head, columns in (("file,class,size\n", "path = file\nlabel = class"), ("\ufefffile,class,size\n", "vector = size"),
                              ("", "header = no\npath = 1\nlabel = 2")):
            (self.path / "table.csv").write_text(head + "".join(rows))
            (self.path / "net.ini").write_text(f"{HEAD}source = csv\nfile = table.csv\n{columns}\n{TAIL}")
            said = self.run_dlcore("split", "net.ini", "-o", "far/part", "--validation=0.2").stderr
            self.assertEqual(f"set `folder = {self.path.resolve()}`" in said, "path" in columns)
            self.assertNotIn("folder", self.run_dlcore("split", "net.ini", "-o", "part", "--validation=0.2").stderr)
            lists = []
            for name in ("train", "validation"):
                text = (self.path / f"part-{name}.csv").read_text()
                self.assertEqual((self.path / f"far/part-{name}.csv").read_text(), text)
                lists.append([row for row in rows if row in text])
                self.assertEqual(text, head + "".join(lists[-1]))
            self.assertEqual(sorted(lists[0] + lists[1]), sorted(rows))
            self.assertEqual(len(lists[1]), SAMPLES * 0.2)
            for c in range(CLASSES if "label" in columns else 0):
                self.assertEqual(sum(f",{c}," in row for row in lists[1]), round(self.labels.count(c) * 0.2))
        (self.path / "net.ini").write_text((self.path / "net.ini").read_text().replace("table.csv", "part-train.csv"))
        self.assertIn("are good", self.run_dlcore("verify", "net.ini").stdout)

    def test_what_is_wrong(self):
        self.write_idx()
        for options, words in [(("stat", "net.ini"), "did you mean 'stats'?"),
                               (("stats", "net.ini", "--test"), "there is no section [data.test]"),
                               (("preview", "net.ini"), "Give -o FILE.png"),
                               (("preview", "net.ini", "-o", "sheet.jpg"), "its name must end in .png"),
                               (("split", "net.ini", "-o", "x", "--validation=1"), "a number between 0 and 1"),
                               (("stats",), "no net")]:
            with self.subTest(options=options):
                self.assertIn(words, self.run_dlcore(*options, ok=2).stderr)
        self.assertIn("the samples are neither files nor rows of a table", self.run_dlcore("split", "net.ini", "-o", "x", ok=4).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
