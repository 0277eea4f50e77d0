"""Trains on image files: PNG files of the pixels of a CIFAR-like file give the same weights
as the file itself; whatever is wrong with files is reported before training, or skipped."""

import io
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import tarfile
import tempfile
import unittest
import zlib

DLCORE = os.environ["DLCORE_BIN"]
SIDE, CLASSES, EACH = 32, 3, 12
NET = """[net]
name = net
[data]
{data}
transforms = {transforms}
batch = 6
{more}
[solver]
type = sgd
learning_rate = 0.01
[train]
epochs = 2
[conv]
type = convolution
num_output = 4
kernel_size = 3
weight_filler = xavier
[scores]
type = inner_product
num_output = {classes}
weight_filler = xavier
[loss]
type = softmax_loss
"""
TRANSFORMS = "random_crop(32, padding=4), mirror, normalize(mean=(120, 110, 100), std=60)"
IMAGES = "source = images\nfolder = pictures"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, rows):
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def rows_of(planes):
    """Planes become rows of pixels, each after the number of its filter."""
    red, green, blue = (planes[i * SIDE * SIDE:(i + 1) * SIDE * SIDE] for i in range(3))
    pixels = bytes(value for three in zip(red, green, blue) for value in three)
    return b"".join(b"\0" + pixels[i:i + 3 * SIDE] for i in range(0, len(pixels), 3 * SIDE))


def tensors(path):
    data = path.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


