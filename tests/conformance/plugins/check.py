#!/usr/bin/env python3
"""Runs `dlcore plugin check` on a plugin of this build, with a value for every setting that
has no default; data sources get small files to read.

    check.py FILE
"""
import io
import os
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib


def idx_files(folder):
    images, labels = folder / "images", folder / "labels"
    pixels = random.Random(1).randbytes(30 * 8 * 9)
    images.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 30, 8, 9) + pixels)
    labels.write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 30) + bytes(i % 10 for i in range(30)))
    return {"images": images, "labels": labels}


def cifar_files(folder):
    record = random.Random(2).randbytes(3072)
    (folder / "small.bin").write_bytes(b"".join(bytes([i % 10]) + record for i in range(30)))
    return {"folder": folder, "files": "small.bin"}


def image_files(folder):
    """A folder with two classes of small PNG files."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for i in range(30):
        path = folder / "pictures" / str(i % 2) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 2, 1, 8, 2, 0, 0, 0)) +
                         chunk(b"IDAT", zlib.compress(bytes([0] + [8 * i] * 6))) + chunk(b"IEND", b""))
    return {"folder": folder / "pictures"}


def tar_files(folder):
    """A shard of thirty samples."""
    with tarfile.open(folder / "shard.tar", "w") as shard:
        for i in range(30):
            for ending, contents in (("jpg", bytes(range(i))), ("cls", str(i % 3).encode())):
                info = tarfile.TarInfo(f"{i}.{ending}")
                info.size = len(contents)
                shard.addfile(info, io.BytesIO(contents))
    return {"shards": folder / "*.tar"}


def npy_files(folder):
    """An archive of two arrays."""
    def array(kind, shape, data):
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + data
    with zipfile.ZipFile(folder / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array("<f4", (30, 1, 2, 2), random.Random(3).randbytes(30 * 16)))
        archive.writestr("y.npy", array("<i8", (30,), struct.pack("<30q", *range(30))))
    return {"path": folder / "arrays.npz"}


def csv_files(folder):
    lines = "".join(f'{i},"{i / 7}",{i % 3}\n' for i in range(30))
    (folder / "table.csv").write_text("a,b,kind\n" + lines)
    return {"file": folder / "table.csv", "image": "a,b", "label": "kind"}


def written_files(form, key):
    """Thirty samples, written by the library of the format."""
    def write(folder):
        (folder / "images").write_bytes(random.Random(4).randbytes(30 * 3 * 4 * 5))
        (folder / "labels").write_bytes(bytes(i % 10 for i in range(30)))
        writer = pathlib.Path(os.environ["DLCORE_BUILD_DIR"]) / "tests/bin/write_samples"
        subprocess.run([writer, form, "images", "labels", "3", "4", "5", "samples"], cwd=folder, check=True)
        return {key: folder / "samples"}
    return write


# By the beginning of the file's name.
SETTINGS = {
    "layers-": lambda folder: {"kernel_size": 3, "num_output": 8},
    "data-idx": idx_files,
    "data-cifar": cifar_files,
    "data-images": image_files,
    "data-tar": tar_files,
    "data-npy": npy_files,
    "data-csv": csv_files,
    "data-lmdb": written_files("lmdb", "path"),
    "data-hdf5": written_files("hdf5", "files"),
}


def main():
    file = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sets = next((make(folder) for begin, make in SETTINGS.items() if file.name.startswith(begin)), {})
        arguments = [f"--set={key}={value}" for key, value in sets.items()]
        return subprocess.run([os.environ["DLCORE_BIN"], "plugin", "check", file, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
