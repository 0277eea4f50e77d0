/* Tests the source of NumPy's arrays: types, shapes, archives, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/status.h"
#include "source.h"
#include "support/scratch.h"
#include "support/test.h"

enum { ROOM = 1 << 16 };

static char folder[4200], archive[4200]; /* the settings */

/* ---- Writing arrays ------------------------------------------------------------ */

/* An archive that is being written, and its directory. */
static unsigned char bytes[ROOM], entries[ROOM];
static size_t used, entries_used, members;

static void setup(void) {
    scratch_setup();
    ck_assert_int_eq(mkdir(scratch_path("a"), 0777), 0);
    (void)snprintf(folder, sizeof folder, "path=%s", scratch_path("a"));
    (void)snprintf(archive, sizeof archive, "path=%s", scratch_path("a.npz"));
    used = entries_used = members = 0;
}

/* An array with any header, as version 1.0. */
static size_t make_array(unsigned char *to, const char *header, const void *data,
                         size_t count) {
    size_t length = strlen(header) + 1, all = (10 + length + 63) / 64 * 64;
    memset(to, ' ', all);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (unsigned char)((all - 10) & 255);
    to[9] = (unsigned char)((all - 10) >> 8);
    memcpy(to + 10, header, length - 1);
    to[all - 1] = '\n';
    memcpy(to + all, data, count);
    return all + count;
}

static const char *header_of(const char *type, const char *shape) {
    static char text[300];
    (void)snprintf(text, sizeof text,
                   "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type,
                   shape);
    return text;
}

static void put(const char *name, const char *header, const void *data, size_t count) {
    unsigned char array[ROOM];
    char path[300];
    (void)snprintf(path, sizeof path, "a/%s.npy", name);
    size_t all = make_array(array, header, data, count);
    scratch_write(path, array, all);
}

static unsigned char *append(unsigned char *to, uint64_t number, int count) {
    for (int i = 0; i < count; i++)
        *to++ = (unsigned char)(i < 8 ? number >> 8 * i & 255 : 0);
    return to;
}

/* Adds a member; a deflated one, or one with sizes of 64 bits, in extra data. */
static void add_bytes(const char *name, const unsigned char *data, size_t count,
                      int is_deflated, int is_wide) {
    unsigned char packed[ROOM];
    size_t length = strlen(name), packed_count = count;
    uLong sum = crc32(0, data, (uInt)count);
    memcpy(packed, data, count);
    if (is_deflated) {
        z_stream z = {0};
        ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, 0), Z_OK);
        z.next_in = (unsigned char *)(uintptr_t)data;
        z.avail_in = (uInt)count;
        z.next_out = packed;
        z.avail_out = sizeof packed;
        ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
        packed_count = z.total_out;
        deflateEnd(&z);
    }
    size_t begin = used;
    unsigned char *at = append(bytes + used, 0x04034b50, 4);
    at = append(at, 20 | (uint64_t)(is_deflated ? 8 : 0) << 32, 10);
    at = append(append(append(at, sum, 4), is_wide ? UINT32_MAX : packed_count, 4),
                is_wide ? UINT32_MAX : count, 4);
    at = append(append(at, length, 2), is_wide ? 20 : 0, 2);
    memcpy(at, name, length);
    at += length;
    if (is_wide)
        at = append(append(append(append(at, 1, 2), 16, 2), count, 8), packed_count, 8);
    memcpy(at, packed, packed_count);
    used = (size_t)(at - bytes) + packed_count;
    at = append(entries + entries_used, 0x02014b50, 4);
    at = append(at, 20, 2);
    at = append(at, 20 | (uint64_t)(is_deflated ? 8 : 0) << 32, 10);
    at = append(append(append(at, sum, 4), is_wide ? UINT32_MAX : packed_count, 4),
                is_wide ? UINT32_MAX : count, 4);
    at = append(append(at, length, 2), is_wide ? 28 : 0, 2);
    at = append(append(at, 0, 10), is_wide ? UINT32_MAX : begin, 4);
    memcpy(at, name, length);
    at += length;
    if (is_wide) {
        at = append(append(append(at, 1, 2), 24, 2), count, 8);
        at = append(append(at, packed_count, 8), begin, 8);
    }
    entries_used = (size_t)(at - entries);
    members++;
}

