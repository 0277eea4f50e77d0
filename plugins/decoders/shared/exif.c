/* Reads the one field of EXIF that matters here, and turns pictures as it says. EXIF is
 * a TIFF file: a header with the order of bytes and the place of a table of entries of
 * 12 bytes (tag, type, count, value). */
#include "exif.h"

#include <stdint.h>
#include <string.h>

#include "pixels.h"

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_BYTES 12

typedef struct tiff {
    const unsigned char *bytes;
    size_t count;
    int big_endian;
} tiff;

/* A number of 2 or 4 bytes; 0 beyond the end. */
static uint32_t number_at(const tiff *t, size_t at, size_t bytes) {
    uint32_t number = 0;
    if (at > t->count || t->count - at < bytes)
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        size_t from = t->big_endian ? at + i : at + bytes - 1 - i;
        number = number << 8 | t->bytes[from];
    }
    return number;
}

static uint32_t find_value(const tiff *t) {
    size_t table = number_at(t, 4, 4);
    size_t entries = number_at(t, table, 2);
    for (size_t i = 0; i < entries; i++) {
        size_t entry = table + 2 + i * ENTRY_BYTES;
        if (entry > t->count)
            return 0;
        if (number_at(t, entry, 2) == TAG_ORIENTATION)
            return number_at(t, entry + 2, 2) == TYPE_SHORT ? number_at(t, entry + 8, 2)
                                                            : 0;
    }
    return 0;
}

orientation exif_orientation(const unsigned char *data, size_t bytes) {
    static const unsigned char name[] = {'E', 'x', 'i', 'f', 0, 0};
    static const orientation of_value[] = {
        [1] = {0, 0, 0}, [2] = {0, 1, 0}, [3] = {0, 1, 1}, [4] = {0, 0, 1},
        [5] = {1, 0, 0}, [6] = {1, 0, 1}, [7] = {1, 1, 1}, [8] = {1, 1, 0},
    };
    int is_named = bytes >= sizeof name && memcmp(data, name, sizeof name) == 0;
    size_t before = is_named ? sizeof name : 0;
    tiff t = {.bytes = data + before, .count = bytes - before};
    if (t.count < 8)
        return (orientation){0};
    t.big_endian = t.bytes[0] == 'M';
    if (number_at(&t, 2, 2) != 42)
        return (orientation){0};
    uint32_t value = find_value(&t);
    return value < sizeof of_value / sizeof *of_value ? of_value[value]
                                                      : (orientation){0};
}

target target_find(orientation way, int32_t width, int32_t height,
                   const dlc_decode_args *args, unsigned char *pixels) {
    ptrdiff_t pixel = args->channels, row = (ptrdiff_t)args->width * pixel;
    target t = {.x = way.transposed ? args->y : args->x,
                .y = way.transposed ? args->x : args->y,
                .width = way.transposed ? args->height : args->width,
                .height = way.transposed ? args->width : args->height,
                .channels = args->channels,
                .first = pixels,
                .to_right = way.transposed ? row : pixel,
                .to_down = way.transposed ? pixel : row};
    if (way.columns_backwards) {
        t.x = width - t.x - t.width;
        t.first += (t.width - 1) * t.to_right;
        t.to_right = -t.to_right;
    }
    if (way.rows_backwards) {
        t.y = height - t.y - t.height;
        t.first += (t.height - 1) * t.to_down;
        t.to_down = -t.to_down;
    }
    return t;
}

void target_put_row(const target *t, int32_t y, const unsigned char *from,
                    int32_t channels) {
    unsigned char *to = t->first + (y - t->y) * t->to_down;
    if (channels == t->channels && t->to_right == channels)
        memcpy(to, from, (size_t)t->width * (size_t)channels);
    else
        pixels_copy(from, channels, (size_t)t->width, to, t->channels, t->to_right);
}
