/* Tests the data source "idx" with compressed files that are too large to decompress in
 * one go: they are decompressed in blocks, and checked like others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/status.h"
#include "source.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

enum { SIDE = 3832, IMAGE = SIDE * SIDE, COUNT = 5, HEADER = 16 };
enum { PLAIN = HEADER + COUNT * IMAGE, PACKED_MOST = PLAIN + PLAIN / 64 };

static const unsigned char head[HEADER] = {
    0, 0, 8,         3,          0, 0, 0,         COUNT,
    0, 0, SIDE >> 8, SIDE & 255, 0, 0, SIDE >> 8, SIDE & 255};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, COUNT, 4, 3, 2, 1, 0};

/* The byte at a place of the unpacked file. */
static unsigned char byte_at(size_t at) {
    return at < HEADER ? head[at] : at % 1000 == 1 ? (unsigned char)(at / 1000) : 0;
}

/* Five images of 14 MiB, stored without compression and followed by `more` zeros. */
static unsigned char *pack(size_t more, size_t *size) {
    unsigned char *whole = calloc(1, PLAIN + more), *made = malloc(PACKED_MOST);
    ck_assert_ptr_nonnull(whole);
    ck_assert_ptr_nonnull(made);
    for (size_t i = 0; i < PLAIN; i++)
        whole[i] = byte_at(i);
    z_stream z = {.next_in = whole,
                  .avail_in = (unsigned)(PLAIN + more),
                  .next_out = made,
                  .avail_out = PACKED_MOST};
    ck_assert_int_eq(deflateInit2(&z, 0, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    *size = z.total_out;
    deflateEnd(&z);
    free(whole);
    return made;
}

static const char *const *settings(const unsigned char *file, size_t size) {
    static char image_set[512], label_set[512];
    static const char *const sets[] = {image_set, label_set, NULL};
    snprintf(image_set, sizeof image_set, "images=%s",
             scratch_write("images", file, size));
    snprintf(label_set, sizeof label_set, "labels=%s",
             scratch_write("labels", labels, sizeof labels));
    return sets;
}

static void refused(const unsigned char *file, size_t size, const char *detail) {
    source_refused("idx", settings(file, size), DLC_ERR_DATA, detail);
}

TEST_SETTINGS(.timeout = 60, .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

TEST(every_byte) {
    size_t size;
    opened o;
    unsigned char *file = pack(0, &size), *image = malloc(IMAGE);
    ck_assert_ptr_nonnull(image);
    ck_assert_int_eq(source_open("idx", 0, settings(file, size), &o), DLC_OK);
    for (int64_t n = 0; n < COUNT; n++) {
        int32_t label;
        ck_assert_int_eq(o.ops->read(o.source, 1, &n, image, &label), DLC_OK);
        ck_assert_int_eq(label, 4 - n);
        for (size_t i = 0; i < IMAGE; i++)
            if (image[i] != byte_at(HEADER + (size_t)n * IMAGE + i))
                ck_abort_msg("byte %zu of image %lld is wrong", i, (long long)n);
    }
    source_close(&o);
    free(image);
    free(file);
}

TEST(damage) {
    size_t size;
    unsigned char *file = pack(0, &size);
    file[size / 2] ^= 1;
    refused(file, size, "contents, length and checksum don't match");
    file[size / 2] ^= 1;
    memcpy(file + size, file + size - 4, 4); /* the length, as in the trailer */
    refused(file, size + 4, "after it that does not belong there");
    memmove(file + size - 1000, file + size - 8, 8); /* the whole trailer */
    refused(file, size - 992, "was cut short");
    free(file);

    file = pack(1, &size);
    file[size - 4] -= 1; /* the length in the trailer agrees with the header */
    refused(file, size, "it holds more than its header asks for");
    free(file);
}
