/* Decodes files, whole, in parts and damaged. */
#include "decoding.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "support/plugins.h"
#include "support/sanitized.h"

enum { SIDE_MOST = 2000 };

picture picture_make(int32_t width, int32_t height, int32_t channels) {
    picture made = {width, height, channels,
                    malloc((size_t)width * (size_t)height * (size_t)channels)};
    unsigned char *at = made.pixels;
    ck_assert_ptr_nonnull(at);
    for (int32_t y = 0; y < height; y++)
        for (int32_t x = 0; x < width; x++)
            for (int32_t c = 0; c < channels; c++) {
                int32_t ramp = c == 0   ? 255 * x / width
                               : c == 1 ? 255 * y / height
                                        : 255 * (x + y) / (width + height);
                *at++ = (unsigned char)ramp;
            }
    return made;
}

void picture_free(picture *of) {
    free(of->pixels);
    *of = (picture){0};
}

const dlc_decoder_ops *decoder_open(const char *name) {
    return plugin_find(DLC_KIND_DECODER, name)->ops;
}

dlc_image_info decoder_inspect(const dlc_decoder_ops *ops, const file *from) {
    dlc_image_info info = {.size = sizeof info};
    ck_assert_int_eq(ops->matches(from->bytes, 16), 1);
    dlc_status status = ops->inspect(from->bytes, from->count, &info);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return info;
}

/* The arguments that decode the whole picture. */
static dlc_decode_args whole(const dlc_image_info *info, const unsigned char *bytes,
                             size_t count, int32_t channels, int32_t shrink) {
    return (dlc_decode_args){.size = sizeof(dlc_decode_args),
                             .channels = channels,
                             .bytes = bytes,
                             .count = count,
                             .shrink = shrink,
                             .width = (info->width + shrink - 1) / shrink,
                             .height = (info->height + shrink - 1) / shrink};
}

static picture room_for(const dlc_decode_args *args) {
    picture made = {args->width, args->height, args->channels, NULL};
    /* Exactly as large as it must be: a sanitizer notices what is beyond. */
    made.pixels = malloc((size_t)made.width * (size_t)made.height *
                         (size_t)made.channels);
    ck_assert_ptr_nonnull(made.pixels);
    return made;
}

picture decoder_decode(const dlc_decoder_ops *ops, const file *from, int32_t channels,
                       int32_t shrink) {
    dlc_image_info info = decoder_inspect(ops, from);
    dlc_decode_args args = whole(&info, from->bytes, from->count, channels, shrink);
    picture made = room_for(&args);
    dlc_status status = ops->decode(&args, made.pixels);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return made;
}

dlc_status decoder_try(const dlc_decoder_ops *ops, const unsigned char *bytes,
                       size_t count) {
    dlc_image_info info = {.size = sizeof info};
    unsigned char *copy = malloc(count + (count == 0));
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, count);
    dlc_fail(DLC_OK, "%s", "");
    dlc_status status = ops->inspect(copy, count, &info);
    if (status == DLC_OK && info.width <= SIDE_MOST && info.height <= SIDE_MOST) {
        dlc_decode_args args = whole(&info, copy, count, 3, 1);
        picture made = room_for(&args);
        status = ops->decode(&args, made.pixels);
        picture_free(&made);
    }
    if (status != DLC_OK)
        ck_assert_str_ne(dlc_detail(), "");
    free(copy);
    return status;
}

void pictures_near(const picture *a, const picture *b, int most) {
    ck_assert_int_eq(a->width, b->width);
    ck_assert_int_eq(a->height, b->height);
    ck_assert_int_eq(a->channels, b->channels);
    size_t bytes = (size_t)a->width * (size_t)a->height * (size_t)a->channels;
    for (size_t i = 0; i < bytes; i++)
        if (abs(a->pixels[i] - b->pixels[i]) > most)
            ck_abort_msg("byte %zu (row %zu) is %d, not about %d", i,
                         i / ((size_t)a->width * (size_t)a->channels), b->pixels[i],
                         a->pixels[i]);
}

static void compare_region(const dlc_decoder_ops *ops, const picture *all,
                           const dlc_decode_args *args) {
    picture part = room_for(args);
    dlc_status status = ops->decode(args, part.pixels);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    size_t row = (size_t)part.width * (size_t)part.channels;
    for (int32_t y = 0; y < part.height; y++) {
        size_t at = ((size_t)(args->y + y) * (size_t)all->width + (size_t)args->x) *
                    (size_t)all->channels;
        ck_assert_msg(memcmp(part.pixels + (size_t)y * row, all->pixels + at, row) == 0,
                      "row %d of %d x %d at %d, %d, shrunk by %d", y, part.width,
                      part.height, args->x, args->y, args->shrink);
    }
    picture_free(&part);
}

