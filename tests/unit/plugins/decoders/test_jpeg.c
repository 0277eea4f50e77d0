/* Tests the decoder of JPEG files against files written by libjpeg. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "base/status.h"
#include "decoding.h"
#include "support/scratch.h"
#include "support/test.h"

enum { WIDTH = 203, HEIGHT = 149 };

/* How a file is written. */
typedef struct way {
    const char *name;
    J_COLOR_SPACE colours; /* of the pixels that are given */
    int32_t channels;
    int across, down; /* pixels for one value of colour */
    int progressive, restarts;
} way;

static const way ways[] = {
    {"4:4:4", JCS_RGB, 3, 1, 1, 0, 0},       {"4:2:0", JCS_RGB, 3, 2, 2, 0, 0},
    {"4:2:2", JCS_RGB, 3, 2, 1, 0, 0},       {"4:4:0", JCS_RGB, 3, 1, 2, 0, 0},
    {"4:1:1", JCS_RGB, 3, 4, 1, 0, 0},       {"grey", JCS_GRAYSCALE, 1, 1, 1, 0, 0},
    {"progressive", JCS_RGB, 3, 2, 2, 1, 0}, {"restarts", JCS_RGB, 3, 2, 2, 0, 3},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* An APP1 segment with the orientation. */
static void write_exif(struct jpeg_compress_struct *jpeg, int value, int big) {
    unsigned char exif[6 + EXIF_BYTES] = {'E', 'x', 'i', 'f', 0, 0};
    exif_make(value, big, exif + 6);
    jpeg_write_marker(jpeg, JPEG_APP0 + 1, exif, sizeof exif);
}

static file write_jpeg(const picture *from, const way *how, int orientation, int big) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    file made = {0};
    unsigned long count = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &made.bytes, &count);
    jpeg.image_width = (JDIMENSION)from->width;
    jpeg.image_height = (JDIMENSION)from->height;
    jpeg.input_components = from->channels;
    jpeg.in_color_space = how->colours;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 95, TRUE);
    jpeg.comp_info[0].h_samp_factor = how->across;
    jpeg.comp_info[0].v_samp_factor = how->down;
    jpeg.restart_in_rows = how->restarts;
    if (how->progressive)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    if (orientation)
        write_exif(&jpeg, orientation, big);
    for (int32_t y = 0; y < from->height; y++) {
        JSAMPROW row = from->pixels +
                       (size_t)y * (size_t)from->width * (size_t)from->channels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    made.count = count;
    return made;
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(has_the_pixels, WAYS) {
    const dlc_decoder_ops *ops = decoder_open("jpeg");
    const way *how = &ways[_i];
    picture written = picture_make(WIDTH, HEIGHT, how->channels);
    file from = write_jpeg(&written, how, 0, 0);
    dlc_image_info info = decoder_inspect(ops, &from);
    ck_assert_int_eq(info.width, WIDTH);
    ck_assert_int_eq(info.height, HEIGHT);
    ck_assert_int_eq(info.channels, how->channels);
    ck_assert_int_eq(info.shrink_max, 8);
    picture read = decoder_decode(ops, &from, how->channels, 1);
    pictures_near(&written, &read, 16);
    decoder_regions(ops, &from);
    picture_free(&read);
    picture_free(&written);
    free(from.bytes);
}

/* A shrunk picture is like a smaller one of the same scene. */
TEST(shrinks) {
    const dlc_decoder_ops *ops = decoder_open("jpeg");
    picture written = picture_make(WIDTH, HEIGHT, 3);
    file from = write_jpeg(&written, &ways[1], 0, 0);
    for (int32_t shrink = 2; shrink <= 8; shrink *= 2) {
        picture read = decoder_decode(ops, &from, 3, shrink);
        picture small = picture_make((WIDTH + shrink - 1) / shrink,
                                     (HEIGHT + shrink - 1) / shrink, 3);
        pictures_near(&small, &read, 20);
        picture_free(&small);
        picture_free(&read);
    }
    picture_free(&written);
    free(from.bytes);
}

TEST_EACH(turns_as_the_camera_says, 16) {
    int orientation = _i / 2 + 1;
    picture written = picture_make(WIDTH, HEIGHT, 3);
    file plain = write_jpeg(&written, &ways[1], 0, 0);
    file turned = write_jpeg(&written, &ways[1], orientation, _i % 2);
    decoder_turns(decoder_open("jpeg"), &plain, &turned, orientation);
    picture_free(&written);
    free(plain.bytes);
    free(turned.bytes);
}

/* Four inks as Adobe's programs write them, inverted: no black gives the colours. */
TEST(four_inks) {
    static const way cmyk = {"CMYK", JCS_CMYK, 4, 1, 1, 0, 0};
    const dlc_decoder_ops *ops = decoder_open("jpeg");
    picture colours = picture_make(WIDTH, HEIGHT, 3);
    picture inks = {WIDTH, HEIGHT, 4, malloc((size_t)WIDTH * HEIGHT * 4)};
    ck_assert_ptr_nonnull(inks.pixels);
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++) {
        memcpy(inks.pixels + 4 * i, colours.pixels + 3 * i, 3);
        inks.pixels[4 * i + 3] = 255;
    }
    file from = write_jpeg(&inks, &cmyk, 0, 0);
    ck_assert_int_eq(decoder_inspect(ops, &from).channels, 3);
    picture read = decoder_decode(ops, &from, 3, 1);
    pictures_near(&colours, &read, 12);
    decoder_regions(ops, &from);
    picture_free(&read);
    picture_free(&inks);
    picture_free(&colours);
    free(from.bytes);
}

TEST(encodes) {
    decoder_encodes(decoder_open("jpeg"), 98, 24);
}

TEST_EACH(damage, 2) {
    const dlc_decoder_ops *ops = decoder_open("jpeg");
    picture written = picture_make(64, 48, 3);
    file from = write_jpeg(&written, &ways[_i ? 6 : 1], 6, 0);
    decoder_mutations(ops, &from);
    decoder_cuts(ops, &from);
    picture_free(&written);
    free(from.bytes);
}

/* A progressive file may have as many scans as it likes, each as slow as the picture is
 * large: the last one is repeated here. */
TEST(endless_scans) {
    const dlc_decoder_ops *ops = decoder_open("jpeg");
    picture written = picture_make(64, 48, 3);
    file from = write_jpeg(&written, &ways[6], 0, 0);
    size_t last = from.count - 2;
    while (!(from.bytes[last] == 0xff && from.bytes[last + 1] == 0xda))
        last--;
    size_t scan = from.count - 2 - last, times = 1000;
    unsigned char *bytes = malloc(last + times * scan + 2);
    ck_assert_ptr_nonnull(bytes);
    memcpy(bytes, from.bytes, last);
    for (size_t i = 0; i < times; i++)
        memcpy(bytes + last + i * scan, from.bytes + last, scan);
    memcpy(bytes + last + times * scan, from.bytes + from.count - 2, 2);
    ck_assert_int_eq(decoder_try(ops, bytes, last + times * scan + 2), DLC_ERR_DATA);
    picture_free(&written);
    free(bytes);
    free(from.bytes);
}
