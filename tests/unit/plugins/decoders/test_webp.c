/* Tests the decoder of WebP files against files written by libwebp. */
#include <stdlib.h>
#include <string.h>

#include <webp/encode.h>

#include "base/status.h"
#include "decoding.h"
#include "support/scratch.h"
#include "support/test.h"

enum { WIDTH = 203, HEIGHT = 149, LOSSY, LOSSLESS, ALPHA, WAYS_END };

static file write_webp(const picture *from, int way) {
    file made = {0};
    uint8_t *bytes = NULL;
    int row = from->width * 3;
    if (way == LOSSY)
        made.count = WebPEncodeRGB(from->pixels, from->width, from->height, row, 90,
                                   &bytes);
    if (way == LOSSLESS)
        made.count = WebPEncodeLosslessRGB(from->pixels, from->width, from->height, row,
                                           &bytes);
    if (way == ALPHA) {
        size_t pixels = (size_t)from->width * (size_t)from->height;
        unsigned char *rgba = malloc(4 * pixels);
        ck_assert_ptr_nonnull(rgba);
        for (size_t i = 0; i < pixels; i++) {
            memcpy(rgba + 4 * i, from->pixels + 3 * i, 3);
            rgba[4 * i + 3] = (unsigned char)(55 + i % 200);
        }
        made.count = WebPEncodeRGBA(rgba, from->width, from->height, from->width * 4,
                                    90, &bytes);
        free(rgba);
    }
    ck_assert_uint_gt(made.count, 0);
    made.bytes = malloc(made.count);
    ck_assert_ptr_nonnull(made.bytes);
    memcpy(made.bytes, bytes, made.count);
    WebPFree(bytes);
    return made;
}

TEST_SETTINGS(.timeout = 60);

TEST_RANGE(has_the_pixels, LOSSY, WAYS_END) {
    const dlc_decoder_ops *ops = decoder_open("webp");
    picture written = picture_make(WIDTH, HEIGHT, 3);
    file from = write_webp(&written, _i);
    dlc_image_info info = decoder_inspect(ops, &from);
    ck_assert_int_eq(info.width, WIDTH);
    ck_assert_int_eq(info.height, HEIGHT);
    picture read = decoder_decode(ops, &from, 3, 1);
    pictures_near(&written, &read, _i == LOSSLESS ? 0 : 24);
    decoder_regions(ops, &from);
    picture_free(&read);
    picture_free(&written);
    free(from.bytes);
}

static void put_number(unsigned char *to, size_t number, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(number >> 8 * i);
}

/* The extended form of a file: a header with the size, the picture, and EXIF, with
 * "Exif" before it or not. */
static file with_exif(const file *from, int orientation, int big, int is_named) {
    enum { FILE_HEADER = 12, EXTENDED = 18, CHUNK = 8 };
    size_t rest = from->count - FILE_HEADER;
    size_t exif = EXIF_BYTES + (is_named ? 6 : 0);
    file made = {NULL, from->count + EXTENDED + CHUNK + exif};
    unsigned char *at = made.bytes = calloc(1, made.count);
    ck_assert_ptr_nonnull(at);
    memcpy(at, "RIFF....WEBPVP8X", 16);
    put_number(at + 4, made.count - 8, 4);
    put_number(at + 16, 10, 4);
    at[20] = 0x08;
    put_number(at + 24, WIDTH - 1, 3);
    put_number(at + 27, HEIGHT - 1, 3);
    at += FILE_HEADER + EXTENDED;
    memcpy(at, from->bytes + FILE_HEADER, rest);
    at += rest;
    memcpy(at, "EXIF", 4);
    put_number(at + 4, exif, 4);
    if (is_named)
        memcpy(at + CHUNK, "Exif\0\0", 6);
    exif_make(orientation, big, at + CHUNK + exif - EXIF_BYTES);
    return made;
}

TEST_EACH(turns_as_the_camera_says, 16) {
    int orientation = _i / 2 + 1;
    picture written = picture_make(WIDTH, HEIGHT, 3);
    file plain = write_webp(&written, _i % 2 ? LOSSY : LOSSLESS);
    file turned = with_exif(&plain, orientation, _i % 2, _i % 3 == 0);
    decoder_turns(decoder_open("webp"), &plain, &turned, orientation);
    picture_free(&written);
    free(plain.bytes);
    free(turned.bytes);
}

TEST_RANGE(damage, LOSSY, WAYS_END) {
    const dlc_decoder_ops *ops = decoder_open("webp");
    picture written = picture_make(64, 48, 3);
    file from = write_webp(&written, _i);
    decoder_mutations(ops, &from);
    decoder_cuts(ops, &from);
    picture_free(&written);
    free(from.bytes);
}
