/* Tests the source of tar archives: what it finds in them, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/random.h"
#include "base/status.h"
#include "data/samples.h"
#include "source.h"
#include "support/scratch.h"
#include "support/test.h"

enum { BLOCK = 512, ROOM = 64 * BLOCK };

/* An archive that is being written. */
static unsigned char bytes[ROOM];
static size_t used;

static void setup(void) {
    scratch_setup();
    used = 0;
}

/* The sum of a header is that of its bytes, with spaces in place of the sum. */
static void seal(unsigned char *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += header[i];
    (void)snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Adds an entry; returns its header. */
static unsigned char *add_bytes(const char *name, char type, const void *contents,
                                size_t count) {
    unsigned char *header = bytes + used;
    ck_assert_uint_lt(used + 4 * BLOCK + count, ROOM);
    memset(header, 0, BLOCK);
    memcpy(header, name, strlen(name));
    (void)snprintf((char *)header + 124, 12, "%011o", (unsigned)count & 0777777777);
    header[156] = (unsigned char)type;
    memcpy(header + 257, "ustar", 6);
    seal(header);
    used += BLOCK;
    memset(bytes + used, 0, (count + BLOCK - 1) / BLOCK * BLOCK);
    memcpy(bytes + used, contents, count);
    used += (count + BLOCK - 1) / BLOCK * BLOCK;
    return header;
}

static unsigned char *add(const char *name, char type, const char *contents) {
    return add_bytes(name, type, contents, strlen(contents));
}

/* An array of NumPy's format: three numbers, or others of the given type and shape. */
static void add_array(const char *name, const char *type, const char *shape,
                      const void *numbers, size_t count) {
    char text[256] = "\x93NUMPY\x01";
    int length = snprintf(text + 10, sizeof text - 10,
                          "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
                          type, shape);
    ck_assert_int_lt(length, 128);
    text[8] = (char)length;
    memcpy(text + 10 + length, numbers, count);
    add_bytes(name, '0', text, 10 + (size_t)length + count);
}

/* Two samples, with everything that may stand around them. */
static void add_some(void) {
    add("d/", '5', "");
    add("d/one.jpg", '0', "first");
    add("d/one.cls", '0', "3\n");
    add("d/one.json", '0', "{}");
    add(".hidden", '0', "no");
    add("noending", '0', "no");
    add("link.other", '2', "");
    add("d/two.x.txt", '0', "no");
    add("d/two.cls", 0, " 1 ");
    add("d/two.PNG", '0', "second");
}

static const char *write_shard(const char *name, size_t count) {
    static char setting[4200];
    (void)snprintf(setting, sizeof setting, "shards=%s",
                   scratch_write(name, bytes, count));
    return setting;
}

/* Adds what ends an archive. */
static void end(void) {
    ck_assert_uint_lt(used + 2 * BLOCK, ROOM);
    memset(bytes + used, 0, 2 * BLOCK);
    used += 2 * BLOCK;
}

static const char *finish(void) {
    end();
    used -= 2 * BLOCK;
    return write_shard("a.tar", used + 2 * BLOCK);
}

static opened open_with(const char *first, const char *second) {
    opened o;
    dlc_status status = source_open("tar", 0, (const char *[]){first, second, NULL},
                                    &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return o;
}

static void holds(const opened *o, int64_t index, const char *contents, int32_t label) {
    dlc_samples samples;
    dlc_read_sample read = {0};
    ck_assert_int_eq(dlc_samples_describe(o->ops, o->source, &samples), DLC_OK);
    dlc_status status = dlc_samples_read(&samples, index, 0, NULL, &read);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    const dlc_value *image = &read.value[samples.image];
    ck_assert_uint_eq(image->bytes, strlen(contents));
    ck_assert_mem_eq(image->data, contents, image->bytes);
    ck_assert_int_eq(read.label, label);
    dlc_read_sample_free(&read);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = scratch_teardown);

TEST(samples) {
    char name[4200];
    add_some();
    opened o = open_with(finish(), NULL);
    ck_assert_int_eq(o.info.samples, 2);
    ck_assert_int_eq(o.info.fields[1].classes, 4);
    holds(&o, 0, "first", 3);
    holds(&o, 1, "second", 1);
    o.ops->name(o.source, 1, name, sizeof name);
    ck_contains(name, "/a.tar: d/two");
    source_close(&o);
    o = open_with(finish(), "classes=a,b,c,d,e");
    ck_assert_int_eq(o.info.fields[1].classes, 5);
    ck_assert_str_eq(o.info.fields[1].class_names[4], "e");
    source_close(&o);
    add("f.jpg", '0', "third"), add("f.cls", '0', "-1\n");
    add("g.jpg", '0', "fourth"), add("g.cls", '0', "2.0\n");
    o = open_with(finish(), "readahead=1K");
    holds(&o, 2, "third", DLC_LABEL_NONE);
    holds(&o, 3, "fourth", 2);
    holds(&o, 1, "second", 1);
    holds(&o, 0, "first", 3);
    source_close(&o);
}

/* The file beside the shards, unless the setting says something else. */
TEST(names_of_classes) {
    static const char names[] = "one\ntwo words\n\xc3\xb6\nfour";
    add_some();
    scratch_write("classes.txt", names, strlen(names));
    opened o = open_with(finish(), NULL);
    ck_assert_int_eq(o.info.fields[1].classes, 4);
    ck_assert_str_eq(o.info.fields[1].class_names[1], "two words");
    ck_assert_str_eq(o.info.fields[1].class_names[3], "four");
    source_close(&o);
    scratch_write("classes.txt", "a\r\nb\r\nc\r\nd\r\n", 12);
    o = open_with(finish(), NULL);
    ck_assert_str_eq(o.info.fields[1].class_names[3], "d");
    source_close(&o);
    scratch_write("classes.txt", "a\nb\nc\na\n", 8);
    source_refused("tar", (const char *[]){finish(), NULL}, DLC_ERR_DATA,
                   "classes.txt: the class \"a\" is there twice");
    scratch_write("classes.txt", "a\n\nb\nc\n", 7);
    source_refused("tar", (const char *[]){finish(), NULL}, DLC_ERR_DATA,
                   "classes.txt: a line is empty, but each is the name of a class");
    o = open_with(finish(), "classes=a,b,c,d,e");
    ck_assert_str_eq(o.info.fields[1].class_names[0], "a");
    source_close(&o);
}

/* `cat` joins archives, which may have the same names; what is behind an end is read or
 * refused, and an archive without an end was cut short between two files. */
TEST(ends) {
    add_some();
    opened o = open_with(write_shard("a.tar", used + BLOCK), NULL);
    ck_assert_int_eq(o.info.samples, 2);
    source_close(&o);
    source_refused("tar", (const char *[]){write_shard("a.tar", used), NULL},
                   DLC_ERR_DATA, "it ends without the end mark of an archive");
    end();
    for (int i = 0; i < 3; i++) {
        add("d/two.PNG", '0', i ? "fourth" : "third"), add("d/two.cls", '0', "2");
        end();
        end();
        if (i == 1)
            break;
    }
    o = open_with(write_shard("a.tar", used), NULL);
    ck_assert_int_eq(o.info.samples, 4);
    holds(&o, 1, "second", 1);
    holds(&o, 2, "third", 2);
    holds(&o, 3, "fourth", 2);
    source_close(&o);
    bytes[used] = 'x';
    memset(bytes + used + 1, 0, BLOCK - 1);
    source_refused("tar", (const char *[]){write_shard("a.tar", used + BLOCK), NULL},
                   DLC_ERR_DATA,
                   "there is something behind its end that is no archive");
}

/* What has no contents is not left out in silence. */
TEST(substitutes) {
    static const struct {
        char type;
        const char *what;
    } kinds[] = {
        {'1', "a hard link"}, {'2', "a symbolic link"}, {'S', "a sparse file"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int k = 0; k < 2; k++) {
            char detail[64];
            used = 0;
            add("a.jpg", k ? '0' : kinds[i].type, "");
            add("a.cls", k ? kinds[i].type : '0', "1");
            (void)snprintf(detail, sizeof detail, "a.tar: a.%s is %s",
                           k ? "cls" : "jpg", kinds[i].what);
            source_refused("tar", (const char *[]){finish(), NULL}, DLC_ERR_DATA,
                           detail);
        }
    used = 0;
    add("x", 'x', "22 GNU.sparse.major=1\n");
    add("a.jpg", '0', "1");
    source_refused("tar", (const char *[]){finish(), NULL}, DLC_ERR_DATA,
                   "a sparse file");
}

TEST(several_shards) {
    char pattern[4200];
    (void)snprintf(pattern, sizeof pattern, "shards=%s", scratch_path("*.tar"));
    for (int i = 2; i >= 0; i--) {
        char name[32], label[16];
        used = 0;
        (void)snprintf(name, sizeof name, "s%d.tar", i);
        (void)snprintf(label, sizeof label, "%d", i);
        add("same.cls", '0', label);
        add("same.webp", '0', name);
        end();
        write_shard(name, used);
    }
    opened o = open_with(pattern, NULL);
    ck_assert_int_eq(o.info.samples, 3);
    holds(&o, 0, "s0.tar", 0);
    holds(&o, 2, "s2.tar", 2);
    source_close(&o);
}

/* Names of more than 100 bytes, in three formats, and sizes as bytes and in pax. */
TEST(long_names) {
    char name[300], record[400], text[4200];
    memset(name, 'n', 150);
    strcpy(name + 150, ".jpg");
    add("././@LongLink", 'L', name);
    add("nnnn", '0', "gnu");
    strcpy(name + 150, ".cls");
    add("././@LongLink", 'L', name);
    unsigned char *header = add("nnnn", '0', "1");
    memset(header + 124, 0, 12);
    header[124] = 0x80;
    header[135] = 1;
    seal(header);
    strcpy(record, "164 path=");
    memset(record + 9, 'm', 150);
    strcpy(record + 159, ".cls\n9 size=1\n");
    add("x", 'x', record);
    add("mmm", '0', "2");
    memcpy(record + 160, "jpg", 3);
    record[171] = '3'; /* the size, instead of that of the header */
    add("x", 'x', record);
    header = add("mmm", '0', "pax");
    memcpy(header + 124, "00000000000", 11);
    seal(header);
    header = add("short.cls", '0', "5");
    memcpy(header + 345, "before/it", 9);
    seal(header);
    header = add("short.jpg", '0', "prefix");
    memcpy(header + 345, "before/it", 9);
    seal(header);
    opened o = open_with(finish(), NULL);
    ck_assert_int_eq(o.info.samples, 3);
    holds(&o, 0, "gnu", 1);
    holds(&o, 1, "pax", 2);
    holds(&o, 2, "prefix", 5);
    o.ops->name(o.source, 2, text, sizeof text);
    ck_contains(text, ": before/it/short");
    source_close(&o);
}

static void refused(const char *detail) {
    source_refused("tar", (const char *[]){finish(), NULL}, DLC_ERR_DATA, detail);
    used = 0;
}

TEST(samples_that_lack_something) {
    static const char *const labels[] = {"",    "x",    "-2",  "1 2",         "-",
                                         "-1-", "- 1",  "1.5", "99999999999", "  ",
                                         ".0",  "-2.0", "nano"};
    refused("no samples; one has an image");
    add("a.jpg", '0', "1");
    refused("a.tar: a: a sample without a class");
    add("a.cls", '0', "1");
    add("b.cls", '0', "1");
    refused("a: a sample with a class (.cls), but without an image");
    add("a.jpg", '0', "1"), add("a.png", '0', "1");
    refused("a: it has two images");
    add("a.cls", '0', "1"), add("a.cls", '0', "1");
    refused("a: it has two classes");
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        add("a.jpg", '0', "1"), add("a.cls", '0', labels[i]);
        refused("a: its .cls is not the number of a class");
    }
    add("a.jpg", '0', "1"), add("a.cls", '0', "2");
    source_refused("tar", (const char *[]){finish(), "classes=a,b", NULL}, DLC_ERR_DATA,
                   "it has a label 2, but there are 2 names");
    used = 0;
    add("a.jpg", '0', "1"), add("a.cls", '0', "99999999");
    refused("it has a label 99999999, but only 1 samples");
}

TEST(damage) {
    add_some();
    source_refused("tar", (const char *[]){write_shard("a.tar", used - 508), NULL},
                   DLC_ERR_DATA, "a.tar: at byte");
    ck_contains(dlc_detail(), "which was cut short or is damaged");
    source_refused("tar", (const char *[]){write_shard("a.tar", BLOCK + 100), NULL},
                   DLC_ERR_DATA, "at byte 512: it ends in the middle of a header");
    bytes[0] ^= 1;
    refused("at byte 0: not a tar archive; compressed ones");
    add_some();
    bytes[BLOCK] ^= 1;
    refused("at byte 512: a damaged header");
    add("x", 'x', "no record");
    refused("a damaged pax record");
    add("x", 'x', "99 path=a\n");
    refused("a damaged pax record");
    add("x", 'L', "");
    refused("a name or a note that is empty");
    source_refused("tar", (const char *[]){"shards=/nowhere/x.tar", NULL}, DLC_ERR_DATA,
                   "cannot open /nowhere/x.tar");
    ck_assert_int_eq(mkdir(scratch_path("folder"), 0777), 0);
    char setting[4200];
    (void)snprintf(setting, sizeof setting, "shards=%s", scratch_path("folder"));
    source_refused("tar", (const char *[]){setting, NULL}, DLC_ERR_DATA,
                   "is not a file");
}

/* Opens and reads whatever is left of an archive after random changes; headers are
 * sealed again half of the time, so that the rest of them is looked at, too. */
TEST(mutations) {
    enum { TIMES = 1000 };
    static unsigned char sound[ROOM];
    char record[] = "18 path=other.jpg\n9 size=2\n";
    int refusals = 0;
    add_some();
    add("x", 'x', record);
    add("other", '0', "12");
    add("other.cls", '0', "1");
    memcpy(sound, bytes, ROOM);
    for (uint64_t i = 0; i < TIMES; i++) {
        dlc_random random = dlc_random_make(i, 3);
        memcpy(bytes, sound, ROOM);
        for (uint64_t change = 0; change <= i % 4; change++) {
            size_t at = dlc_random_below(&random, used);
            bytes[at] = (unsigned char)(bytes[at] ^ 1u << dlc_random_below(&random, 8));
            if (i % 2 && at + BLOCK < used)
                seal(bytes + at / BLOCK * BLOCK);
        }
        opened o;
        dlc_fail(DLC_OK, "%s", "");
        const char *sets[] = {write_shard("a.tar", used + BLOCK), NULL};
        if (source_open("tar", 0, sets, &o) != DLC_OK) {
            ck_assert_str_ne(dlc_detail(), "");
            refusals++;
            continue;
        }
        dlc_samples all;
        dlc_read_sample read = {0};
        ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &all), DLC_OK);
        for (int64_t s = 0; s < all.info.samples; s++)
            ck_assert_int_eq(dlc_samples_read(&all, s, 0, NULL, &read), DLC_OK);
        dlc_read_sample_free(&read);
        source_close(&o);
    }
    ck_assert_int_gt(refusals, TIMES / 10);
}

