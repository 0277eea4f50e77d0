/* Tests the decoder of PNG files against files written by libpng. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "base/status.h"
#include "decoding.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

enum { WIDTH = 61, HEIGHT = 47, COLOURS = 16 };

/* How a file is written. */
typedef struct way {
    const char *name;
    int colour_type, depth, interlaced;
} way;

static const way ways[] = {
    {"colour", PNG_COLOR_TYPE_RGB, 8, 0},
    {"colour, interlaced", PNG_COLOR_TYPE_RGB, 8, 1},
    {"colour, 16 bits", PNG_COLOR_TYPE_RGB, 16, 0},
    {"colour, alpha", PNG_COLOR_TYPE_RGB_ALPHA, 8, 0},
    {"colour, alpha, 16 bits", PNG_COLOR_TYPE_RGB_ALPHA, 16, 1},
    {"grey", PNG_COLOR_TYPE_GRAY, 8, 0},
    {"grey, 16 bits", PNG_COLOR_TYPE_GRAY, 16, 0},
    {"grey, alpha", PNG_COLOR_TYPE_GRAY_ALPHA, 8, 1},
    {"grey, 1 bit", PNG_COLOR_TYPE_GRAY, 1, 0},
    {"grey, 2 bits", PNG_COLOR_TYPE_GRAY, 2, 1},
    {"grey, 4 bits", PNG_COLOR_TYPE_GRAY, 4, 0},
    {"palette, 4 bits", PNG_COLOR_TYPE_PALETTE, 4, 0},
    {"palette, 8 bits", PNG_COLOR_TYPE_PALETTE, 8, 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void append(png_structp png, png_bytep bytes, size_t count) {
    file *to = png_get_io_ptr(png);
    to->bytes = realloc(to->bytes, to->count + count);
    ck_assert_ptr_nonnull(to->bytes);
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
}

static int samples_of(const way *how) {
    return (how->colour_type & PNG_COLOR_MASK_COLOR && how->depth >= 8 &&
                    how->colour_type != PNG_COLOR_TYPE_PALETTE
                ? 3
                : 1) +
           !!(how->colour_type & PNG_COLOR_MASK_ALPHA);
}

/* The value of a sample as it is stored: a ramp in each channel. */
static unsigned stored(const way *how, int32_t x, int32_t y, int c) {
    unsigned most = how->colour_type == PNG_COLOR_TYPE_PALETTE ? COLOURS - 1
                                                               : (1u << how->depth) - 1;
    unsigned ramp = c == 0 ? (unsigned)x * most / (WIDTH - 1)
                           : (unsigned)(y + 10 * c) * most / (HEIGHT + 30);
    return ramp;
}

static unsigned char shade(unsigned colour, int c) {
    return (unsigned char)(colour * 16 + (unsigned)c * 5);
}

static void put_rows(png_structp png, const way *how) {
    int samples = samples_of(how);
    unsigned char row[WIDTH * 8];
    int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < HEIGHT; y++) {
            memset(row, 0, sizeof row);
            for (int32_t i = 0; i < WIDTH * samples; i++) {
                unsigned value = stored(how, i / samples, y, i % samples);
                if (how->depth == 16) {
                    row[2 * i] = (unsigned char)(value >> 8);
                    row[2 * i + 1] = (unsigned char)value;
                } else {
                    int bit = i * how->depth;
                    unsigned both = row[bit / 8] | value << (8 - how->depth - bit % 8);
                    row[bit / 8] = (unsigned char)both;
                }
            }
            png_write_row(png, row);
        }
}

static file write_png(const way *how) {
    file made = {0};
    png_color palette[COLOURS];
    png_byte alpha[COLOURS] = {0, 128};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    ck_assert_ptr_nonnull(info);
    if (setjmp(png_jmpbuf(png)))
        ck_abort_msg("cannot write");
    png_set_write_fn(png, &made, append, NULL);
    png_set_IHDR(png, info, WIDTH, HEIGHT, how->depth, how->colour_type,
                 how->interlaced, 0, 0);
    for (unsigned i = 0; i < COLOURS; i++)
        palette[i] = (png_color){shade(i, 0), shade(i, 1), shade(i, 2)};
    if (how->colour_type == PNG_COLOR_TYPE_PALETTE) {
        png_set_PLTE(png, info, palette, COLOURS);
        png_set_tRNS(png, info, alpha, COLOURS, NULL);
    }
    png_write_info(png, info);
    put_rows(png, how);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return made;
}

/* The pixels that a reader must see. */
static picture expected(const way *how, int32_t channels) {
    picture made = {WIDTH, HEIGHT, channels, malloc((size_t)WIDTH * HEIGHT * 3)};
    unsigned char *at = made.pixels;
    unsigned most = (1u << how->depth) - 1;
    int grey = !(how->colour_type & PNG_COLOR_MASK_COLOR);
    ck_assert_ptr_nonnull(at);
    for (int32_t y = 0; y < HEIGHT; y++)
        for (int32_t x = 0; x < WIDTH; x++)
            for (int32_t c = 0; c < channels; c++) {
                unsigned value = stored(how, x, y, grey ? 0 : c);
                value = (value * 255 + most / 2) / most;
                if (how->colour_type == PNG_COLOR_TYPE_PALETTE)
                    value = shade(stored(how, x, y, 0), c);
                *at++ = (unsigned char)value;
            }
    return made;
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(has_the_pixels, WAYS) {
    const dlc_decoder_ops *ops = decoder_open("png");
    const way *how = &ways[_i];
    int grey = !(how->colour_type & PNG_COLOR_MASK_COLOR);
    file from = write_png(how);
    dlc_image_info info = decoder_inspect(ops, &from);
    ck_assert_int_eq(info.width, WIDTH);
    ck_assert_int_eq(info.height, HEIGHT);
    ck_assert_int_eq(info.channels, grey ? 1 : 3);
    picture want = expected(how, 3), read = decoder_decode(ops, &from, 3, 1);
    pictures_near(&want, &read, 0);
    decoder_regions(ops, &from);
    picture_free(&want);
    picture_free(&read);
    if (grey) {
        want = expected(how, 1);
        read = decoder_decode(ops, &from, 1, 1);
        pictures_near(&want, &read, 0);
        picture_free(&want);
        picture_free(&read);
    }
    free(from.bytes);
}

/* Puts a chunk into a file, at its end or before its picture. */
static file with_exif(const file *from, int orientation, int big, int is_last) {
    enum { AROUND = 12, HEADER = 33 };
    unsigned char chunk[EXIF_BYTES + AROUND] = {0,   0,   0,   EXIF_BYTES,
                                                'e', 'X', 'I', 'f'};
    size_t at = is_last ? from->count - AROUND : HEADER;
    file made = {malloc(from->count + sizeof chunk), from->count + sizeof chunk};
    ck_assert_ptr_nonnull(made.bytes);
    exif_make(orientation, big, chunk + 8);
    uLong sum = crc32(0, chunk + 4, EXIF_BYTES + 4);
    for (int i = 0; i < 4; i++)
        chunk[sizeof chunk - 4 + (size_t)i] = (unsigned char)(sum >> (24 - 8 * i));
    memcpy(made.bytes, from->bytes, at);
    memcpy(made.bytes + at, chunk, sizeof chunk);
    memcpy(made.bytes + at + sizeof chunk, from->bytes + at, from->count - at);
    return made;
}

/* Plain and interlaced pictures, with EXIF before and behind. */
TEST_EACH(turns_as_the_camera_says, 16) {
    int orientation = _i / 2 + 1;
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        file plain = write_png(&ways[interlaced]);
        file turned = with_exif(&plain, orientation, _i % 2, interlaced != _i % 2);
        decoder_turns(decoder_open("png"), &plain, &turned, orientation);
        if (_i == 0)
            decoder_mutations(decoder_open("png"), &turned);
        free(plain.bytes);
        free(turned.bytes);
    }
}

TEST(encodes) {
    decoder_encodes(decoder_open("png"), 1, 0);
}

TEST_EACH(damage, 2) {
    const dlc_decoder_ops *ops = decoder_open("png");
    file from = write_png(&ways[_i]);
    decoder_mutations(ops, &from);
    decoder_cuts(ops, &from);
    free(from.bytes);
}

/* A header alone costs nothing: who decodes sees the size first. */
TEST(a_header_of_gigabytes) {
    const dlc_decoder_ops *ops = decoder_open("png");
    file from = write_png(&ways[0]);
    static const unsigned char side[] = {0, 0, 0xea, 0x60};
    memcpy(from.bytes + 16, side, 4);
    memcpy(from.bytes + 20, side, 4);
    dlc_image_info info = decoder_inspect(ops, &from);
    ck_assert_int_eq(info.width, 60000);
    ck_assert_int_eq(info.height, 60000);
    from.bytes[16] = 0x80;
    ck_assert_int_eq(ops->inspect(from.bytes, from.count, &info), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "its header says");
    memset(from.bytes + 16, 0, 4);
    ck_assert_int_eq(ops->inspect(from.bytes, from.count, &info), DLC_ERR_DATA);
    free(from.bytes);
}

/* The most memory that this process has asked for so far, in MB. */
static long peak_mb(void) {
    char line[256];
    long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    ck_assert_ptr_nonnull(status);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "VmPeak:", 7) == 0)
            kilobytes = strtol(line + 7, NULL, 10);
    fclose(status);
    return kilobytes / 1024;
}