static void add(const char *name, const char *header, const void *data, size_t count,
                int is_deflated, int is_wide) {
    unsigned char array[ROOM];
    add_bytes(name, array, make_array(array, header, data, count), is_deflated,
              is_wide);
}

/* Writes the archive; its end in the form of zip64, or not. */
static void finish(int is_wide) {
    size_t begin = used;
    memcpy(bytes + used, entries, entries_used);
    unsigned char *at = bytes + used + entries_used;
    if (is_wide) {
        size_t end = (size_t)(at - bytes);
        at = append(append(append(at, 0x06064b50, 4), 44, 8), 0, 12);
        at = append(append(at, members, 8), members, 8);
        at = append(append(at, entries_used, 8), begin, 8);
        at = append(append(append(append(at, 0x07064b50, 4), 0, 4), end, 8), 1, 4);
    }
    at = append(append(at, 0x06054b50, 4), 0, 4);
    at = append(append(at, is_wide ? UINT16_MAX : members, 2),
                is_wide ? UINT16_MAX : members, 2);
    at = append(append(at, is_wide ? UINT32_MAX : entries_used, 4),
                is_wide ? UINT32_MAX : begin, 4);
    at = append(at, 3, 2);
    memcpy(at, "hey", 3); /* a comment */
    scratch_write("a.npz", bytes, (size_t)(at - bytes) + 3);
    used = entries_used = members = 0;
}

