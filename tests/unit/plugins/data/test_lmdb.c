/* Tests the source of Caffe's LMDB databases on files that liblmdb has written, and on
 * damaged ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lmdb.h>

#include "base/status.h"
#include "source.h"
#include "support/scratch.h"
#include "support/test.h"

enum { ROOM = 1 << 17, PAGE = 4096 };

static char path[4200]; /* the setting */

static void setup(void) {
    scratch_setup();
    ck_assert_int_eq(mkdir(scratch_path("db"), 0777), 0);
    (void)snprintf(path, sizeof path, "path=%s", scratch_path("db"));
}

/* ---- Writing ------------------------------------------------------------------- */

static MDB_env *env;
static MDB_txn *txn;
static MDB_dbi dbi;

static void begin(const char *name, unsigned flags) {
    ck_assert_int_eq(mdb_env_create(&env), 0);
    ck_assert_int_eq(mdb_env_set_mapsize(env, (size_t)1 << 28), 0);
    ck_assert_int_eq(mdb_env_set_maxdbs(env, 4), 0);
    ck_assert_int_eq(mdb_env_open(env, scratch_path("db"), MDB_NOSYNC, 0666), 0);
    ck_assert_int_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
    ck_assert_int_eq(mdb_dbi_open(txn, name, MDB_CREATE | flags, &dbi), 0);
}

