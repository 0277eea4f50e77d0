/* Tests the decoder of WebP files against files written by libwebp. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <webp/encode.h>

#include "base/status.h"
#include "decoding.h"
#include "support/scratch.h"

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

START_TEST(has_the_pixels) {
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
END_TEST

START_TEST(damage) {
    const dlc_decoder_ops *ops = decoder_open("webp");
    picture written = picture_make(64, 48, 3);
    file from = write_webp(&written, _i);
    decoder_mutations(ops, &from);
    decoder_cuts(ops, &from);
    picture_free(&written);
    free(from.bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("decoder.webp");
    TCase *tcase = tcase_create("webp");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, has_the_pixels, LOSSY, WAYS_END);
    tcase_add_loop_test(tcase, damage, LOSSY, WAYS_END);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