static void fails_in_little_memory(const file *from, const char *detail) {
    dlc_decode_args args = {.size = sizeof args,
                            .channels = 3,
                            .bytes = from->bytes,
                            .count = from->count,
                            .shrink = 1,
                            .width = 1,
                            .height = 1};
    unsigned char pixel[3];
    const dlc_decoder_ops *ops = decoder_open("png");
    long before = peak_mb();
    ck_assert_int_eq(ops->decode(&args, pixel), DLC_ERR_DATA);
    ck_contains(dlc_detail(), detail);
    ck_assert_int_lt(peak_mb() - before, 64);
}

/* A chunk of EXIF data that claims 637 MB, in a file of 72 bytes. */
TEST(a_chunk_that_claims_its_size) {
    if (SANITIZED)
        return;
    file from = write_png(&ways[0]);
    from.bytes = realloc(from.bytes, from.count + 64);
    memcpy(from.bytes + 33,
           "\x26\0\0\x30"
           "eXIfII*",
           11);
    from.count = 72;
    fails_in_little_memory(&from, "damaged PNG file: ");
    free(from.bytes);
}

/* All rows of an interlaced picture would be kept. */
TEST(a_picture_that_claims_its_size) {
    file from = write_png(&ways[1]);
    static const unsigned char side[] = {0, 0, 0xea, 0x60};
    memcpy(from.bytes + 16, side, 4);
    memcpy(from.bytes + 20, side, 4);
    uLong sum = crc32(0, from.bytes + 12, 17);
    for (int i = 0; i < 4; i++)
        from.bytes[29 + i] = (unsigned char)(sum >> (24 - 8 * i));
    fails_in_little_memory(&from,
                           "its header says 60000 x 60000 pixels, more than its");
    free(from.bytes);
}