static void finish(void) {
    ck_assert_int_eq(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void put(const char *key, const void *data, size_t bytes) {
    MDB_val k = {strlen(key), (void *)(uintptr_t)key};
    MDB_val v = {bytes, (void *)(uintptr_t)data};
    ck_assert_int_eq(mdb_put(txn, dbi, &k, &v, 0), 0);
}

/* A message that is being written. */
static unsigned char message[ROOM];
static size_t used;

static void add_varint(uint64_t number) {
    for (; number > 127; number >>= 7)
        message[used++] = (unsigned char)(number | 128);
    message[used++] = (unsigned char)number;
}

static void add_number(int field, int64_t number) {
    add_varint((uint64_t)field << 3);
    add_varint((uint64_t)number);
}

static void add_bytes(int field, const void *bytes, size_t count) {
    add_varint((uint64_t)field << 3 | 2);
    add_varint(count);
    memcpy(message + used, bytes, count);
    used += count;
}

/* The fields of a Datum but its pixels. */
static void begin_datum(int channels, int height, int width, int label) {
    used = 0;
    add_number(1, channels);
    add_number(2, height);
    add_number(3, width);
    add_number(5, label);
}

/* A key in the order of numbers, as Caffe writes it, with a name behind it. */
static const char *key_of(int i) {
    static char key[64];
    (void)snprintf(key, sizeof key, "%08d_a \303\274/%d.jpg", i, i);
    return key;
}

/* Pixels of image i. */
static void fill(unsigned char *pixels, size_t count, int i) {
    for (size_t p = 0; p < count; p++)
        pixels[p] = (unsigned char)((size_t)i * 7 + p * 3);
}

static void put_images(int count, int channels, int height, int width) {
    unsigned char pixels[ROOM / 2];
    size_t bytes = (size_t)channels * (size_t)height * (size_t)width;
    begin(NULL, 0);
    for (int n = 0; n < count; n++) {
        int i = (int)((unsigned)n * 7919u % (unsigned)count); /* in no order */
        fill(pixels, bytes, i);
        begin_datum(channels, height, width, i % 10);
        add_bytes(4, pixels, bytes);
        put(key_of(i), message, used);
    }
    finish();
}

static opened open_it(const char *setting) {
    opened o;
    dlc_status status = source_open("lmdb", 0, (const char *[]){path, setting, NULL},
                                    &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return o;
}

static void holds(const opened *o, int64_t index, const void *bytes, size_t count,
                  int32_t label) {
    source_holds(o, index, "image", bytes, count);
    source_holds(o, index, "label", &label, sizeof label);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = scratch_teardown);

/* ---- Sound databases ----------------------------------------------------------- */

/* Values in leaves and in pages of their own, trees of one to three levels, deleted and
 * replaced values. */
TEST(trees) {
    static const struct {
        int count, channels, height, width;
    } cases[] = {{1, 1, 2, 2}, {3, 3, 5, 4}, {4000, 1, 9, 9}, {60, 3, 64, 64}};
    unsigned char pixels[ROOM / 2];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int count = cases[c].count;
        size_t bytes = (size_t)(cases[c].channels * cases[c].height * cases[c].width);
        (void)unlink(scratch_path("db/data.mdb"));
        (void)unlink(scratch_path("db/lock.mdb"));
        put_images(count, cases[c].channels, cases[c].height, cases[c].width);
        for (int again = 0; again < 2; again++) {
            opened o = open_it(NULL);
            ck_assert_int_eq(o.info.samples, count - again);
            ck_assert_int_eq(o.info.fields[0].dtype, DLC_U8);
            ck_assert_int_eq(o.info.fields[0].flags, 0);
            ck_assert(dlc_shape_equal(
                &o.info.fields[0].shape,
                &(dlc_shape){3, {cases[c].channels, cases[c].height, cases[c].width}}));
            for (int i = again; i < count; i += 1 + count / 100) {
                fill(pixels, bytes, i);
                holds(&o, i - again, pixels, bytes, i % 10);
            }
            source_close(&o);
            if (count == 1)
                break;
            begin(NULL, 0); /* the other pages of the root are written */
            MDB_val key = {strlen(key_of(0)), (void *)(uintptr_t)key_of(0)};
            ck_assert_int_eq(mdb_del(txn, dbi, &key, NULL), again ? MDB_NOTFOUND : 0);
            finish();
        }
    }
    char name[5000];
    opened o = open_it("classes=a,b,c,d,e,f,g,h,i,j");
    ck_assert_str_eq(o.info.fields[1].class_names[9], "j");
    o.ops->name(o.source, 1, name, sizeof name);
    ck_contains(name, "/db/data.mdb: 00000002_a \303\274/2.jpg");
    source_close(&o);
}

TEST(encoded_images) {
    begin(NULL, 0);
    for (int i = 0; i < 3; i++) {
        char file[20];
        (void)snprintf(file, sizeof file, "file number %d", i * 100);
        begin_datum(0, 0, 0, i);
        add_bytes(4, file, strlen(file));
        add_number(7, 1);
        add_bytes(99, "unknown", 7);
        put(key_of(i), message, used);
    }
    finish();
    opened o = open_it("grey=yes");
    ck_assert_int_eq(o.info.fields[0].flags, DLC_FIELD_ENCODED);
    ck_assert_int_eq(o.info.fields[0].shape.dims[0], 1);
    holds(&o, 0, "file number 0", 13, 0);
    holds(&o, 2, "file number 200", 15, 2);
    source_close(&o);
}

/* Floats, packed and one by one. */
TEST(floats) {
    static const float numbers[6] = {0, -1.5, 2, 3e9f, 4, 5};
    begin(NULL, 0);
    begin_datum(1, 2, 3, 4);
    add_bytes(6, numbers, sizeof numbers);
    put("a", message, used);
    begin_datum(1, 2, 3, -1); /* which losses leave out */
    for (int i = 0; i < 6; i++) {
        add_varint(6 << 3 | 5);
        memcpy(message + used, &numbers[i], 4);
        used += 4;
    }
    put("b", message, used);
    finish();
    opened o = open_it(NULL);
    ck_assert_int_eq(o.info.fields[0].dtype, DLC_F32);
    holds(&o, 0, numbers, sizeof numbers, 4);
    holds(&o, 1, numbers, sizeof numbers, DLC_LABEL_NONE);
    source_close(&o);
}

/* ---- Refusals ------------------------------------------------------------------ */

static void refused(const char *detail) {
    source_refused("lmdb", (const char *[]){path, NULL}, DLC_ERR_DATA, detail);
}

/* Writes one value, with a sound one before it if it is not the first. */
static void put_one(int is_first) {
    static unsigned char saved[ROOM];
    size_t bytes = used;
    memcpy(saved, message, bytes);
    (void)unlink(scratch_path("db/data.mdb"));
    (void)unlink(scratch_path("db/lock.mdb"));
    begin(NULL, 0);
    put("b", saved, bytes);
    begin_datum(1, 1, 2, 0);
    add_bytes(4, "xy", 2);
    if (!is_first)
        put("a", message, used);
    finish();
}

TEST(values_that_do_not_fit) {
    dlc_value value;
    begin(NULL, 0);
    finish();
    refused("it has no samples");
    begin_datum(1, 2, 2, 3);
    put_one(1);
    refused("/db/data.mdb: b: it has no data");
    add_bytes(4, "abc", 3);
    begin_datum(1, 2, 2, 3);
    add_bytes(4, "abc", 3);
    put_one(1);
    refused("b: its pixels are not channels times height");
    begin_datum(65536, 65536, 65536, 3);
    add_bytes(4, "abc", 3);
    put_one(1);
    refused("b: its pixels are not channels times height");
    begin_datum(1, 1, 2, -2);
    add_bytes(4, "xy", 2);
    put_one(1);
    refused("b: its label is not the number of a class");
    memcpy(message, "no message", used = 10);
    put_one(1);
    refused("b: it is no message of protocol buffers");
    used = 0;
    add_bytes(1, "x", 1);
    put_one(1);
    refused("b: it is no Datum of Caffe");
    begin_datum(1, 2, 1, 0);
    add_number(5, INT64_C(1) << 33);
    add_bytes(4, "xy", 2);
    put_one(1);
    refused("b: its label is not the number of a class");
    begin_datum(1, 2, 1, 99999999);
    add_bytes(4, "xy", 2);
    put_one(1);
    refused("b: it has a label 99999999, but only ");
    begin_datum(1, 2, 1, 3);
    add_bytes(4, "xy", 2);
    put_one(0);
    opened o = open_it(NULL);
    ck_assert_int_eq(source_read(&o, 1, "image", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "b: its image has another form or size than the first");
    source_close(&o);
}

TEST(other_databases) {
    begin("named", 0);
    put("a", "b", 1);
    finish();
    refused("it has a database in it");
    ck_assert_int_eq(unlink(scratch_path("db/data.mdb")), 0);
    begin(NULL, MDB_DUPSORT);
    put("a", "b", 1);
    finish();
    refused("it has several values for a key");
    scratch_write("db/data.mdb", path, 100);
    refused("it is too short");
    scratch_write("db/data.mdb", path, 4000);
    refused("not an LMDB file");
    ck_assert_int_eq(unlink(scratch_path("db/data.mdb")), 0);
    refused("data.mdb: No such file");
}

/* One byte of a sound file is changed: what the reader says. */
static void changed(size_t at, unsigned char to, const char *detail) {
    size_t size;
    unsigned char *bytes = scratch_read("db/data.mdb", &size);
    unsigned char before = bytes[at];
    ck_assert_uint_lt(at, size);
    bytes[at] = to;
    scratch_write("db/data.mdb", bytes, size);
    refused(detail);
    bytes[at] = before;
    scratch_write("db/data.mdb", bytes, size);
    free(bytes);
}

TEST(damage) {
    enum { META_ROOT = 16 + 72 + 40, META_DEPTH = 16 + 72 + 6, VERSION = 20 };
    size_t size;
    put_images(40, 1, 9, 9);
    unsigned char *bytes = scratch_read("db/data.mdb", &size);
    int newest = bytes[PAGE + 16 + 128] > bytes[16 + 128];
    size_t meta = newest ? PAGE : 0;
    size_t root = (size_t)bytes[meta + META_ROOT] * PAGE;
    free(bytes);
    changed(VERSION, 2, "its format has version 2, but only that of LMDB 0.9");
    changed(PAGE + 16, 0, "not an LMDB file");
    changed(40, 1, "pages have an impossible size");
    changed(meta + META_ROOT, 0, "not the page that the tree expects there");
    changed(meta + META_ROOT + 4, 1, "beyond the end of the file");
    changed(meta + META_DEPTH, 99, "an impossible depth");
    changed(meta + META_DEPTH, 9, "not the page that the tree expects there");
    changed(meta + 16 + 72 + 32, 7, "values, and not 7 as it says");
    changed(root + 12, 17, "its header is damaged");
    changed(root + 17, 0xff, "one of its nodes is beyond it");
    ck_assert_int_eq(truncate(scratch_path("db/data.mdb"), (off_t)(root + PAGE / 2)),
                     0);
    refused("beyond the end of the file");
}

TEST(mutations) {
    put_images(100, 1, 9, 9);
    source_mutate("lmdb", (const char *[]){path, NULL}, "db/data.mdb", 700, 50);
}

TEST(mutations_of_large_values) {
    put_images(3, 3, 64, 64);
    source_mutate("lmdb", (const char *[]){path, NULL}, "db/data.mdb", 700, 50);
}

TEST(without_memory) {
    put_images(3, 1, 9, 9);
    source_starved("lmdb", (const char *[]){path, "classes=a,b,c", NULL});
}
