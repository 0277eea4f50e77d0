#!/usr/bin/python3
"""Writes pillow_results.h: what Pillow makes of a small image, which the tests of transforms
compare with. Needs Pillow (made with 9.4); run by hand:

    tests/unit/core/data/pillow.py | clang-format > tests/unit/core/data/pillow_results.h
"""

import math

from PIL import Image, ImageEnhance, ImageOps

WIDTH, HEIGHT = 9, 8
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "area": Image.BOX}
SIZES = [(5, 4), (13, 3), (4, 10), (7, 9)]


def pixels():
    """Noise of a linear congruential generator, half of it black or white."""
    state, values = 1, []
    for _ in range(WIDTH * HEIGHT * 3):
        state = (state * 1103515245 + 12345) % 2**31
        value = state >> 16 & 255
        values.append(value if state >> 24 & 1 else 255 * (value > 127))
    return bytes(values)


def affine(image, *matrix):
    return image.transform(image.size, Image.AFFINE, matrix, Image.NEAREST)


def changes(image):
    """(number in the table of rand_augment, amount, result)"""
    yield 1, 0.25, affine(image, 1, 0.25, 0, 0, 1, 0)
    yield 2, -0.25, affine(image, 1, 0, 0, -0.25, 1, 0)
    yield 3, 0.3, affine(image, 1, 0, -math.trunc(0.3 * WIDTH), 0, 1, 0)
    yield 4, -0.3, affine(image, 1, 0, 0, 0, 1, math.trunc(0.3 * HEIGHT))
    yield 5, 20, image.rotate(20, Image.NEAREST)
    yield 6, 0.4, ImageEnhance.Brightness(image).enhance(1.4)
    yield 7, -0.4, ImageEnhance.Color(image).enhance(0.6)
    yield 8, 0.4, ImageEnhance.Contrast(image).enhance(1.4)
    yield 9, 0.5, ImageEnhance.Sharpness(image).enhance(1.5)
    yield 10, 3, ImageOps.posterize(image, 5)
    yield 11, 100, ImageOps.solarize(image, 100)
    yield 12, 0, ImageOps.autocontrast(image.point(lambda value: 40 + value // 2))
    tiled = Image.new("RGB", (3 * WIDTH, 3 * HEIGHT))
    for i in range(9):
        tiled.paste(image, (i % 3 * WIDTH, i // 3 * HEIGHT))
    yield 13, 0, ImageOps.equalize(tiled).crop((0, 0, WIDTH, HEIGHT))


def numbers(image):
    return "{" + ", ".join(map(str, image.tobytes())) + "}"


def main():
    image = Image.frombytes("RGB", (WIDTH, HEIGHT), pixels())
    print("/* Written by pillow.py with Pillow. */")
    print("static const struct resized { const char *interpolation; int width, height;\n"
          "unsigned char pixels[9 * 7 * 3]; } resized[] = {")
    for name, resample in FILTERS.items():
        for size in SIZES:
            print(f'{{"{name}", {size[0]}, {size[1]}, {numbers(image.resize(size, resample))}}},')
    print("};")
    print("static const struct changed { int number; double amount;\n"
          f"unsigned char pixels[{WIDTH} * {HEIGHT} * 3]; }} changed[] = {{")
    for number, amount, found in changes(image):
        print(f"{{{number}, {amount}, {numbers(found)}}},")
    print("};")


main()