static const float near[3] = {1, 2, 3}, far[3] = {-1, 0.5F, 8};

/* Two samples of an image and two arrays, in any order, of which one is a field. */
static void add_arrays(void) {
    add("a.jpg", '0', "first");
    add_array("a.place.npy", "<f4", "(3,)", near, sizeof near);
    add_array("a.other.npy", "|u1", "(2,)", "xy", 2);
    add_array("b.place.npy", "<f4", "(3,)", far, sizeof far);
    add_array("b.other.npy", "|u1", "(2,)", "zz", 2);
    add("b.jpg", '0', "second");
}

TEST(arrays) {
    dlc_samples all;
    dlc_read_sample read = {0};
    add_arrays();
    opened o = open_with(finish(), "vector=place");
    ck_assert_int_eq(o.info.samples, 2);
    ck_assert_int_eq(o.info.field_count, 2);
    ck_assert_str_eq(o.info.fields[0].name, "image");
    ck_assert_str_eq(o.info.fields[1].name, "place");
    ck_assert_int_eq(o.info.fields[1].role, DLC_ROLE_VECTOR);
    ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &all), DLC_OK);
    ck_assert_int_eq(dlc_samples_read_fields(&all, 1, 3, NULL, &read), DLC_OK);
    ck_assert_uint_eq(read.value[0].bytes, 6);
    ck_assert_mem_eq(read.value[0].data, "second", 6);
    ck_assert_mem_eq(read.value[1].data, far, sizeof far);
    ck_assert_int_eq(dlc_samples_read_fields(&all, 0, 2, NULL, &read), DLC_OK);
    ck_assert_mem_eq(read.value[1].data, near, sizeof near);
    dlc_read_sample_free(&read);
    source_close(&o);
}