static opened open_with(const char *first, const char *second, const char *third) {
    opened o;
    dlc_status status = source_open("npy", 0,
                                    (const char *[]){first, second, third, NULL}, &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return o;
}

/* ---- Fields -------------------------------------------------------------------- */

/* Three grey images of bytes, three labels. */
static const unsigned char pixels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const unsigned char labels[3] = {2, 0, 1};

static void put_some(void) {
    put("x", header_of("|u1", "3, 2, 2"), pixels, sizeof pixels);
    put("y", header_of("|u1", "3,"), labels, sizeof labels);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = scratch_teardown);

TEST(images_and_labels) {
    put_some();
    opened o = open_with(folder, NULL, NULL);
    ck_assert_int_eq(o.info.samples, 3);
    ck_assert_int_eq(o.info.field_count, 2);
    ck_assert_str_eq(o.info.fields[0].name, "image");
    ck_assert_int_eq(o.info.fields[0].dtype, DLC_U8);
    ck_assert(dlc_shape_equal(&o.info.fields[0].shape, &(dlc_shape){3, {1, 2, 2}}));
    ck_assert_int_eq(o.info.fields[1].role, DLC_ROLE_CLASS);
    ck_assert_int_eq(o.info.fields[1].classes, 3);
    for (int32_t i = 0; i < 3; i++) {
        int32_t label = labels[i];
        source_holds(&o, i, "image", pixels + 4 * i, 4);
        source_holds(&o, i, "label", &label, sizeof label);
    }
    char name[5000];
    o.ops->name(o.source, 2, name, sizeof name);
    ck_contains(name, "/a: row 2");
    source_close(&o);
    o = open_with(folder, "classes=a,b,c,d", NULL);
    ck_assert_str_eq(o.info.fields[1].class_names[3], "d");
    ck_assert_int_eq(o.info.fields[1].classes, 4);
    source_close(&o);
}

/* Numbers of every type become float32, or labels. */
TEST(types) {
    static const struct {
        const char *type;
        unsigned char stored[16];
        size_t bytes;
        float value[2];
        int is_label; /* the first one is */
    } cases[] = {
        {"|b1", {1, 0}, 2, {1, 0}, 1},
        {"|i1", {5, 0xff}, 2, {5, -1}, 1},
        {"<i2", {1, 1, 0xfe, 0xff}, 4, {257, -2}, 1},
        {">u2", {1, 2, 0xff, 0xff}, 4, {258, 65535}, 1},
        {"<i4", {7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 8, {7, -1}, 1},
        {">i8",
         {[7] = 9, [8] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc},
         16,
         {9, -4},
         1},
        {"<f2", {0, 0x42, 0, 0xc1}, 4, {3, -2.5f}, 1},
        {">f2", {0x00, 0x01, 0x7b, 0xff}, 4, {0x1p-24f, 65504}, 0},
        {"<f4", {0, 0, 0x80, 0x3f, 0, 0, 0, 0xbf}, 8, {1, -0.5f}, 1},
        {">f4", {0x3f, 0xc0, 0, 0, 0xbf, 0, 0, 0}, 8, {1.5f, -0.5f}, 0},
        {"<f8", {[6] = 0x08, 0x40, [14] = 0xe0, 0xbf}, 16, {3, -0.5f}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t label = (int32_t)cases[i].value[0];
        put("v", header_of(cases[i].type, "1, 2"), cases[i].stored, cases[i].bytes);
        opened o = open_with(folder, "vector=v", NULL);
        ck_assert_int_eq(o.info.fields[0].role, DLC_ROLE_VECTOR);
        source_holds(&o, 0, "vector", cases[i].value, sizeof cases[i].value);
        source_close(&o);
        put("l", header_of(cases[i].type, "1,"), cases[i].stored, cases[i].bytes / 2);
        if (cases[i].is_label) {
            o = open_with(folder, "label=l", NULL);
            source_holds(&o, 0, "label", &label, sizeof label);
            source_close(&o);
        } else {
            source_refused("npy", (const char *[]){folder, "label=l", NULL},
                           DLC_ERR_DATA, "which is no whole number from 0 to 1e+08");
        }
    }
}

/* What losses leave out. */
TEST(what_does_not_count) {
    static const float classes[] = {NAN, 2, -1}, several[] = {0, NAN, 1, -1};
    put("l", header_of("<f4", "3,"), classes, sizeof classes);
    opened o = open_with(folder, "label=l", NULL);
    ck_assert_int_eq(o.info.fields[0].classes, 3);
    for (int32_t i = 0; i < 3; i++)
        source_holds(&o, i, "label", &(int32_t){i == 1 ? 2 : DLC_LABEL_NONE},
                     sizeof(int32_t));
    source_close(&o);
    put("s", header_of("<f4", "1, 4"), several, sizeof several);
    o = open_with(folder, "labels=s", NULL);
    source_holds(&o, 0, "labels", "\0\377\1\377", 4);
    source_close(&o);
    put("s", header_of("|u1", "1, 3"), "\1\377\0", 3);
    o = open_with(folder, "labels=s", NULL);
    source_holds(&o, 0, "labels", "\1\377\0", 3);
    source_close(&o);
    put("l", header_of("<i4", "1,"), &(int32_t){99999999}, 4);
    source_refused("npy", (const char *[]){folder, "label=l", NULL}, DLC_ERR_DATA,
                   "it has a label 99999999, but only 1 samples");
    put("l", header_of("<i2", "1,"), "\376\377", 2);
    source_refused("npy", (const char *[]){folder, "label=l", NULL}, DLC_ERR_DATA,
                   "has -2, which is no whole number from 0 to 1e+08, nor -1");
}

/* Two pixels of three channels; and of one, where nothing changes places. */
TEST(channels_last) {
    put("x", header_of("|u1", "2, 1, 2, 3"), pixels, sizeof pixels);
    opened o = open_with(folder, "layout=hwc", NULL);
    ck_assert_int_eq(o.info.fields[0].dtype, DLC_U8);
    ck_assert(dlc_shape_equal(&o.info.fields[0].shape, &(dlc_shape){3, {3, 1, 2}}));
    source_holds(&o, 1, "image", "\7\12\10\13\11\377", 6);
    source_close(&o);
    put("x", header_of("|u1", "3, 2, 2, 1"), pixels, sizeof pixels);
    o = open_with(folder, "layout=hwc", NULL);
    ck_assert(dlc_shape_equal(&o.info.fields[0].shape, &(dlc_shape){3, {1, 2, 2}}));
    source_holds(&o, 2, "image", pixels + 8, 4);
    source_close(&o);
    put("x", header_of("|u1", "3, 2, 2"), pixels, sizeof pixels);
    o = open_with(folder, "layout=hwc", NULL);
    source_holds(&o, 1, "image", pixels + 4, 4);
    source_close(&o);
}

/* A default is left out if it is something else. */
TEST(defaults) {
    float targets[] = {0.5, 1.5, 2.5};
    put_some();
    put("y", header_of("<f4", "3,"), targets, sizeof targets);
    opened o = open_with(folder, "vector=y", NULL);
    ck_assert_int_eq(o.info.field_count, 2);
    ck_assert_int_lt(source_field(&o, "label"), 0);
    source_holds(&o, 2, "vector", targets + 2, sizeof *targets);
    source_close(&o);
    o = open_with(folder, "vector=x, y", NULL);
    ck_assert_int_eq(o.info.field_count, 2);
    ck_assert_int_lt(source_field(&o, "image"), 0);
    source_close(&o);
}

/* Every role, in one archive with members of every kind. */
TEST(archives) {
    float image[2][12], changed[2][12];
    unsigned char several[2][3] = {{0, 1, 1}, {0, 0, 0}}, mask[8] = {0, 1, 2, 3, 4};
    double targets[2][2] = {{0.5, -1}, {2, 3}};
    int64_t label[2] = {1, 4}, tokens[6] = {10, 20, 30, 40, 50, 60};
    for (int i = 0; i < 24; i++)
        image[i / 12][i % 12] = (float)i;
    for (int i = 0; i < 24; i++) /* 2 x 2 pixels of 3 channels */
        changed[i / 12][i % 3 * 4 + i % 12 / 3] = (float)i;
    for (int wide = 0; wide < 2; wide++) {
        add("x.npy", header_of("<f4", "2, 2, 2, 3"), image, sizeof image, 0, wide);
        add("y.npy", header_of("<i8", "2, 1"), label, sizeof label, 1, wide);
        add("many.npy", header_of("|b1", "2, 3"), several, sizeof several, 1, wide);
        add("t 1.npy", header_of("<f8", "2, 2"), targets, sizeof targets, 0, 0);
        add("\303\274.npy", header_of("<f8", "2, 2"), targets, sizeof targets, 1, wide);
        add("m.npy", header_of("|u1", "2, 1, 2, 2"), mask, sizeof mask, 0, wide);
        add("w.npy", header_of("<i8", "2, 3"), tokens, sizeof tokens, 1, 0);
        finish(wide);
        opened o;
        const char *sets[] = {
            archive,  "layout=hwc", "labels=many", "vector= t 1 , \303\274",
            "mask=m", "tokens=w",   NULL};
        dlc_status status = source_open("npy", 0, sets, &o);
        ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
        ck_assert_int_eq(o.info.field_count, 7);
        ck_assert_int_eq(o.info.fields[2].classes, 3);
        for (int i = 0; i < 2; i++) {
            int32_t number = (int32_t)label[i], words[3];
            float numbers[2] = {(float)targets[i][0], (float)targets[i][1]};
            for (int w = 0; w < 3; w++)
                words[w] = (int32_t)tokens[3 * i + w];
            source_holds(&o, i, "image", changed[i], sizeof changed[i]);
            source_holds(&o, i, "label", &number, sizeof number);
            source_holds(&o, i, "labels", several[i], sizeof several[i]);
            source_holds(&o, i, "vector", numbers, sizeof numbers);
            source_holds(&o, i, "vector_2", numbers, sizeof numbers);
            source_holds(&o, i, "mask", mask + 4 * i, 4);
            source_holds(&o, i, "tokens", words, sizeof words);
        }
        source_close(&o);
    }
}

/* A row of them for each sample, or one alone, of any numbers. */
TEST(boxes) {
    static const float some[] = {1, 0, 1, 2,    3, -1, 0, 0, 0, 0,
                                 0, 2, 2, 4.5f, 5, 1,  1, 1, 2, 2};
    static const int16_t whole[] = {1, 0, 1, 2, 3, -1, 0, 0, 0, 0};
    put("x", header_of("|u1", "2, 2, 3"), pixels, sizeof pixels);
    put("b", header_of("<f4", "2, 2, 5"), some, sizeof some);
    put("one", header_of("<i2", "2, 5"), whole, sizeof whole);
    const char *sets[] = {folder, "image=x", "boxes=b", "classes=a,b", NULL};
    opened o;
    ck_assert_msg(source_open("npy", 0, sets, &o) == DLC_OK, "%s", dlc_detail());
    int32_t f = source_field(&o, "boxes");
    ck_assert_int_eq(o.info.fields[f].role, DLC_ROLE_BOXES);
    ck_assert_int_eq(o.info.fields[f].classes, 2);
    ck_assert_uint_eq(o.info.fields[f].flags, 0);
    ck_assert(dlc_shape_equal(&o.info.fields[f].shape, &(dlc_shape){2, {2, 5}}));
    source_holds(&o, 1, "boxes", some + 10, sizeof some / 2);
    source_close(&o);
    sets[2] = "boxes=one";
    sets[3] = NULL;
    ck_assert_msg(source_open("npy", 0, sets, &o) == DLC_OK, "%s", dlc_detail());
    ck_assert(dlc_shape_equal(&o.info.fields[f].shape, &(dlc_shape){2, {1, 5}}));
    ck_assert_int_eq(o.info.fields[f].classes, 0);
    source_holds(&o, 0, "boxes", some, 5 * sizeof *some);
    source_holds(&o, 1, "boxes", some + 5, 5 * sizeof *some);
    source_close(&o);
}

/* ---- Refusals ------------------------------------------------------------------ */

static void refused(const char *setting, const char *detail) {
    source_refused("npy", (const char *[]){folder, setting, NULL}, DLC_ERR_DATA,
                   detail);
}

TEST(arrays_that_do_not_fit) {
    float far = 3e9f;
    refused(NULL, "/a: it has neither x nor y");
    put_some();
    refused("label=z", "/a: there is no array z");
    refused("label=x", "the array x (uint8, 3 x 2 x 2) cannot be the field label");
    refused("image=y", "the array y (uint8, 3) cannot be the field image");
    refused("mask=y", "it needs three dimensions");
    refused("labels=y", "it needs two dimensions");
    refused("boxes=y",
            "it needs three dimensions: samples, boxes, and the five numbers");
    put("n", header_of("|u1", "3, 1, 4"), pixels, 12);
    refused("boxes=n",
            "it needs three dimensions: samples, boxes, and the five numbers");
    put("n", header_of("|u1", "3, 0, 5"), pixels, 0);
    refused("boxes=n", "it is empty, too large or has too many dimensions");
    refused("classes=a,b", "it has a label 2, but there are 2 names");
    put("n", header_of("|u1", "2, 2"), pixels, 4);
    refused("labels=n", "n has 2 rows, but x has 3");
    put("n", header_of("|u1", "3, 2"), pixels, 6);
    opened o = open_with(folder, "labels=n", NULL);
    dlc_value value;
    ck_assert_int_eq(source_read(&o, 0, "labels", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(),
                "n of sample 0 has 2, which is no whole number from 0 to");
    source_close(&o);
    put("n", header_of("<f4", "1,"), &far, 4);
    (void)unlink(scratch_path("a/x.npy"));
    refused("label=n", "has 3e+09, which is no whole number");
    source_refused("npy", (const char *[]){folder, "vector=,a", NULL}, DLC_ERR_CONFIG,
                   "vector: a name is empty");
    source_refused("npy", (const char *[]){"path=/nowhere/a.npz", NULL}, DLC_ERR_DATA,
                   "cannot open /nowhere/a.npz: No such file");
}

TEST(damaged_headers) {
    static const struct {
        const char *header, *detail;
    } cases[] = {
        {"", "no dictionary"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "Fortran's order"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "plain numbers"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (1,), }", "plain numbers"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }", "plain numbers"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
         "plain numbers"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", "damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2), }", "damaged shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,,), }", "damaged shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "damaged shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1), }",
         "damaged shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
         "damaged shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999,9999999999), }",
         "no rows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }",
         "asks for 0 bytes, but it has 4"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "no rows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
         "asks for 8 bytes, but it has 4"},
        {"{'descr': '<f4', 'fortran_order': False, }", "damaged"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
         "unknown key"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "damaged"},
        {"{'descr': '<f4", "plain numbers"},
        {"{'descr", "damaged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("y", cases[i].header, "abcd", 4);
        refused(NULL, cases[i].detail);
    }
    scratch_write("a/y.npy", "\x93NUMPY\1", 7);
    refused(NULL, "not an array in NumPy's format");
    scratch_write("a/y.npy", "\x93NUMPY\4\0\1\0\0\0\0\0", 14);
    refused(NULL, "a version that is not known");
    scratch_write("a/y.npy", "\x93NUMPY\1\0\xff\1\0\0\0\0", 14);
    refused(NULL, "longer than the array");
    ck_assert_int_eq(unlink(scratch_path("a/y.npy")), 0);
    ck_assert_int_eq(mkdir(scratch_path("a/y.npy"), 0777), 0);
    refused(NULL, "y.npy is not a file");
}

