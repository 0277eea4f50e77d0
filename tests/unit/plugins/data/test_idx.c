/* Tests the data source "idx": the files that it reads, and every kind of damage that
 * it must refuse. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/status.h"
#include "source.h"
#include "support/plugins.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

#define FILE_MOST 4096

typedef struct bytes {
    unsigned char at[FILE_MOST];
    size_t size;
} bytes;

static void add(bytes *to, const void *from, size_t n) {
    ck_assert_uint_le(to->size + n, FILE_MOST);
    memcpy(to->at + to->size, from, n);
    to->size += n;
}

static void add_big_endian(bytes *to, uint32_t word) {
    unsigned char four[] = {(unsigned char)(word >> 24), (unsigned char)(word >> 16),
                            (unsigned char)(word >> 8), (unsigned char)word};
    add(to, four, 4);
}

static bytes header(unsigned char type, unsigned char rank, const uint32_t *dims) {
    bytes made = {{0, 0, type, rank}, 4};
    for (unsigned i = 0; i < rank; i++)
        add_big_endian(&made, dims[i]);
    return made;
}

/* Five images of 3 x 4: element k of image i is 20 i + k. */
static bytes small_images(void) {
    bytes made = header(8, 3, (const uint32_t[]){5, 3, 4});
    for (unsigned i = 0; i < 60; i++)
        add(&made, &(unsigned char){(unsigned char)(i / 12 * 20 + i % 12)}, 1);
    return made;
}

/* Their labels: 4 3 2 1 0. */
static bytes small_labels(void) {
    bytes made = header(8, 1, (const uint32_t[]){5});
    add(&made, "\4\3\2\1\0", 5);
    return made;
}

static bytes packed(const bytes *plain) {
    bytes made = {.size = FILE_MOST};
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)plain->at,
                  .avail_in = (unsigned)plain->size,
                  .next_out = made.at,
                  .avail_out = FILE_MOST};
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    made.size = z.total_out;
    deflateEnd(&z);
    return made;
}

/* Settings for the files "images" and "labels" of the scratch folder. */
static const char *const *settings(const char *more) {
    static char images[512], labels[512];
    static const char *sets[4];
    snprintf(images, sizeof images, "images=%s", scratch_path("images"));
    snprintf(labels, sizeof labels, "labels=%s", scratch_path("labels"));
    sets[0] = images;
    sets[1] = labels;
    sets[2] = more;
    sets[3] = NULL;
    return sets;
}

static void put(const bytes *images, const bytes *labels) {
    scratch_write("images", images->at, images->size);
    scratch_write("labels", labels->at, labels->size);
}

static void put_small(void) {
    bytes images = small_images(), labels = small_labels();
    put(&images, &labels);
}

static void refused(const char *detail) {
    source_refused("idx", settings(NULL), DLC_ERR_DATA, detail);
}

static void check_small(opened *o) {
    unsigned char data[4 * 12];
    int32_t label[4];
    const int64_t index[] = {4, 0, 2, 2};
    ck_assert_int_eq(o->info.samples, 5);
    ck_assert_int_eq(o->info.dtype, DLC_U8);
    ck_assert_int_eq(o->info.shape.rank, 3);
    ck_assert_int_eq(o->info.shape.dims[0], 1);
    ck_assert_int_eq(o->info.shape.dims[1], 3);
    ck_assert_int_eq(o->info.shape.dims[2], 4);
    ck_assert_int_eq(o->ops->read(o->source, 4, index, data, label), DLC_OK);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(label[i], 4 - index[i]);
        for (int k = 0; k < 12; k++)
            ck_assert_int_eq(data[i * 12 + k], index[i] * 20 + k);
    }
}