/* Arrays alone, one of them the image; classes are arrays, too, or files. */
TEST(arrays_alone) {
    static const int32_t label[2] = {4, 1};
    for (int i = 0; i < 2; i++) {
        const char *const name[2][3] = {{"a.x.npy", "a.y.npy", "a.cls"},
                                        {"b.x.npy", "b.y.npy", "b.cls"}};
        add_array(name[i][0], "<f4", "(1, 1, 3)", i ? far : near, sizeof far);
        add_array(name[i][1], "<i4", "(1,)", &label[i], sizeof *label);
        add(name[i][2], '0', "2");
    }
    const char *sets[] = {finish(), "image=x", "label=y", NULL};
    opened o;
    ck_assert_msg(source_open("tar", 0, sets, &o) == DLC_OK, "%s", dlc_detail());
    ck_assert_int_eq(o.info.field_count, 2);
    ck_assert_int_eq(o.info.fields[0].role, DLC_ROLE_IMAGE);
    ck_assert_int_eq(o.info.fields[1].role, DLC_ROLE_CLASS);
    ck_assert_int_eq(o.info.fields[1].classes, 5);
    source_close(&o);
    sets[2] = NULL;
    ck_assert_msg(source_open("tar", 0, sets, &o) == DLC_OK, "%s", dlc_detail());
    ck_assert_str_eq(o.info.fields[0].name, "label");
    ck_assert_int_eq(o.info.fields[0].classes, 3);
    ck_assert_str_eq(o.info.fields[1].name, "x");
    source_close(&o);
}

