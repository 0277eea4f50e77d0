"""Trains on the same pixels from every source: idx or cifar files, folders, lists, tar, npy,
csv, lmdb and hdf5 give the same weights, bit by bit."""

import gzip
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
import zipfile
import zlib

DLCORE = os.environ["DLCORE_BIN"]
WRITE = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/bin/write_samples"
FASHION = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "models/lenet-fashion.ini"
NET = """[net]
name = net
[data]
{data}
transforms = random_crop({side}, padding=2), mirror, normalize(mean=100, std=60)
batch = 10
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
num_output = 10
weight_filler = xavier
[loss]
type = softmax_loss
"""


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels, channels, side):
    """Planes become rows of pixels, each after the number of its filter."""
    size = side * side
    mixed = bytes(value for pixel in zip(*(pixels[c * size:(c + 1) * size] for c in range(channels)))
                  for value in pixel)
    step = channels * side
    rows = b"".join(b"\0" + mixed[i:i + step] for i in range(0, len(mixed), step))
    return (b"\x89PNG\r\n\x1a\n" +
            chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 0 if channels == 1 else 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def array(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def tensors(path):
    data = path.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


def fashion(count):
    """The first images of Fashion-MNIST, as (label, pixels)."""
    paths = (re.search(rf"^{key} = (.*)$", FASHION.read_text(), re.M)[1] for key in ("images", "labels"))
    images, labels = (gzip.open(path).read(28 * 28 * count + 16) for path in paths)
    return [(labels[8 + i], images[16 + 784 * i:16 + 784 * (i + 1)]) for i in range(count)]


def made_up(count):
    """Images as CIFAR-10 has them."""
    draw = random.Random(7)
    return [(label, bytes(draw.randrange(20 * label, 20 * label + 76) for _ in range(3072)))
            for label in (draw.randrange(10) for _ in range(count))]


class Sources(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def train(self, name, data, side):
        (self.folder / "net.ini").write_text(NET.format(data=data, side=side))
        done = subprocess.run([DLCORE, "train", "net.ini", "--json", f"--run-dir=run-{name}"],
                              cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, name + done.stderr)
        return tensors(self.folder / json.loads(done.stdout)["checkpoint"])

    def write_all(self, samples, channels, side):
        """Writes the samples in every form; their order is that of the folders."""
        path = self.folder / "some pictures \u00e4"
        listed = []
        with tarfile.open(self.folder / "shard.tar", "w") as shard, \
                (self.folder / "table.csv").open("w") as table:
            table.write("file,kind\n")
            for i, (label, pixels) in enumerate(samples):
                name = f"{label}/{i:04} \u00fc.png"
                picture = png(pixels, channels, side)
                (path / str(label)).mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(picture)
                listed.append(f"{name} {label}\n")
                table.write(f'"{path.name}/{name}",{label}\n')
                for ending, contents in (("png", picture), ("cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{i:04}.{ending}")
                    info.size = len(contents)
                    shard.addfile(info, io.BytesIO(contents))
        (self.folder / "list").write_text("".join(listed))
        images, labels = b"".join(pixels for _, pixels in samples), bytes(label for label, _ in samples)
        shape = (len(samples), channels, side, side)
        for name, packing in (("plain", zipfile.ZIP_STORED), ("packed", zipfile.ZIP_DEFLATED)):
            with zipfile.ZipFile(self.folder / f"{name}.npz", "w", packing) as arrays:
                arrays.writestr("x.npy", array("|u1", shape, images))
                arrays.writestr("y.npy", array("<i8", shape[:1], struct.pack(f"<{len(labels)}q", *labels)))
        (self.folder / "images").write_bytes(images)
        (self.folder / "labels").write_bytes(labels)
        for form in ("lmdb", "hdf5"):
            subprocess.run([WRITE, form, "images", "labels", *map(str, shape[1:]), f"samples.{form}"],
                           cwd=self.folder, check=True)

    def compare(self, samples, channels, side, data):
        """`data` reads the same samples in the form that they come in."""
        self.write_all(samples, channels, side)
        weights = self.train("reference", data, side)
        grey = "grey = yes\n" if channels == 1 else ""
        for name, source in {
                "folders": f"source = images\nfolder = some pictures \u00e4\n{grey}",
                "list": f"source = images\nlist = list\nfolder = some pictures \u00e4\n{grey}",
                "tar": f"source = tar\nshards = shard.tar\n{grey}",
                "csv": f"source = csv\nfile = table.csv\npath = file\nlabel = kind\n{grey}",
                "plain": "source = npy\npath = plain.npz",
                "packed": "source = npy\npath = packed.npz",
                "lmdb": "source = lmdb\npath = samples.lmdb",
                "hdf5": "source = hdf5\nfiles = samples.hdf5",
                "chunks": "source = hdf5\nfiles = samples.hdf5\nimage = packed"}.items():
            with self.subTest(source=name):
                self.assertEqual(self.train(name, source, side), weights)
                self.check_stats(samples)

    def check_stats(self, samples):
        """Classes are counted, too, where a source does not know how many there are."""
        done = subprocess.run([DLCORE, "data", "stats", "net.ini", "--json"], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, check=True)
        found = json.loads(done.stdout)
        labels = [label for label, _ in samples]
        self.assertEqual([row["samples"] for row in found["classes"]], [labels.count(c) for c in sorted(set(labels))])
        self.assertEqual(found["unlabelled"], 0)

    def test_fashion_mnist(self):
        samples = sorted(fashion(150), key=lambda sample: sample[0])
        (self.folder / "idx-images").write_bytes(
            struct.pack(">4B3I", 0, 0, 8, 3, len(samples), 28, 28) + b"".join(p for _, p in samples))
        (self.folder / "idx-labels").write_bytes(
            struct.pack(">4BI", 0, 0, 8, 1, len(samples)) + bytes(label for label, _ in samples))
        self.compare(samples, 1, 28, "source = idx\nimages = idx-images\nlabels = idx-labels")

    def test_cifar(self):
        samples = sorted(made_up(60), key=lambda sample: sample[0])
        (self.folder / "records.bin").write_bytes(b"".join(bytes([label]) + p for label, p in samples))
        self.compare(samples, 3, 32, "source = cifar\nfolder = .\nfiles = records.bin")


if __name__ == "__main__":
    unittest.main()