static void refused_archive(const char *detail) {
    source_refused("npy", (const char *[]){archive, NULL}, DLC_ERR_DATA, detail);
}

TEST(damaged_archives) {
    unsigned char array[ROOM];
    size_t count = make_array(array, header_of("|u1", "3,"), labels, sizeof labels);
    scratch_write("a.npz", "PK", 2);
    refused_archive("it is too short");
    scratch_write("a.npz", pixels, sizeof pixels);
    refused_archive("it is too short");
    scratch_write("a.npz", array, count);
    refused_archive("it lacks its end; it was cut short, or is something else");
    add_bytes("y.npy", array, count, 0, 0);
    entries[10] = 12;
    finish(0);
    refused_archive("packed by method 12");
    add_bytes("y.npy", array, count, 0, 0);
    entries[8] = 1;
    finish(0);
    refused_archive("encrypted");
    add_bytes("y.npy", array, count, 1, 0);
    entries[16] ^= 1; /* the checksum */
    finish(0);
    refused_archive("y.npy cannot be unpacked: contents, length and checksum");
    add_bytes("y.npy", array, count, 1, 0);
    entries[27] = 0x7f; /* its size: two billion */
    finish(0);
    refused_archive("a file has an impossible size");
    add_bytes("y.npy", array, count, 0, 0);
    bytes[0] = 'X';
    finish(0);
    refused_archive("a file lacks its header");
    add_bytes("y.npy", array, count, 0, 0);
    entries[43] = 0xff;
    finish(0);
    refused_archive("a file begins beyond its end");
}

/* ---- All of them --------------------------------------------------------------- */

TEST(mutations) {
    static float image[5][12];
    static int64_t label[5] = {1, 4, 2, 2, 0};
    add("x.npy", header_of("<f4", "5, 3, 2, 2"), image, sizeof image, 1, 1);
    add("y.npy", header_of("<i8", "5,"), label, sizeof label, 0, 1);
    finish(1);
    source_mutate("npy", (const char *[]){archive, NULL}, "a.npz", 1000, 450);
}

TEST(mutations_of_arrays) {
    put_some();
    source_mutate("npy", (const char *[]){folder, NULL}, "a/y.npy", 300, 80);
}

TEST(without_memory) {
    put_some();
    source_starved("npy", (const char *[]){folder, "classes=a,b,c", NULL});
    add("x.npy", header_of("|u1", "3, 2, 2"), pixels, sizeof pixels, 1, 0);
    finish(0);
    source_starved("npy", (const char *[]){archive, NULL});
}