static const float some_boxes[] = {1, 0, 1, 2, 3, 0, 2, 2, 4.5F, 5};

/* Each sample has its own number of boxes. */
TEST(boxes) {
    static const int32_t count[] = {1, 0, 2, 1};
    static const char *const name[] = {"a.boxes.npy", "b.boxes.npy", "c.boxes.npy",
                                       "d.boxes.npy"};
    for (int i = 0; i < 4; i++) {
        char shape[16];
        (void)snprintf(shape, sizeof shape, "(%d, 5)", (int)count[i]);
        add_array(name[i], "<f4", shape, some_boxes, (size_t)count[i] * 20);
        add((const char *[]){"a.jpg", "b.jpg", "c.jpg", "d.jpg"}[i], '0', "image");
    }
    dlc_samples all;
    dlc_read_sample read = {0};
    opened o = open_with(finish(), "boxes=boxes");
    ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &all), DLC_OK);
    ck_assert_str_eq(o.info.fields[1].name, "boxes");
    ck_assert_int_eq(o.info.fields[1].role, DLC_ROLE_BOXES);
    ck_assert_uint_eq(o.info.fields[1].flags, DLC_FIELD_BOUNDED);
    ck_assert(dlc_shape_equal(&o.info.fields[1].shape, &(dlc_shape){2, {2, 5}}));
    for (int i = 0; i < 4; i++) {
        dlc_status status = dlc_samples_read_fields(&all, i, 3, NULL, &read);
        ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
        ck_assert(
            dlc_shape_equal(&read.value[1].shape, &(dlc_shape){2, {count[i], 5}}));
        ck_assert_uint_eq(read.value[1].bytes, (size_t)count[i] * 20);
        ck_assert_mem_eq(read.value[1].data, some_boxes, (size_t)count[i] * 20);
    }
    dlc_read_sample_free(&read);
    source_close(&o);
}

