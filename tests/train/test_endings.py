#!/usr/bin/env python3
"""Image files whose endings a plugin's decoder (raster.c) declares: every source and command that
looks through folders and archives takes them, and counts the others.

    test_endings.py FOLDER ABSENT     the folders of the plugin, and of one that cannot work here
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

from test_resuming import png

BIN = os.environ["DLCORE_BIN"]
ABSENT = sys.argv.pop()
FOLDER = sys.argv.pop()
ENDINGS = "jpg,jpeg,png,webp,grd,grid"
NET = """[data]
{data}
transforms = center_crop(4)
batch = 4
[solver]
type = sgd
learning_rate = 0.001
[train]
iterations = 2
[ip]
type = inner_product
num_output = 2
weight_filler = xavier
[loss]
type = softmax_loss
"""
IMAGES = "source = images\nfolder = photos"


class Endings(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name)
        for label, name in enumerate(("ant", "bee")):
            folder = self.path / "photos" / name
            folder.mkdir(parents=True)
            for i, ending in enumerate(("grd", "grid", "GRD")):
                (folder / f"{i}.{ending}").write_bytes(b"GRD\4\4" + bytes([60 * label + i] * 16))
            (folder / "3.png").write_bytes(png(4, bytes([60 * label] * 3)))
            (folder / "notes.odd").write_text("none")
        self.write(IMAGES)

    def write(self, data):
        (self.path / "net.ini").write_text(NET.format(data=data))

    def run_it(self, *words, code=0, plugins=FOLDER):
        done = subprocess.run([BIN, *words], cwd=self.path, capture_output=True, text=True, timeout=100, check=False,
                              env=os.environ | {"DLCORE_PLUGIN_PATH": plugins})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def counts(self, data, **more):
        self.write(data)
        done = self.run_it("data", "stats", "net.ini", "--json", **more)
        return json.loads(done.stdout)["samples"], done.stderr

    def test_folders(self):
        samples, said = self.counts(IMAGES)
        self.assertEqual(samples, 8)
        self.assertIn(f"photos: 2 other files, such as ant/notes.odd, are passed over; images end in {ENDINGS}\n", said)
        self.run_it("train", "net.ini")
        samples, said = self.counts(f"{IMAGES}\nendings = png")
        self.assertEqual(samples, 2)
        self.assertIn("photos: 8 other files, such as ant/0.grd, are passed over; images end in png\n", said)

    def test_without_the_plugin(self):
        samples, said = self.counts(IMAGES, plugins="")
        self.assertEqual(samples, 2)
        self.assertIn("photos: 8 other files, such as ant/0.grd, are passed over; images end in jpg,jpeg,png,webp\n", said)
        for path in self.path.glob("photos/*/*.png"):
            path.unlink()
        said = self.run_it("data", "stats", "net.ini", code=4, plugins="").stderr
        self.assertIn("photos: no images; each class needs a folder with files in it, whose names end in jpg,jpeg,png,webp", said)

    def test_where_the_plugin_cannot_work(self):
        """Its files are not left out in silence."""
        said = self.run_it("data", "verify", "net.ini", code=4, plugins=ABSENT)
        self.assertIn("ant/0.grd: not an image of a format that is known", said.stdout + said.stderr)

    def test_archives(self):
        """Shards name files by the first ending of their decoder."""
        self.run_it("data", "convert", "net.ini", "-o", "shards")
        with tarfile.open(next((self.path / "shards").glob("*.tar"))) as shard:
            names = [pathlib.Path(name).suffix for name in shard.getnames() if not name.endswith(".cls")]
        self.assertEqual(names, 2 * [".grd", ".grd", ".grd", ".png"])
        self.assertEqual(self.counts("source = tar\nshards = shards/*.tar")[0], 8)
        with tarfile.open(self.path / "other.tar", "w") as shard:
            for name, source in (("a.grid", "photos/ant/1.grid"), ("a.odd", "photos/ant/notes.odd")):
                shard.add(self.path / source, name)
            (self.path / "cls").write_text("0")
            shard.add(self.path / "cls", "a.cls")
        self.assertEqual(self.counts("source = tar\nshards = other.tar")[0], 1)

    def test_predictions(self):
        weights = "--weights=" + json.loads(self.run_it("train", "net.ini", "--json").stdout)["checkpoint"]
        done = self.run_it("predict", "net.ini", weights, "photos", "--json")
        self.assertEqual([json.loads(line)["sample"] for line in done.stdout.splitlines()],
                         [f"photos/{name}/{i}" for name in ("ant", "bee") for i in ("0.grd", "1.grid", "2.GRD", "3.png")])
        self.assertIn(f"photos: 2 other files, such as photos/ant/notes.odd, are passed over; images end in {ENDINGS}\n",
                      done.stderr)
        done = self.run_it("predict", "net.ini", weights, "photos", "--json", plugins="")
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.assertIn("photos: 8 other files, such as photos/ant/0.grd, are passed over", done.stderr)

    def test_inspection(self):
        self.assertRegex(self.run_it("plugin", "inspect", "raster").stdout, r"\n  endings +grd,grid\n")
        shown = json.loads(self.run_it("plugin", "inspect", "raster", "--json").stdout)
        self.assertEqual(shown["plugins"][0]["features"][0]["endings"], "grd,grid")
        shown = json.loads(self.run_it("plugin", "inspect", "sgd", "--json").stdout)
        self.assertNotIn("endings", shown["plugins"][0]["features"][0])


if __name__ == "__main__":
    unittest.main()