void decoder_regions(const dlc_decoder_ops *ops, const file *from) {
    enum { TIMES = SANITIZED ? 10 : 40 };
    dlc_random random = dlc_random_make(3, 0);
    dlc_image_info info = decoder_inspect(ops, from);
    for (int32_t shrink = 1; shrink <= info.shrink_max; shrink *= 2) {
        picture all = decoder_decode(ops, from, 3, shrink);
        for (int i = 0; i < TIMES; i++) {
            dlc_decode_args args = whole(&info, from->bytes, from->count, 3, shrink);
            args.x = (int32_t)dlc_random_below(&random, (uint64_t)all.width);
            args.y = (int32_t)dlc_random_below(&random, (uint64_t)all.height);
            args.width = 1 + (int32_t)dlc_random_below(&random,
                                                       (uint64_t)(all.width - args.x));
            args.height = 1 + (int32_t)dlc_random_below(
                                  &random, (uint64_t)(all.height - args.y));
            compare_region(ops, &all, &args);
        }
        picture_free(&all);
    }
}

void exif_make(int orientation, int big, unsigned char exif[EXIF_BYTES]) {
    static const unsigned char little[] = {'I', 'I',  42, 0, 8, 0, 0, 0, 1,
                                           0,   0x12, 1,  3, 0, 1, 0, 0, 0};
    static const unsigned char motorola[] = {'M', 'M', 0,    42, 0, 0, 0, 8, 0,
                                             1,   1,   0x12, 0,  3, 0, 0, 0, 1};
    memset(exif, 0, EXIF_BYTES);
    memcpy(exif, big ? motorola : little, sizeof little);
    exif[sizeof little + (big ? 1 : 0)] = (unsigned char)orientation;
}

/* Where the pixel that is looked at, at x, y, is stored, by the definition of EXIF. */
static void find_stored(const picture *stored, int orientation, int32_t x, int32_t y,
                        int32_t *sx, int32_t *sy) {
    int32_t right = stored->width - 1, bottom = stored->height - 1;
    const int32_t at[9][2] = {
        {0, 0},          {x, y}, {right - x, y},  {right - x, bottom - y},
        {x, bottom - y}, {y, x}, {y, bottom - x}, {right - y, bottom - x},
        {right - y, x}};
    *sx = at[orientation][0];
    *sy = at[orientation][1];
}

void decoder_turns(const dlc_decoder_ops *ops, const file *plain, const file *turned,
                   int orientation) {
    picture stored = decoder_decode(ops, plain, 3, 1);
    picture seen = decoder_decode(ops, turned, 3, 1);
    ck_assert_int_eq(seen.width, orientation >= 5 ? stored.height : stored.width);
    ck_assert_int_eq(seen.height, orientation >= 5 ? stored.width : stored.height);
    for (int32_t y = 0; y < seen.height; y++)
        for (int32_t x = 0; x < seen.width; x++) {
            int32_t sx, sy;
            find_stored(&stored, orientation, x, y, &sx, &sy);
            ck_assert_int_eq(
                memcmp(seen.pixels + 3 * (size_t)(y * seen.width + x),
                       stored.pixels + 3 * (size_t)(sy * stored.width + sx), 3),
                0);
        }
    decoder_regions(ops, turned);
    picture_free(&seen);
    picture_free(&stored);
}

static void encode_one(const dlc_decoder_ops *ops, int32_t channels, int32_t quality,
                       int most) {
    picture written = picture_make(61, 43, channels);
    dlc_encode_args args = {.size = sizeof args,
                            .width = written.width,
                            .height = written.height,
                            .channels = channels,
                            .quality = quality,
                            .pixels = written.pixels};
    unsigned char *bytes = NULL;
    uint64_t count = 0;
    ck_assert_int_eq(ops->encode(&args, &bytes, &count), DLC_OK);
    file made = {.bytes = bytes, .count = count};
    ck_assert_int_eq(decoder_inspect(ops, &made).channels, channels);
    picture read = decoder_decode(ops, &made, channels, 1);
    pictures_near(&written, &read, most);
    picture_free(&read);
    picture_free(&written);
    dlc_free(bytes);
}

void decoder_encodes(const dlc_decoder_ops *ops, int32_t quality, int most) {
    encode_one(ops, 1, quality, most);
    encode_one(ops, 3, quality, most);
}

void decoder_mutations(const dlc_decoder_ops *ops, const file *from) {
    enum { TIMES = 1000, CHANGES = 5 };
    unsigned char *bytes = malloc(from->count);
    ck_assert_ptr_nonnull(bytes);
    int refused = 0;
    for (uint64_t i = 0; i < TIMES; i++) {
        dlc_random random = dlc_random_make(i, 7);
        size_t room = i % 2 || from->count < 200 ? from->count : 200;
        memcpy(bytes, from->bytes, from->count);
        for (uint64_t change = 0; change <= i % CHANGES; change++) {
            unsigned char *byte = &bytes[dlc_random_below(&random, room)];
            *byte = (unsigned char)(*byte ^ (i % 3 ? 1u << dlc_random_below(&random, 8)
                                                   : dlc_random_below(&random, 256)));
        }
        refused += decoder_try(ops, bytes, from->count) != DLC_OK;
    }
    ck_assert_int_gt(refused, TIMES / 20); /* it does look at what it reads */
    free(bytes);
}

void decoder_cuts(const dlc_decoder_ops *ops, const file *from) {
    size_t step = from->count / 100 + 1, end = from->count * 9 / 10;
    for (size_t count = 0; count < end; count += step)
        ck_assert_int_ne(decoder_try(ops, from->bytes, count), DLC_OK);
}