class Images(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        made = random.Random(5)
        with (self.folder / "records.bin").open("wb") as records:
            for label in range(CLASSES):
                (self.folder / f"pictures/{label}").mkdir(parents=True)
                for i in range(EACH):
                    planes = bytes(made.randrange(60 * label, 60 * label + 100)
                                   for _ in range(3 * SIDE * SIDE))
                    records.write(bytes([label]) + planes)
                    (self.folder / f"pictures/{label}/{i:02}.png").write_bytes(
                        png(SIDE, SIDE, rows_of(planes)))
        self.write(IMAGES)

    def write(self, data, transforms=TRANSFORMS, more="", classes=CLASSES):
        (self.folder / "net.ini").write_text(NET.format(
            data=data, transforms=transforms, more=more, classes=classes))

    def run_it(self, *words, code=0):
        done = subprocess.run([DLCORE, *words], cwd=self.folder, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def train(self, name, *words):
        done = self.run_it("train", "net.ini", "--json", f"--run-dir={name}", *words)
        report = json.loads(done.stdout)
        return tensors(self.folder / report["checkpoint"]), report, done.stderr

    def test_same_weights_as_from_records(self):
        weights, report, _ = self.train("png")
        self.assertGreaterEqual(report["data_wait"], 0)
        self.assertLessEqual(report["data_wait"], 1)
        self.assertEqual(weights, self.train("threads", "--set=data.threads=3")[0])
        self.write("source = cifar\nfolder = .\nfiles = records.bin", classes=10)
        of_records = self.train("records")[0]
        self.write(IMAGES, classes=10)
        self.assertEqual(self.train("ten")[0], of_records)

    def test_same_samples_on_resume_and_from_a_list(self):
        weights = self.train("whole")[0]
        self.train("part", "--iterations=5", "--set=train.checkpoint_interval=5")
        self.assertEqual(self.train("part", "--resume=auto")[0], weights)
        lines = [f"{label}/{i:02}.png {label}\n" for label in range(CLASSES) for i in range(EACH)]
        (self.folder / "list").write_text("".join(lines))
        self.write(IMAGES + "\nlist = list")
        self.assertEqual(self.train("listed")[0], weights)

    def test_same_samples_from_shards(self):
        """Shards of any format of tar, with files that are none of a sample's."""
        weights = self.train("folder")[0]
        files = sorted((self.folder / "pictures").glob("*/*.png"))
        for i, kind in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
            with tarfile.open(self.folder / f"shard-{i}.tar", "w", format=kind) as shard:
                for path in files[i * 12:i * 12 + 12]:
                    key = "n" * (90 if kind == tarfile.USTAR_FORMAT else 200) + path.stem
                    for ending, contents in (("json", b"{}"), ("cls", path.parent.name.encode()),
                                             ("png", path.read_bytes())):
                        info = tarfile.TarInfo(f"deep/{key}.{ending}")
                        info.size = len(contents)
                        shard.addfile(info, io.BytesIO(contents))
        self.write("source = tar\nshards = shard-*.tar")
        self.assertEqual(self.train("shards")[0], weights)
        done = self.run_it("check", "net.ini", "--set=data.shards=none-*.tar", code=4)
        self.assertIn("none-*.tar: No such file", done.stdout + done.stderr)

    def test_smaller_and_larger_images(self):
        for i, (width, height) in enumerate(((50, 20), (7, 90), (1, 1))):
            (self.folder / f"pictures/{i}/other.png").write_bytes(
                png(width, height, (b"\0" + bytes(3 * width)) * height))
        self.write(IMAGES, transforms="random_resized_crop(32), normalize(mean=128, std=64)",
                   more="[data.test]\n" + IMAGES + "\nbatch = 5\ntransforms = resize(40), "
                   "center_crop(32), normalize(mean=128, std=64)")
        report = self.train("run")[1]
        self.assertGreater(report["test_loss"], 0)

    def test_mistakes(self):
        def refused(code, words, *options):
            done = self.run_it("check", "net.ini", *options, code=code)
            self.assertRegex(done.stdout + done.stderr, words)

        self.write(IMAGES, transforms="mirror")
        refused(2, "images may have different sizes")
        self.write(IMAGES + "\nmirror = yes")
        refused(2, "that is `mirror` in `transforms`")
        text = (self.folder / "net.ini").read_text().replace("mirror = yes\n", "")
        (self.folder / "net.ini").write_text(re.sub("transforms = .*", "", text))
        refused(2, "images may have different sizes")
        self.write(IMAGES, transforms="centre_crop(32)")
        refused(2, "center_crop")

    def test_damaged_files(self):
        """A header of a huge image is refused before memory is taken for it."""
        bomb = png(60000, 60000, b"\0")
        (self.folder / "pictures/0/00.png").write_bytes(bomb)
        done = self.run_it("check", "net.ini", code=4)
        self.assertRegex(done.stdout + done.stderr, r"0/00\.png: the image has 60000 x 60000 pixels, "
                                                    "more than max_pixels = 100000000")
        first = self.folder / "pictures/1/05.png"
        first.write_bytes(first.read_bytes()[:200])
        (self.folder / "pictures/2/03.png").write_bytes(b"no image at all, but long enough")
        (self.folder / "pictures/2/04.png").write_bytes(b"")
        self.write(IMAGES + "\non_error = skip")
        weights, _, said = self.train("skips")
        for words in (r"60000 x 60000", r"1/05\.png: damaged PNG file: it ends too early",
                      r"2/03\.png: not an image of a format that is known; the decoders are .*png",
                      r"2/04\.png: the file is empty"):
            self.assertEqual(len(re.findall(words + ".*the sample is skipped", said)), 1, said)
        self.assertEqual(weights, self.train("again", "--set=data.threads=3")[0])
        done = self.run_it("train", "net.ini", "--set=data.max_skipped=3", code=4)
        self.assertIn("3 samples were skipped before it", done.stderr)
        done = self.run_it("train", "net.ini", "--set=data.on_error=fail", code=4)

    def test_missing_files(self):
        """A run begins without files that may be skipped, wherever they are in the list."""
        paths = sorted((self.folder / "pictures").glob("*/*.png"))
        for path in (paths[0], paths[-1]):
            path.unlink()
            path.symlink_to("nowhere")
        self.write(IMAGES)
        done = self.run_it("train", "net.ini", code=4)
        self.assertIn("0/00.png: No such file", done.stderr)
        self.write(IMAGES + "\non_error = skip")
        _, _, said = self.train("skips")
        for path in (paths[0], paths[-1]):
            self.assertRegex(said, path.name + ": No such file.*the sample is skipped")


if __name__ == "__main__":
    unittest.main(verbosity=2)