/* No sample has one; they still have a shape. */
TEST(no_boxes) {
    add_array("a.b.npy", "<f8", "(0, 5)", "", 0);
    add("a.jpg", '0', "image");
    opened o = open_with(finish(), "boxes=b");
    ck_assert(dlc_shape_equal(&o.info.fields[1].shape, &(dlc_shape){2, {1, 5}}));
    source_close(&o);
}

static void refused_boxes(const char *type, const char *shape, size_t count,
                          const char *detail) {
    used = 0;
    add_array("a.b.npy", "<f4", "(1, 5)", some_boxes, 20);
    add("a.jpg", '0', "image");
    add_array("b.b.npy", type, shape, some_boxes, count);
    add("b.jpg", '0', "image");
    opened o;
    dlc_samples all;
    dlc_read_sample read = {0};
    dlc_status status = source_open("tar", 0,
                                    (const char *[]){finish(), "boxes=b", NULL}, &o);
    if (status == DLC_OK) {
        ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &all), DLC_OK);
        status = dlc_samples_read_fields(&all, 1, 2, NULL, &read);
        dlc_read_sample_free(&read);
        source_close(&o);
    }
    ck_assert_int_eq(status, DLC_ERR_DATA);
    ck_contains(dlc_detail(), "a.tar: b");
    ck_contains(dlc_detail(), detail);
}

