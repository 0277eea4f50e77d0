#!/usr/bin/env python3
"""Tests what `dlcore` says about data that are not as they should be: numbers that are none, names
with control characters, damaged files, files that are passed over, and sections without a net."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

from test_data_command import TAIL, png

BIN = os.environ["DLCORE_BIN"]
SIDE, CLASSES, EACH = 4, ("ant", "bee", "cat", "dog"), 3
NAN, INF = float("nan"), float("inf")


def npy(shape, values, kind="f"):
    descr = {"f": "<f4", "d": "<f8", "i": "<i4"}[kind]
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return (b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header +
            struct.pack(f"<{len(values)}{kind}", *values))


class Faults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def run_it(self, *command, ok=0):
        done = subprocess.run([BIN, *command], cwd=self.path, text=True, capture_output=True, timeout=100, check=False)
        self.assertEqual(done.returncode, ok, done.stdout + done.stderr)
        return done

    def write(self, section, tail=TAIL):
        (self.path / "net.ini").write_text(f"[data]\nbatch = 4\n{section}\n{tail}")

    def write_photos(self, names=CLASSES):
        for c, name in enumerate(names):
            (self.path / "photos" / name).mkdir(parents=True)
            for i in range(EACH):
                pixels = bytes([40 * c + i] * (3 * SIDE * SIDE))
                (self.path / "photos" / name / f"{i}.png").write_bytes(png(SIDE, SIDE, pixels))

    def train(self, *options, ok=0):
        folder = tempfile.mkdtemp(dir=self.path)  # each run has its own
        return self.run_it("train", "net.ini", f"--run-dir={folder}", *options, ok=ok)


class Numbers(Faults):
    def found_bad(self, section, place):
        """Every command finds the number, and says where it is."""
        self.write(section)
        done = self.run_it("data", "verify", "net.ini", ok=4)
        self.assertRegex(done.stdout, place)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        stats = self.run_it("data", "stats", "net.ini")
        self.assertRegex(stats.stdout, "(?m)^bad +1;")
        self.assertIsNone(re.search(r"\b(nan|inf)\b", stats.stdout), stats.stdout)
        self.assertRegex(self.run_it("check", "net.ini", ok=4).stderr, place)
        self.assertRegex(self.train(ok=4).stderr, place)

    def test_arrays(self):
        (self.path / "x").mkdir()
        values = [float(i) for i in range(6 * 4)]
        (self.path / "x/y.npy").write_bytes(npy((6,), [0, 1, 2, 3, 0, 1], "i"))
        for wrong, shown in ((NAN, "nan"), (-NAN, "nan"), (INF, "inf"), (-INF, "-inf")):
            values[3 * 4 + 2] = wrong
            (self.path / "x/x.npy").write_bytes(npy((6, 1, 2, 2), values))
            self.found_bad("source = npy\npath = x", f"x: row 3: field image has {shown} at 0, 1, 0;")
        self.write("source = npy\npath = x\non_error = skip")
        self.assertIn("row 3: field image has -inf", self.train().stderr)

    def test_too_large_for_float32(self):
        (self.path / "x").mkdir()
        (self.path / "x/y.npy").write_bytes(npy((4,), [0, 1, 2, 3], "i"))
        (self.path / "x/x.npy").write_bytes(npy((4, 2), [1, 2, 3, 4, 5, -1e300, 7, 8], "d"))
        self.found_bad("source = npy\npath = x\nvector = x", "x: row 2: field vector has -inf at 1;")

    def test_files_of_floats(self):
        (self.path / "images").write_bytes(struct.pack(">IIII12f", 0xd03, 3, 2, 2, *[1] * 7, NAN, *[1] * 4))
        (self.path / "labels").write_bytes(struct.pack(">II3B", 0x801, 3, 0, 1, 2))
        self.write("source = idx\nimages = images\nlabels = labels")
        self.assertIn("images: the float32 at byte 44 is nan", self.run_it("data", "verify", "net.ini", ok=4).stderr)

    def test_tables(self):
        (self.path / "t.csv").write_text("a, b, y\n1,2,0.0\n3,nan,1.0\n5,6,\n")
        self.found_bad("source = csv\nfile = t.csv\nvector = a, b\nlabel = y", 't.csv:3: column 2, b: "nan" is not')

    def test_targets(self):
        """NaN is what is not known, but only where a loss compares with it; in all sources."""
        (self.path / "x").mkdir()
        (self.path / "x/x.npy").write_bytes(npy((4, 2), range(8)))
        (self.path / "x/t.npy").write_bytes(npy((4, 1), [1, NAN, 2, 3]))
        (self.path / "t.csv").write_text("a,b,t\n0,1,1\n2,3,\n4,5,2\n6,7,3\n")
        net = ("[solver]\ntype = sgd\nlearning_rate = 0.01\n[train]\niterations = 3\nseed = 1\n[ip]\n"
               "type = inner_product\nnum_output = 1\n[loss]\ntype = euclidean_loss\nlabel = {}\n")
        losses = []
        for section, target in (("source = npy\npath = x\nimage = x\nvector = t", "vector"),
                                ("source = npy\npath = x\nvector = x, t", "vector_2"),
                                ("source = csv\nfile = t.csv\nimage = a, b\nvector = t", "vector")):
            self.write(section + "\nshuffle = no", net.format(target))
            self.assertIn("all 4 samples are good", self.run_it("data", "verify", "net.ini").stdout)
            losses.append(json.loads(self.train("--json").stdout)["training_loss"])
        self.assertEqual(losses, losses[:1] * 3)
        # The same numbers as an input.
        self.write("source = npy\npath = x\nvector = x, t\nshuffle = no",
                   net.format("vector").replace("inner_product\nnum_output = 1", "inner_product\ninput = vector_2\nnum_output = 2"))
        self.assertIn("row 1: field vector_2 has nan at 0", self.train(ok=4).stderr)


class Names(Faults):
    def test_classes(self):
        """A name with a line break would rename all classes behind it."""
        self.write_photos(("a\nz", "b"))
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4)")
        for command in (("data", "stats", "net.ini"), ("data", "convert", "net.ini", "-o", "shards"),
                        ("check", "net.ini")):
            self.assertIn(r'the name of class 0, "a\nz", has a line break', self.run_it(*command, ok=4).stderr)
        self.assertFalse((self.path / "shards").exists())

    def test_samples(self):
        """A name cannot print a line of its own."""
        self.write_photos()
        (self.path / "photos/ant" / "x\nall 12 samples are good\t.png").write_bytes(b"no image")
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4)")
        done = self.run_it("data", "verify", "net.ini", ok=4)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertIn(r"x\nall 12 samples are good\t.png: ", done.stdout)

    def test_predictions(self):
        self.write_photos()
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4)")
        (self.path / "one").mkdir()
        (self.path / "one" / "x\nforged  ant 99.0 %.png").write_bytes((self.path / "photos/ant/0.png").read_bytes())
        weights = json.loads(self.train("--json").stdout)["checkpoint"]
        done = self.run_it("predict", "net.ini", f"--weights={weights}", "one")
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.assertIn(r"one/x\nforged", done.stdout)

    def test_sections_of_a_split(self):
        """A list has numbers, so the names are in the sections that are printed; they can be pasted."""
        self.write_photos()
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4), mirror\nshuffle = no")
        done = self.run_it("data", "split", "net.ini", "-o", "part", "--validation=0.34")
        sections = done.stdout.partition("\n\n")[2]
        self.assertIn("classes = ant, bee, cat, dog\n", sections)
        (self.path / "net.ini").write_text(sections + TAIL)
        for option in ((), ("--test",)):
            found = json.loads(self.run_it("data", "stats", "net.ini", "--json", *option).stdout)
            self.assertEqual([c["name"] for c in found["classes"]], list(CLASSES))
            self.assertEqual(found["samples"], 4 if option else 8)
        self.run_it("check", "net.ini")
        done = json.loads(self.run_it("data", "split", "net.ini", "-o", "again", "--validation=0.5", "--json").stdout)
        self.assertEqual(done["classes"], list(CLASSES))

    def test_names_that_come_later(self):
        """Weights that know no names get those of net.ini."""
        self.write_photos()
        (self.path / "list.txt").write_text("".join(f"photos/{name}/{i}.png {c}\n" for c, name in enumerate(CLASSES)
                                                    for i in range(EACH)))
        self.write("source = images\nlist = list.txt\ntransforms = center_crop(4)")
        weights = json.loads(self.train("--json").stdout)["checkpoint"]
        for more, names in (("", "0123"), ("\nclasses = ant, bee,cat , dog", CLASSES)):
            self.write(f"source = images\nlist = list.txt\ntransforms = center_crop(4){more}")
            said = json.loads(self.run_it("predict", "net.ini", f"--weights={weights}", "photos/cat/1.png",
                                          "--json").stdout)
            self.assertEqual({best["class"]: best["name"] for best in said["top"]}, dict(enumerate(names)))


class Files(Faults):
    def test_data_alone(self):
        """Commands on data need no net."""
        self.write_photos()
        (self.path / "net.ini").write_text("[data]\nsource = images\nfolder = photos\ntransforms = center_crop(4)\n")
        for command in (("stats",), ("verify",), ("preview", "-o", "sheet.png"), ("split", "-o", "part", "--validation=0.34"),
                        ("convert", "-o", "shards")):
            self.run_it("data", command[0], "net.ini", *command[1:])
        (self.path / "net.ini").write_text("[net]\nname = x\n")
        self.assertIn("no section [data]", self.run_it("data", "stats", "net.ini", ok=2).stderr)

    def test_a_damaged_image(self):
        """The message says how to go on."""
        self.write_photos()
        (self.path / "photos/bee/1.png").write_bytes((self.path / "photos/bee/1.png").read_bytes()[:50])
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4)")
        for command in (("train", "net.ini", "--iterations=6"), ("data", "convert", "net.ini", "-o", "shards")):
            said = self.run_it(*command, ok=4).stderr
            self.assertRegex(said, "bee/1.png: .*`on_error = skip`, beside `source`, skips")
        self.assertIn("the sample is skipped", self.train("--set=data.on_error=skip", "--iterations=6").stderr)
        (self.path / "photos/ant/0.png").write_bytes(b"")  # the first, which is read before the training
        self.assertIn("on_error = skip", self.run_it("check", "net.ini", ok=4).stderr)

    def test_files_that_are_passed_over(self):
        self.write_photos()
        (self.path / "photos/bee/notes.txt").write_text("none")
        (self.path / "photos/bee/moving.gif").write_text("none")
        (self.path / "photos/bee/.hidden").write_text("none")
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4)")
        self.assertIn("photos: 2 other files, such as bee/moving.gif, are passed over",
                      self.run_it("data", "stats", "net.ini").stderr)

    def test_predictions(self):
        """A folder with files that cannot be read, or are no images; and a text."""
        self.write_photos()
        self.write("source = images\nfolder = photos\ntransforms = center_crop(4)")
        weights = "--weights=" + json.loads(self.train("--json").stdout)["checkpoint"]
        folder = self.path / "photos/bee"
        (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:50])
        (folder / "moving.gif").write_text("none")
        said = self.run_it("predict", "net.ini", weights, "photos/bee", ok=4).stderr
        self.assertIn("photos/bee: 1 other files, such as photos/bee/moving.gif, are passed over", said)
        self.assertIn("on_error = skip", said)
        skip = "--set=data.on_error=skip"
        done = self.run_it("predict", "net.ini", weights, "photos/bee", skip, "--json")
        self.assertEqual([json.loads(line)["sample"] for line in done.stdout.splitlines()],
                         ["photos/bee/0.png", "photos/bee/2.png"])
        self.assertIn("photos/bee/1.png: ", done.stderr)
        self.assertIn("2 samples in", done.stderr)
        self.assertIn("; 1 could not be read", done.stderr)
        said = self.run_it("predict", "net.ini", weights, "photos/bee", skip, "--features=ip", ok=4).stderr
        self.assertNotIn("on_error", said)
        (self.path / "notes.txt").write_text("my notes\nof a day\n")
        self.assertIn('notes.txt: none of its lines is the path of a file ("my notes"); texts are not predicted',
                      self.run_it("predict", "net.ini", weights, "notes.txt", ok=4).stderr)

    def test_classes_that_are_no_numbers(self):
        self.write_photos()
        (self.path / "list.txt").write_text("photos/ant/0.png 0\nphotos/bee/0.png 99999999\n")
        for more in "", "\nmulti_label = yes":
            self.write(f"source = images\nlist = list.txt\ntransforms = center_crop(4){more}")
            for command in (("data", "stats", "net.ini"), ("check", "net.ini")):
                self.assertIn("list.txt: it has a label 99999999, but only 2 samples",
                              self.run_it(*command, ok=4).stderr)

    def test_normalize_of_another_range(self):
        """Means of values from 0 to 1 for bytes are warned of, once a section."""
        self.write_photos()
        section = "source = images\nfolder = photos\ntransforms = center_crop(4), normalize({})"
        for means, is_wrong in (("mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)", True),
                                ("mean=0.5, std=0.5", True), ("mean=(123.7, 116.3, 103.5), std=58", False),
                                ("mean=33, scale=0.004", False), ("scale=0.004", False)):
            self.write(section.format(means))
            for done in self.run_it("check", "net.ini"), self.train():
                self.assertEqual(done.stderr.count("[data] normalize has mean and std of values from 0 to 1"),
                                 int(is_wrong), done.stderr)
            if is_wrong and "," in means.split("std")[0][:-2]:
                self.assertRegex(done.stderr, r"normalize\(mean=\(123.7, 116.3, 103.5\), std=\(58.[34]\d*, 57.12, 57.3\d\)\)")


if __name__ == "__main__":
    unittest.main()
