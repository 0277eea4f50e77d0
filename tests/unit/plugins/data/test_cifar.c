/* Tests the data source "cifar": the files that it reads, and those that it must
 * refuse. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "source.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

#define PIXELS 3072
#define RECORDS_MOST 8

/* A file of `count` records with one or two label bytes; the records are numbered
 * from `first` on. Label: number % 10, or coarse number % 20 and fine 99 - number.
 * Pixel k: 7 number + k. */
static unsigned char file[RECORDS_MOST * (2 + PIXELS)];

static size_t make(int count, int first, size_t labels) {
    unsigned char *at = file;
    for (int number = first; number < first + count; number++) {
        if (labels == 2) {
            *at++ = (unsigned char)(number % 20);
            *at++ = (unsigned char)(99 - number);
        } else {
            *at++ = (unsigned char)(number % 10);
        }
        for (int k = 0; k < PIXELS; k++)
            *at++ = (unsigned char)(7 * number + k);
    }
    return (size_t)(at - file);
}

static void put(const char *name, int count, int first, size_t labels) {
    size_t size = make(count, first, labels);
    scratch_write(name, file, size);
}

/* Settings: the scratch folder, and more. */
static const char *const *settings(const char *one, const char *two) {
    static char folder[512];
    static const char *sets[4];
    snprintf(folder, sizeof folder, "folder=%s", scratch_path(""));
    sets[0] = folder;
    sets[1] = one;
    sets[2] = two;
    sets[3] = NULL;
    return sets;
}

static void check_sample(opened *o, int64_t number, int32_t label) {
    unsigned char data[PIXELS], expected[PIXELS];
    int32_t got;
    ck_assert_int_eq(o->ops->read(o->source, 1, &number, data, &got), DLC_OK);
    ck_assert_int_eq(got, label);
    for (int k = 0; k < PIXELS; k++)
        expected[k] = (unsigned char)(7 * number + k);
    ck_assert_mem_eq(data, expected, PIXELS);
}

static void check_info(const opened *o, int64_t samples, int32_t classes) {
    ck_assert_int_eq(o->info.samples, samples);
    ck_assert_int_eq(o->info.classes, classes);
    ck_assert_int_eq(o->info.dtype, DLC_U8);
    ck_assert_int_eq(o->info.shape.rank, 3);
    ck_assert_int_eq(o->info.shape.dims[0], 3);
    ck_assert_int_eq(o->info.shape.dims[1], 32);
    ck_assert_int_eq(o->info.shape.dims[2], 32);
}

