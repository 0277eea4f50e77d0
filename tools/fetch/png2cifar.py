#!/usr/bin/env python3
"""Converts a picture of many CIFAR-10 images to the binary format of the data set.

    png2cifar.py PICTURE LABELS FIRST OUTPUT

PICTURE is a PNG of 8-bit RGB in which each row of 1024 pixels is one image of 32 x 32.
LABELS is a JSON list of numbers; those from FIRST on belong to the picture. Each image
becomes a record of OUTPUT: the label, then 1024 bytes each of red, green and blue.

Needs only the standard library, and is fast: nearly all rows have PNG's "Sub" filter,
which a running sum over each channel undoes.
"""

import array
import itertools
import json
import struct
import sys
import zlib

PIXELS = 1024
STEP = 3  # bytes of a pixel
ROW = PIXELS * STEP
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(data):
    """The (type, contents) of each chunk, after checking its checksum."""
    at = len(SIGNATURE)
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8:at + 8 + size]
        (crc,) = struct.unpack_from(">I", data, at + 8 + size)
        if zlib.crc32(kind + body) != crc:
            raise ValueError(f"the checksum at byte {at} is wrong")
        yield kind, body
        at += 12 + size


def filtered_rows(data):
    """The rows as PNG stores them: the number of the filter and the bytes."""
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    parts = list(chunks(data))
    width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", parts[0][1])
    if (width, depth, color, interlace) != (PIXELS, 8, 2, 0):
        raise ValueError(f"rows are not {PIXELS} pixels of 8-bit RGB")
    raw = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    if len(raw) != height * (1 + ROW):
        raise ValueError(f"{len(raw)} bytes of pixels, not {height * (1 + ROW)}")
    for at in range(0, len(raw), 1 + ROW):
        yield raw[at], raw[at + 1:at + 1 + ROW]


def running_sum(values):
    """Prefix sums modulo 256 (the lowest byte of each sum)."""
    sums = array.array("I", itertools.accumulate(values))
    if sys.byteorder == "big":
        sums.byteswap()
    return sums.tobytes()[::sums.itemsize]


def paeth(left, up, corner):
    guess = left + up - corner
    distances = abs(guess - left), abs(guess - up), abs(guess - corner)
    return (left, up, corner)[distances.index(min(distances))]


PREDICT = {2: lambda left, up, corner: up,
           3: lambda left, up, corner: (left + up) // 2,
           4: paeth}


def unfilter(number, row, above):
    """Reverses the filter of a row (PNG specification, section 9.2)."""
    if number == 0:
        return row
    out = bytearray(row)
    if number == 1:
        for channel in range(STEP):
            out[channel::STEP] = running_sum(row[channel::STEP])
        return bytes(out)
    predict = PREDICT[number]
    for i in range(ROW):
        left, corner = (out[i - STEP], above[i - STEP]) if i >= STEP else (0, 0)
        out[i] = (row[i] + predict(left, above[i], corner)) & 255
    return bytes(out)


def records(data, labels):
    above = bytes(ROW)
    for label, (number, row) in zip(labels, filtered_rows(data)):
        above = unfilter(number, row, above)
        yield bytes([label]) + b"".join(above[channel::STEP] for channel in range(STEP))


def main(picture, labels, first, output):
    with open(picture, "rb") as file:
        data = file.read()
    with open(labels, encoding="ascii") as file:
        numbers = json.load(file)[int(first):]
    with open(output, "wb") as file:
        file.writelines(records(data, numbers))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError, struct.error, zlib.error) as error:
        sys.exit(f"png2cifar: {sys.argv[1]}: {error}")
