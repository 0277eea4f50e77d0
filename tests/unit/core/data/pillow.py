#!/usr/bin/python3
"""Writes pillow_resized.h: what Pillow makes of a small image, which
test_transform_resize.c compares with. Needs Pillow (made with 9.4); run by hand:

    tests/unit/core/data/pillow.py | clang-format > tests/unit/core/data/pillow_resized.h
"""

from PIL import Image

WIDTH, HEIGHT = 13, 11
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "area": Image.BOX}
SIZES = [(5, 4), (19, 3), (6, 14), (17, 16)]


def pixels():
    """Noise of a linear congruential generator, half of it black or white."""
    state, values = 1, []
    for _ in range(WIDTH * HEIGHT * 3):
        state = (state * 1103515245 + 12345) % 2**31
        value = state >> 16 & 255
        values.append(value if state >> 24 & 1 else 255 * (value > 127))
    return bytes(values)


def main():
    image = Image.frombytes("RGB", (WIDTH, HEIGHT), pixels())
    print("/* Written by pillow.py with Pillow's resize. */")
    print("static const struct resized {\n    const char *interpolation;\n    int width, height;\n"
          "    unsigned char pixels[17 * 16 * 3];\n} resized[] = {")
    for name, resample in FILTERS.items():
        for width, height in SIZES:
            found = image.resize((width, height), resample).tobytes()
            print(f'{{"{name}", {width}, {height}, {{{", ".join(map(str, found))}}}}},')
    print("};")


main()