TEST(boxes_that_do_not_fit) {
    refused_boxes("<f4", "(5,)", 20, "of sample 1: boxes are rows of five numbers");
    refused_boxes("<f4", "(0,)", 0, "of sample 1: boxes are rows of five numbers");
    refused_boxes("<f4", "(1, 4)", 16, "of sample 1 has another shape or type");
    refused_boxes("<f8", "(1, 5)", 40, "of sample 1 has another shape or type");
    refused_boxes("<f4", "(1, 5)", 16, "its header asks for 20 bytes, but it has 16");
}

static void refused_arrays(const char *detail) {
    source_refused("tar", (const char *[]){finish(), "vector=place", NULL},
                   DLC_ERR_DATA, detail);
    used = 0;
}

TEST(arrays_that_do_not_fit) {
    add_arrays();
    add("c.jpg", '0', "third");
    refused_arrays("sample 2 has no file, or two files, KEY.place.npy");
    add_arrays();
    add_array("c.place.npy", "<f4", "(3,)", near, sizeof near);
    refused_arrays("c: a sample with a class (.cls), but without an image");
    add_array("0.place.npy", "<f4", "(3,)", near, sizeof near);
    add_arrays();
    refused_arrays("a: it has an image, which the samples before it do not have");
    add("a.place.npy", '0', "no array at all");
    refused_arrays("place: not an array in NumPy's format");
    add_array("a.place.npy", "<f4", "(1, 1, 1, 1, 1, 1, 1, 3)", near, sizeof near);
    add_array("a.plac.npy", "<f4", "(3,)", near, sizeof near);
    refused_arrays("place");
    add_array("a.plac.npy", "<f4", "(3,)", near, sizeof near);
    refused_arrays("there is no array place");
    add_arrays();
    add("c.jpg", '0', "third");
    add_array("c.place.npy", "<f4", "(2,)", near, 8);
    opened o = open_with(finish(), "vector=place");
    dlc_samples all;
    dlc_read_sample read = {0};
    ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &all), DLC_OK);
    ck_assert_int_eq(dlc_samples_read_fields(&all, 2, 2, NULL, &read), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "place of sample 2 has another shape or type");
    dlc_read_sample_free(&read);
    source_close(&o);
}

TEST(without_memory) {
    add_some();
    source_starved("tar", (const char *[]){finish(), "classes=a,b,c,d", NULL});
    used = 0;
    add_arrays();
    source_starved("tar",
                   (const char *[]){finish(), "vector=place", "labels=other", NULL});
}