TEST_SETTINGS(.timeout = 30, .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

TEST(several_files) {
    opened o;
    put("a.bin", 3, 0, 1);
    put("b.bin", 1, 3, 1);
    put("c.bin", 4, 4, 1);
    char files[512];
    snprintf(files, sizeof files, "files=a.bin, %s ,c.bin", scratch_path("b.bin"));
    ck_assert_int_eq(source_open("cifar", 0, settings(files, NULL), &o), DLC_OK);
    check_info(&o, 8, 10);
    for (int number = 7; number >= 0; number--)
        check_sample(&o, number, number);
    unsigned char data[2 * PIXELS];
    int32_t labels[2];
    ck_assert_int_eq(o.ops->read(o.source, 2, (const int64_t[]){5, 5}, data, labels),
                     DLC_OK);
    ck_assert_mem_eq(data, data + PIXELS, PIXELS);
    source_close(&o);
}

TEST(default_files) {
    opened o;
    for (int i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        put(name, 1, i - 1, 1);
    }
    ck_assert_int_eq(source_open("cifar", 0, settings(NULL, NULL), &o), DLC_OK);
    check_info(&o, 5, 10);
    check_sample(&o, 4, 4);
    source_close(&o);
}

TEST(hundred_classes) {
    opened o;
    put("train.bin", 6, 0, 2);
    ck_assert_int_eq(source_open("cifar", 0, settings("classes=100", NULL), &o),
                     DLC_OK);
    check_info(&o, 6, 100);
    for (int number = 0; number < 6; number++)
        check_sample(&o, number, 99 - number);
    source_close(&o);
}

TEST(missing_files) {
    put("data_batch_1.bin", 1, 0, 1);
    source_refused("cifar", settings(NULL, NULL), DLC_ERR_DATA,
                   "data_batch_2.bin: No such file");
    source_refused("cifar", settings("files=data_batch_1.bin,.", NULL), DLC_ERR_DATA,
                   "is not a file");
    ck_assert_int_eq(mkfifo(scratch_path("pipe"), 0600), 0); /* must not hang */
    source_refused("cifar", settings("files=pipe", NULL), DLC_ERR_DATA,
                   "is not a file");
    scratch_write("empty.bin", "", 0);
    source_refused("cifar", settings("files=empty.bin", NULL), DLC_ERR_DATA,
                   "has 0 bytes");
}

TEST(empty_names) {
    const char *const lists[] = {"files=,", "files=a.bin,", "files=,a.bin",
                                 "files=a.bin, ,b.bin"};
    put("a.bin", 1, 0, 1);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        source_refused("cifar", settings(lists[i], NULL), DLC_ERR_CONFIG,
                       "there is an empty name in the list");
}

/* At every byte around the ends of the two records, and at many in between. */
TEST(truncations) {
    put("a.bin", 1, 0, 1);
    size_t size = make(2, 0, 1);
    for (size_t n = 0; n < size; n++) {
        size_t at = n % (1 + PIXELS);
        if (n == size / 2 || (n % 97 && at > 3 && at < PIXELS - 3))
            continue; /* one whole record, or nothing new */
        scratch_write("b.bin", file, n);
        source_refused("cifar", settings("files=a.bin,b.bin", NULL), DLC_ERR_DATA,
                       "no multiple of a CIFAR-10 record's 3073");
    }
}

TEST(labels_out_of_range) {
    for (int bit = 0; bit < 8; bit++) {
        opened o;
        size_t size = make(3, 0, 1);
        size_t at = 2 * (1 + PIXELS);
        file[at] ^= (unsigned char)(1 << bit);
        scratch_write("b.bin", file, size);
        put("a.bin", 1, 0, 1);
        if (bit >= 3) {
            source_refused("cifar", settings("files=a.bin,b.bin", NULL), DLC_ERR_DATA,
                           "at byte 6146 (record 2) is not one of 0 to 9");
            ck_contains(dlc_detail(), "b.bin");
        } else { /* still a valid label; there is no checksum */
            ck_assert_int_eq(
                source_open("cifar", 0, settings("files=a.bin,b.bin", NULL), &o),
                DLC_OK);
            check_sample(&o, 0, 0);
            source_close(&o);
        }
    }
}

TEST(labels_out_of_range_100) {
    size_t size = make(3, 0, 2);
    file[2 + PIXELS] = 20;
    scratch_write("train.bin", file, size);
    source_refused("cifar", settings("classes=100", NULL), DLC_ERR_DATA,
                   "label 20 at byte 3074 (record 1) is not one of 0 to 19");
    size = make(3, 0, 2);
    file[2 + PIXELS + 1] = 100;
    scratch_write("train.bin", file, size);
    source_refused("cifar", settings("classes=100", NULL), DLC_ERR_DATA,
                   "label 100 at byte 3075 (record 1) is not one of 0 to 99");
}

TEST(cifar10_read_as_cifar100) {
    put("train.bin", 6, 0, 1);
    source_refused("cifar", settings("classes=100", NULL), DLC_ERR_DATA,
                   "no multiple of a CIFAR-100 record's 3074");
}

TEST(no_memory) {
    put("a.bin", 2, 0, 1);
    put("b.bin", 1, 2, 1);
    source_starved("cifar", settings("files=a.bin,b.bin", NULL));
}