TEST_SETTINGS(.timeout = 30, .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

/* ---- Files that are read ------------------------------------------------------ */

TEST(plain) {
    opened o;
    put_small();
    ck_assert_int_eq(source_open("idx", 0, settings(NULL), &o), DLC_OK);
    check_small(&o);
    ck_assert_int_eq(o.info.classes, 5); /* largest label + 1 */
    source_close(&o);
}

TEST(gzip_by_content) {
    opened o;
    bytes images = small_images(), labels = small_labels();
    bytes images_gz = packed(&images);
    put(&images_gz, &labels); /* one is compressed; no name ends with .gz */
    ck_assert_int_eq(source_open("idx", 0, settings("classes=7"), &o), DLC_OK);
    check_small(&o);
    ck_assert_int_eq(o.info.classes, 7);
    source_close(&o);
}

TEST(four_dimensions) {
    opened o;
    bytes images = header(8, 4, (const uint32_t[]){2, 3, 1, 2});
    bytes labels = header(8, 1, (const uint32_t[]){2});
    unsigned char data[6];
    int32_t label;
    add(&images, "abcdefABCDEF", 12);
    add(&labels, "\0\1", 2);
    put(&images, &labels);
    ck_assert_int_eq(source_open("idx", 0, settings(NULL), &o), DLC_OK);
    ck_assert_int_eq(o.info.shape.dims[0], 3);
    ck_assert_int_eq(o.info.shape.dims[1], 1);
    ck_assert_int_eq(o.info.shape.dims[2], 2);
    ck_assert_int_eq(o.ops->read(o.source, 1, (const int64_t[]){1}, data, &label),
                     DLC_OK);
    ck_assert_mem_eq(data, "ABCDEF", 6);
    source_close(&o);
}

/* Dimensions that need two bytes. */
TEST(more_than_a_byte) {
    opened o;
    unsigned char data;
    int32_t label;
    bytes images = header(8, 3, (const uint32_t[]){300, 1, 1});
    bytes labels = header(8, 1, (const uint32_t[]){300});
    for (int i = 0; i < 300; i++) {
        add(&images, &(unsigned char){(unsigned char)i}, 1);
        add(&labels, &(unsigned char){(unsigned char)(i % 7)}, 1);
    }
    put(&images, &labels);
    ck_assert_int_eq(source_open("idx", 0, settings(NULL), &o), DLC_OK);
    ck_assert_int_eq(o.info.samples, 300);
    ck_assert_int_eq(o.ops->read(o.source, 1, (const int64_t[]){299}, &data, &label),
                     DLC_OK);
    ck_assert_int_eq(data, 299 - 256);
    ck_assert_int_eq(label, 299 % 7);
    source_close(&o);
}

static bytes float_images(const float *values) {
    bytes made = header(0x0d, 3, (const uint32_t[]){2, 1, 2});
    for (int i = 0; i < 4; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        add_big_endian(&made, bits);
    }
    return made;
}

TEST(floats) {
    opened o;
    const float values[] = {1.5f, -2.25f, 0.0f, 1e-30f};
    bytes images = float_images(values);
    bytes labels = header(8, 1, (const uint32_t[]){2});
    float data[4];
    int32_t label[2];
    add(&labels, "\1\0", 2);
    put(&images, &labels);
    ck_assert_int_eq(source_open("idx", 0, settings(NULL), &o), DLC_OK);
    ck_assert_int_eq(o.info.dtype, DLC_F32);
    ck_assert_int_eq(o.ops->read(o.source, 2, (const int64_t[]){0, 1}, data, label),
                     DLC_OK);
    ck_assert_mem_eq(data, values, sizeof values);
    source_close(&o);
}

TEST(older_host) {
    opened o;
    put_small();
    ck_assert_int_eq(source_open("idx", 0, settings(NULL), &o), DLC_OK);
    dlc_data_info info;
    memset(&info, 0x55, sizeof info);
    info.size = offsetof(dlc_data_info,
                         classes); /* a host without the field `classes` */
    ck_assert_int_eq(o.ops->describe(o.source, &info), DLC_OK);
    ck_assert_int_eq(info.samples, 5);
    ck_assert_int_eq(info.classes, 0x55555555);
    source_close(&o);
}

/* ---- Files that are refused ----------------------------------------------------- */

static const struct {
    size_t at;
    unsigned char value;
    const char *detail;
} image_edits[] = {
    {0, 1, "bytes 0 and 1 are 01 00"},
    {1, 9, "bytes 0 and 1 are 00 09"},
    {2, 9, "byte 2 gives element type 0x09"},
    {2, 13, "by the dimensions in its header it should have 256"},
    {3, 0, "byte 3 gives 0 dimensions"},
    {3, 5, "byte 3 gives 5 dimensions"},
    {3, 1, "by the dimensions in its header it should have 13"},
    {7, 0, "dimension 0 at byte 4 is 0"},
    {15, 0, "dimension 2 at byte 12 is 0"},
    {7, 6, "it should have 88"},
    {4, 255, "it was cut short or damaged"},
};

TEST_EACH(wrong_images, COUNT(image_edits)) {
    bytes images = small_images(), labels = small_labels();
    images.at[image_edits[_i].at] = image_edits[_i].value;
    put(&images, &labels);
    refused(image_edits[_i].detail);
    ck_contains(dlc_detail(), scratch_path("images"));
}

TEST(one_dimension_images) {
    bytes labels = small_labels();
    put(&labels, &labels);
    refused("but images have 3");
}

TEST(impossible_dimensions) {
    const uint32_t most = 0xffffffffu;
    bytes images = header(8, 4, (const uint32_t[]){most, most, most, most});
    bytes labels = small_labels();
    add(&images, "x", 1);
    put(&images, &labels);
    refused("impossibly large");
}

TEST(wrong_labels) {
    bytes images = small_images();
    put(&images, &images);
    refused("but labels are 08 01");

    bytes six = header(8, 1, (const uint32_t[]){6});
    add(&six, "\0\0\0\0\0\0", 6);
    put(&images, &six);
    refused("has 6 labels, but");

    bytes labels = small_labels();
    put(&images, &labels);
    source_refused("idx", settings("classes=4"), DLC_ERR_DATA,
                   "label 4 at byte 8 (sample 0) is not one of the 4 classes 0 to 3");
}

TEST(not_finite) {
    const float values[] = {1, 2, -INFINITY, 3};
    bytes images = float_images(values), labels = header(8, 1, (const uint32_t[]){2});
    add(&labels, "\0\0", 2);
    put(&images, &labels);
    refused("the float32 at byte 24 is -inf");
}

TEST(no_files) {
    put_small();
    ck_assert_int_eq(remove(scratch_path("labels")), 0);
    refused("No such file");
    ck_contains(dlc_detail(), scratch_path("labels"));

    scratch_write("images", "", 0);
    refused("too short for an IDX file");

    ck_assert_int_eq(remove(scratch_path("images")), 0);
    ck_assert_int_eq(mkfifo(scratch_path("images"), 0600), 0); /* must not hang */
    refused("is not a file");

    source_refused("idx", (const char *[]){"images=/", "labels=/", NULL}, DLC_ERR_DATA,
                   "/ is not a file");
}

TEST(every_truncation) {
    bytes images = small_images(), labels = small_labels();
    bytes images_gz = packed(&images);
    scratch_write("labels", labels.at, labels.size);
    for (size_t n = 0; n < images.size; n++) {
        scratch_write("images", images.at, n);
        refused(n < 4    ? "too short"
                : n < 16 ? "within its header of 16"
                         : "should have");
    }
    for (size_t n = 0; n < images_gz.size; n++) {
        scratch_write("images", images_gz.at, n);
        refused("");
    }
    scratch_write("images", images.at, images.size);
    for (size_t n = 0; n < labels.size; n++) {
        scratch_write("labels", labels.at, n);
        refused("");
    }
}

TEST(every_bit_of_the_headers) {
    bytes images = small_images(), labels = small_labels();
    put(&images, &labels);
    for (size_t bit = 0; bit < 16 * 8; bit++) {
        images.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
        scratch_write("images", images.at, images.size);
        refused("");
        images.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    scratch_write("images", images.at, images.size);
    for (size_t bit = 0; bit < 8 * 8; bit++) {
        labels.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
        scratch_write("labels", labels.at, labels.size);
        refused("");
        labels.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* Some bits of gzip do not affect the contents (time, system, padding of the last
 * byte): the file is still read if they change. Any other change is refused. */
TEST(every_bit_of_gzip) {
    opened o;
    int harmless = 0;
    bytes images = small_images(), labels = small_labels();
    bytes images_gz = packed(&images);
    put(&images_gz, &labels);
    for (size_t bit = 0; bit < images_gz.size * 8; bit++) {
        images_gz.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
        scratch_write("images", images_gz.at, images_gz.size);
        dlc_status status = source_open("idx", 0, settings(NULL), &o);
        if (status == DLC_OK) {
            check_small(&o);
            source_close(&o);
            harmless++;
        } else {
            ck_assert_int_eq(status, DLC_ERR_DATA);
        }
        images_gz.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ck_assert_int_le(harmless,
                     32 + 8 + 8 + 1 + 7); /* time, flags, system, text, padding */
}

TEST(gzip_trailers) {
    bytes images = small_images(), labels = small_labels();
    bytes images_gz = packed(&images);
    /* The extra bytes repeat the length at the end of the gzip trailer. */
    add(&images_gz, images_gz.at + images_gz.size - 4, 4);
    put(&images_gz, &labels);
    refused("after it that does not belong there");

    images_gz = packed(&images);
    memset(images_gz.at + images_gz.size - 4, 0xff, 4);
    put(&images_gz, &labels);
    refused("ask for 76 bytes, but by its gzip trailer it has 4294967295");

    images_gz = packed(&images);
    images_gz.at[images_gz.size - 4] -= 1;
    put(&images_gz, &labels);
    refused("ask for 76 bytes, but by its gzip trailer it has 75");

    /* One byte more than the header asks for, while the trailer agrees with the header.
     */
    add(&images, "x", 1);
    images_gz = packed(&images);
    images_gz.at[images_gz.size - 4] -= 1;
    put(&images_gz, &labels);
    refused("it holds more than its header asks for");
}

/* ---- Sizes that the data does not have --------------------------------------------
 */

#define MIB ((size_t)1 << 20)
#define CLAIMED ((uint32_t)2000000000u) /* bytes */

static size_t peak_bytes(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss * 1024;
}

/* A compressed IDX file whose header and trailer agree on CLAIMED bytes. Between them
 * are 3 MiB of noise, which could hold that much, or a hole. */
static void put_claim(const bytes *labels, int hole) {
    size_t noise = 3 * MIB, size = hole ? CLAIMED : noise;
    bytes claim = header(8, 3, (const uint32_t[]){CLAIMED / 100 / 100, 100, 100});
    unsigned char *file = malloc(noise), end[4];
    ck_assert_ptr_nonnull(file);
    uint32_t random = 1, whole = CLAIMED + 16;
    for (size_t i = 0; i < noise; i++)
        file[i] = (unsigned char)((random = random * 1664525u + 1013904223u) >> 24);
    z_stream z = {.next_in = claim.at,
                  .avail_in = (unsigned)claim.size,
                  .next_out = file,
                  .avail_out = (unsigned)noise};
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_SYNC_FLUSH), Z_OK);
    const char *path = scratch_write("images", file, hole ? z.total_out : noise);
    deflateEnd(&z);
    free(file);
    for (int i = 0; i < 4; i++)
        end[i] = (unsigned char)(whole >> 8 * i);
    FILE *images = fopen(path, "r+b");
    ck_assert_ptr_nonnull(images);
    ck_assert_int_eq(fseeko(images, (off_t)size - 4, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(end, 1, sizeof end, images), sizeof end);
    ck_assert_int_eq(fclose(images), 0);
    scratch_write("labels", labels->at, labels->size);
}

/* A header that claims 2 GB allocates no memory by itself. */
TEST(claim_of_gigabytes) {
    bytes labels = small_labels();
    for (int hole = 0; hole < 2; hole++) {
        put_claim(&labels, hole);
        size_t before = peak_bytes();
        refused("contents, length and checksum don't match");
        ck_assert_uint_lt(peak_bytes() - before, 200 * MIB);
    }
}

/* If the system cannot even reserve the memory, the error says so. */
TEST(claim_without_room) {
    struct rlimit before;
    bytes labels = small_labels();
    if (SANITIZED || getenv("CK_FORK")) /* they need the memory themselves */
        return;
    put_claim(&labels, 0);
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit limit = {CLAIMED, before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    source_refused("idx", settings(NULL), DLC_ERR_NOMEM, "2000000016 bytes for");
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
}

/* A few bytes cannot unpack to a gigabyte, nor to 100 kB. */
TEST(claim_beyond_deflate) {
    const uint32_t sides[] = {1000, 10};
    bytes labels = small_labels();
    for (int i = 0; i < 2; i++) {
        bytes images = header(8, 3, (const uint32_t[]){1000, sides[i], sides[i]});
        bytes images_gz = packed(&images);
        uint32_t size = 16 + 1000 * sides[i] * sides[i];
        for (int k = 0; k < 4; k++)
            images_gz.at[images_gz.size - 4 + k] = (unsigned char)(size >> 8 * k);
        put(&images_gz, &labels);
        refused("compressed bytes can hold");
    }
}

/* A hole of 6 GB after an intact header, compressed or not, is never read. */
TEST(claim_of_a_hole) {
    bytes images = small_images(), labels = small_labels();
    bytes images_gz = packed(&images);
    for (int zipped = 0; zipped < 2; zipped++) {
        put(zipped ? &images_gz : &images, &labels);
        ck_assert_int_eq(truncate(scratch_path("images"), (off_t)6 << 30), 0);
        size_t before = peak_bytes();
        refused(zipped ? "but it has 6442450944 even compressed"
                       : "has 6442450944 bytes");
        ck_assert_uint_lt(peak_bytes() - before, 100 * MIB);
    }
}

TEST(no_memory) {
    bytes images = small_images(), labels = small_labels();
    bytes images_gz = packed(&images), labels_gz = packed(&labels);
    put(&images_gz, &labels_gz);
    source_starved("idx", settings(NULL));
}
