#!/usr/bin/env python3
"""Tests `dlcore data convert`: shards have the bytes, the order and the classes of what they
were made of, train to the same weights, and are the same after a kill."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

import test_images

DLCORE, SIDE = test_images.DLCORE, test_images.SIDE
EXAMPLES = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "examples/fields"
NAMES = ["a b", "c.d", "Öl"]
EACH = 12


class Convert(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        made = random.Random(5)
        with (self.folder / "records.bin").open("wb") as records:
            for label, name in enumerate(NAMES):
                (self.folder / "pictures" / name).mkdir(parents=True)
                for i in range(EACH):
                    planes = bytes(made.randrange(60 * label, 60 * label + 100) for _ in range(3 * SIDE * SIDE))
                    records.write(bytes([label]) + planes)
                    (self.folder / "pictures" / name / f"{i:02}.png").write_bytes(
                        test_images.png(SIDE, SIDE, test_images.rows_of(planes)))
        self.write("source = images\nfolder = pictures")

    def write(self, data, classes=3):
        (self.folder / "net.ini").write_text(test_images.NET.format(
            data=data, transforms=test_images.TRANSFORMS, more="", classes=classes))

    def run_it(self, *words, code=0):
        done = subprocess.run([DLCORE, *words], cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def convert(self, folder, *words, code=0):
        return self.run_it("data", "convert", "net.ini", "-o", folder, *words, code=code)

    def train(self, name, *words):
        report = json.loads(self.run_it("train", "net.ini", "--json", f"--run-dir={name}", *words).stdout)
        return test_images.tensors(self.folder / report["checkpoint"])

    def samples(self, folder):
        """Keys, images and classes of all shards, each of which must be whole."""
        found = []
        for path in sorted((self.folder / folder).glob("*.tar")):
            data = path.read_bytes()
            self.assertEqual(data[-1024:], bytes(1024))
            with tarfile.open(path) as shard:
                members = shard.getmembers()
                for image, label in zip(members[::2], members[1::2]):
                    key, _, kind = image.name.partition(".")
                    self.assertEqual((kind, label.name), ("png", f"{key}.cls"))
                    found.append((int(key), shard.extractfile(image).read(), int(shard.extractfile(label).read())))
        return found

    def test_bytes_order_and_classes(self):
        weights = self.train("folder")
        said = self.convert("shards", "--shard-size=20K").stdout
        files = [(path.read_bytes(), label) for label, name in enumerate(NAMES)
                 for path in sorted((self.folder / "pictures" / name).glob("*.png"))]
        self.assertEqual(self.samples("shards"), [(i, *file) for i, file in enumerate(files)])
        self.assertGreater(len(list((self.folder / "shards").glob("*.tar"))), 2)
        self.assertEqual((self.folder / "shards/classes.txt").read_text().splitlines(), NAMES)
        self.assertEqual(said, "[data]\nsource = tar\nshards = shards/*.tar\n")
        self.write(said.split("\n", 1)[1])
        self.assertEqual(self.train("shards-run"), weights)
        self.assertIn("Öl", self.run_it("data", "stats", "net.ini").stdout)

    def test_records(self):
        """Other samples become files without a loss; and from shards to shards."""
        self.write("source = cifar\nfolder = .\nfiles = records.bin", classes=10)
        weights = self.train("records")
        self.convert("shards")
        self.write("source = tar\nshards = shards/*.tar", classes=10)
        self.assertEqual(self.train("shards-run"), weights)
        self.convert("again", "--shard-size=1K")
        self.assertEqual(self.samples("again"), self.samples("shards"))

    def test_images_of_one_size(self):
        """The section that is printed says so, unless its transforms do; it trains the same."""
        slow = "--set=solver.learning_rate=1e-6"
        for name, transforms, kept in (("none", None, ""), ("mirror", "mirror(1)", ", mirror(1)"), ("crop", "center_crop(9)", None)):
            self.write("source = cifar\nfolder = .\nfiles = records.bin", classes=10)
            path = self.folder / "net.ini"
            net = re.sub("transforms = .*\n", f"transforms = {transforms}\n" if transforms else "", path.read_text())
            path.write_text(net)
            weights = self.train(f"{name}-records", slow)
            said = self.convert(f"{name}-shards").stdout
            self.assertEqual("transforms = " in said, kept is not None)
            if kept is not None:
                self.assertIn(f"transforms = center_crop(height={SIDE}, width={SIDE}){kept}\n", said)
                net = re.sub("transforms = .*\n", "", net)
            path.write_text(net.replace("source = cifar\nfolder = .\nfiles = records.bin\n", said.split("\n", 1)[1]))
            self.assertEqual(self.train(f"{name}-run", slow), weights)
        self.write("source = cifar\nfolder = .\nfiles = records.bin", classes=10)
        path.write_text(re.sub("transforms = .*\n", "", path.read_text()))
        self.assertIn("center_crop(height=16, width=16)\n", self.convert("small", "--resize=16").stdout)

    def test_fields(self):
        """Masks, vectors and several classes: the same weights from shards, from shards of shards,
        and the same samples in these."""
        for example, side in (("segmentation", 24), ("regression", 16), ("multi-label", 16)):
            net = (EXAMPLES / f"{example}.ini").read_text().replace("transforms = n", f"transforms = center_crop({side}), n")
            options = ["--set=data.samples=96", "--threads=1"]
            (self.folder / "net.ini").write_text(net)
            weights = self.train(f"{example}-made", "--iterations=10", *options)
            said = self.convert(f"{example}-shards", "--shard-size=20K", options[0]).stdout
            begin = net.index("[data]\n")
            kept = re.findall(r"(?m)^(?:batch|transforms) = .*\n", net[begin:])[:2]
            (self.folder / "net.ini").write_text(net[:begin] + said + "".join(kept) + net[net.index("[data.test]"):])
            self.assertEqual(self.train(f"{example}-run", "--iterations=10", *options[1:]), weights, example)
            self.convert(f"{example}-again", "--shard-size=20K")
            first, again = ({path.name: path.read_bytes() for path in (self.folder / f"{example}-{name}").glob("*.tar")}
                            for name in ("shards", "again"))
            self.assertEqual(first, again)

    def test_fields_that_shards_cannot_hold(self):
        (self.folder / "net.ini").write_text((EXAMPLES / "segmentation.ini").read_text())
        said = self.convert("shards", "--resize=8", code=2).stderr
        self.assertIn("--resize shrinks images alone, and not the mask mask", said)

    def test_windows_and_resume(self):
        self.convert("shards")
        self.write("source = tar\nshards = shards/*.tar\nshuffle_window = 9")
        options = ["--set=train.checkpoint_interval=20", "--set=solver.learning_rate=1e-4",
                   "--epochs=60"]  # of 6 iterations
        weights = self.train("whole", *options)
        with subprocess.Popen([DLCORE, "train", "net.ini", "--run-dir=part", *options],
                              cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as child:
            while child.poll() is None and not list((self.folder / "part").glob("net-*.safetensors")):
                time.sleep(0.001)
            child.send_signal(signal.SIGKILL)
        self.assertEqual(child.returncode, -signal.SIGKILL)
        self.assertEqual(self.train("part", "--resume=auto", *options), weights)
        self.assertNotEqual(self.train("full", "--set=data.shuffle_window=0", *options), weights)

    def test_killed(self):
        for i in range(40):
            for path in (self.folder / "pictures/a b").glob("??.png"):
                path.with_name(f"{path.stem}-{i}.png").write_bytes(path.read_bytes())
        self.convert("whole", "--shard-size=8K")
        part, kills = self.folder / "part", 0
        while True:
            before = len(list(part.glob("*.tar")))
            with subprocess.Popen([DLCORE, "data", "convert", "net.ini", "-o", "part", "--shard-size=8K"],
                                  cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                while child.poll() is None and len(list(part.glob("*.tar"))) < before + 20:
                    time.sleep(0.001)
                child.send_signal(signal.SIGKILL)
            if child.returncode == 0:
                break
            self.assertEqual(child.returncode, -signal.SIGKILL)
            kills += 1
            self.assertGreater(len(self.samples("part")), before)
        self.assertGreater(kills, 0)
        files = {path.name: path.read_bytes() for path in (self.folder / "whole").iterdir()}
        self.assertEqual({path.name: path.read_bytes() for path in part.iterdir()}, files)

    def peak(self, lines):
        """The most memory of training on so many files of 200 KB, read from shards."""
        folder = self.folder / f"large-{lines}"
        (self.folder / "list").write_text("".join(f"large/{i % 4}.png {i % 3}\n" for i in range(lines)))
        self.write("source = images\nlist = list")
        self.convert(folder.name)
        self.write(f"source = tar\nshards = {folder.name}/*.tar")
        command = [DLCORE, "train", "net.ini", "-q", "--epochs=1", "--set=data.transforms=center_crop(32), normalize(mean=128, std=256)",
                   "--set=train.checkpoint_last=no", f"--run-dir=run-{lines}"]
        with subprocess.Popen(command, cwd=self.folder) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 0)
        bytes_ = sum(path.stat().st_size for path in folder.glob("*.tar"))
        return bytes_, 1024 * usage.ru_maxrss

    def test_nothing_is_kept_in_memory(self):
        (self.folder / "large").mkdir()
        side, made = 256, random.Random(7)
        for i in range(4):
            rows = b"".join(b"\0" + made.randbytes(3 * side) for _ in range(side))
            (self.folder / f"large/{i}.png").write_bytes(test_images.png(side, side, rows))
        few_bytes, few = self.peak(6)
        many_bytes, many = self.peak(300)
        self.assertGreater(many_bytes - few_bytes, 50e6)
        self.assertLess(many - few, 16e6)

    def test_resize(self):
        self.write("source = images\nfolder = pictures")
        (self.folder / "pictures/a b/00.png").write_bytes(test_images.png(20, 10, (b"\0" + bytes(60)) * 10))
        self.convert("small", "--resize=16")
        self.write("source = tar\nshards = small/*.tar")
        sizes = json.loads(self.run_it("data", "stats", "net.ini", "--json").stdout)
        self.assertIn("20", json.dumps(sizes))
        said = self.run_it("data", "stats", "net.ini").stdout
        self.assertRegex(said, r"smallest +20 x 10 ")
        self.assertRegex(said, r"largest +16 x 16\n")

    def test_damaged_files(self):
        """A file that is cut short is found where it is only copied, too."""
        side = 64
        rows = b"".join(b"\0" + random.Random(y).randbytes(3 * side) for y in range(side))
        whole = test_images.png(side, side, rows)
        (self.folder / "pictures/a b/00.png").write_bytes(whole)
        self.convert("small", "--resize=60")
        shard, = (self.folder / "small").glob("*.tar")
        with tarfile.open(shard) as tar:
            member = tar.next()
            jpeg = tar.extractfile(member).read()
        self.assertEqual((pathlib.Path(member.name).suffix, jpeg[:2]), (".jpg", b"\xff\xd8"))
        for name, data in (("jpg", jpeg), ("png", whole)):
            path = self.folder / f"pictures/a b/00.{name}"
            path.write_bytes(data)
            self.convert(f"whole-{name}")
            path.write_bytes(data[:len(data) * 3 // 4])
            self.assertRegex(self.convert(f"cut-{name}", code=4).stderr, rf"a b/00\.{name}: ")
            self.assertEqual(list((self.folder / f"cut-{name}").glob("*.tar")), [])
            report = json.loads(self.convert(f"rest-{name}", "--set=data.on_error=skip", "--json").stdout)
            self.assertEqual(report["skipped"], 1)
            path.unlink()

    def test_refused(self):
        self.convert("shards")
        said = self.convert("shards", "--quality=50", code=2).stderr
        self.assertIn("shards/conversion.txt: what is there was converted", said)
        self.convert("more", "--shard-size=many", code=2)
        self.run_it("data", "convert", "net.ini", code=2)
        (self.folder / "pictures/c.d/03.png").write_bytes(b"no image at all, but long enough")
        self.assertRegex(self.convert("bad", code=4).stderr, r"c\.d/03\.png: not an image")
        self.assertEqual(list((self.folder / "bad").glob("*.part")), [])
        report = json.loads(self.convert("good", "--set=data.on_error=skip", "--json").stdout)
        self.assertEqual((report["samples"], report["skipped"]), (3 * EACH, 1))
        self.assertEqual(len(self.samples("good")), 3 * EACH - 1)


if __name__ == "__main__":
    unittest.main()
