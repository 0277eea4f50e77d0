/* Tests the source of HDF5 datasets on files that libhdf5 has written, and on damaged
 * ones. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "base/status.h"
#include "source.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

static char files[4200]; /* the setting */

static void setup(void) {
    scratch_setup();
    (void)snprintf(files, sizeof files, "files=%s", scratch_path("a.h5"));
}

/* ---- Writing ------------------------------------------------------------------- */

static hid_t file;

static void begin_as(const char *name, int is_new, hsize_t user_block) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE);
    if (is_new)
        H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    H5Pset_userblock(create, user_block);
    file = H5Fcreate(scratch_path(name), H5F_ACC_TRUNC, create, access);
    ck_assert_int_ge(file, 0);
    H5Pclose(create);
    H5Pclose(access);
}

static void begin(const char *name) {
    begin_as(name, 0, 0);
}

static void finish(void) {
    ck_assert_int_ge(H5Fclose(file), 0);
}

/* Properties of a dataset. */
static hid_t chunked(int rank, const hsize_t *chunk) {
    hid_t made = H5Pcreate(H5P_DATASET_CREATE);
    ck_assert_int_ge(H5Pset_chunk(made, rank, chunk), 0);
    return made;
}

static void put_as(const char *name, hid_t stored, hid_t given, int rank,
                   const hsize_t *dims, const void *data, hid_t properties) {
    hid_t space = H5Screate_simple(rank, dims, NULL);
    hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, properties,
                           H5P_DEFAULT);
    ck_assert_int_ge(set, 0);
    if (data)
        ck_assert_int_ge(H5Dwrite(set, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
    H5Dclose(set);
    H5Sclose(space);
    if (properties != H5P_DEFAULT)
        H5Pclose(properties);
}

static void put(const char *name, hid_t type, int rank, const hsize_t *dims,
                const void *data) {
    put_as(name, type, type, rank, dims, data, H5P_DEFAULT);
}

enum { SAMPLES = 11, PIXELS = 3 * 5 * 7 };

static unsigned char images[SAMPLES][PIXELS];
static float labels[SAMPLES], numbers[SAMPLES][PIXELS];
static const hsize_t image_dims[] = {SAMPLES, 3, 5, 7}, label_dims[] = {SAMPLES, 1};

static void fill(void) {
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = (float)(i * 3 % 7);
        for (int p = 0; p < PIXELS; p++) {
            images[i][p] = (unsigned char)(i * 31 + p * 3);
            numbers[i][p] = (float)(i * PIXELS + p) / 8;
        }
    }
}

static void write_some(const char *name) {
    fill();
    begin(name);
    put("data", H5T_NATIVE_UINT8, 4, image_dims, images);
    put("label", H5T_NATIVE_FLOAT, 2, label_dims, labels);
    finish();
}

static opened open_with(const char *first, const char *second, const char *third) {
    opened o;
    dlc_status status = source_open("hdf5", 0,
                                    (const char *[]){first, second, third, NULL}, &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return o;
}

static void holds(const opened *o, int64_t index, int i) {
    int32_t label = (int32_t)labels[i];
    source_holds(o, index, "image", images[i], PIXELS);
    source_holds(o, index, "label", &label, sizeof label);
}

TEST_SETTINGS(.timeout = 120, .setup = setup, .teardown = scratch_teardown);

/* ---- Sound files --------------------------------------------------------------- */

/* As Caffe has it, in one piece. */
TEST(in_one_piece) {
    write_some("a.h5");
    opened o = open_with(files, NULL, NULL);
    ck_assert_int_eq(o.info.samples, SAMPLES);
    ck_assert_int_eq(o.info.field_count, 2);
    ck_assert_int_eq(o.info.fields[0].dtype, DLC_U8);
    ck_assert(dlc_shape_equal(&o.info.fields[0].shape, &(dlc_shape){3, {3, 5, 7}}));
    ck_assert_int_eq(o.info.fields[1].classes, 7);
    for (int i = 0; i < SAMPLES; i++)
        holds(&o, i, i);
    source_close(&o);
}

/* Chunks of any shape, packed in every way, in files of old and new versions. */
TEST(in_chunks) {
    static const hsize_t shapes[][4] = {
        {1, 3, 5, 7}, {4, 3, 5, 7}, {3, 2, 3, 4}, {11, 1, 1, 1}, {2, 3, 2, 7}};
    fill();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int how = 0; how < 16; how++) {
            hid_t properties = chunked(4, shapes[s]);
            begin_as("a.h5", how & 8, 0);
            if (how & 4)
                H5Pset_fletcher32(properties);
            if (how & 1)
                H5Pset_shuffle(properties);
            if (how & 2)
                H5Pset_deflate(properties, 6);
            put_as("g", how & 1 ? H5T_IEEE_F64BE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 4,
                   image_dims, numbers, properties);
            put_as("l", H5T_STD_I16BE, H5T_NATIVE_FLOAT, 2, label_dims, labels,
                   chunked(2, (hsize_t[]){4, 1}));
            finish();
            opened o = open_with(files, "image=g", "label=l");
            ck_assert_int_eq(o.info.fields[1].classes, 7);
            for (int i = 0; i < SAMPLES; i++) {
                int32_t label = (int32_t)labels[i];
                source_holds(&o, i, "image", numbers[i], sizeof numbers[i]);
                source_holds(&o, i, "label", &label, sizeof label);
            }
            source_close(&o);
        }
}

/* Numbers in the header, bool as h5py stores it, datasets in groups, chunks that were
 * never written. */
TEST(other_kinds) {
    static const signed char flags[SAMPLES][2] = {{1, 0}, {0, 1}, {1, 1}};
    static const hsize_t box_dims[] = {SAMPLES, 2, DLC_BOX_VALUES};
    static double boxes[SAMPLES][2][DLC_BOX_VALUES];
    float zeros[PIXELS] = {0};
    for (int i = 0; i < SAMPLES * 2 * DLC_BOX_VALUES; i++)
        ((double *)boxes)[i] = i / 4.0;
    fill();
    begin("a.h5");
    hid_t group = H5Gcreate2(file, "g \303\274", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t header = H5Pcreate(H5P_DATASET_CREATE),
          flag = H5Tenum_create(H5T_NATIVE_INT8);
    H5Tenum_insert(flag, "FALSE", &(signed char){0});
    H5Tenum_insert(flag, "TRUE", &(signed char){1});
    H5Pset_layout(header, H5D_COMPACT);
    put_as("g \303\274/l", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 2, label_dims, labels,
           header);
    put("flags", flag, 2, (hsize_t[]){SAMPLES, 2}, flags);
    put_as("never", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 4, image_dims, NULL,
           chunked(4, image_dims));
    put_as("boxes", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, 3, box_dims, boxes,
           chunked(3, (hsize_t[]){2, 1, 3}));
    H5Gclose(group);
    H5Tclose(flag);
    finish();
    opened o;
    const char *sets[] = {files,          "label=g \303\274/l", "labels=flags",
                          "vector=never", "boxes=boxes",        NULL};
    dlc_status status = source_open("hdf5", 0, sets, &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    for (int i = 0; i < SAMPLES; i++) {
        int32_t label = (int32_t)labels[i];
        source_holds(&o, i, "label", &label, sizeof label);
        source_holds(&o, i, "labels", flags[i], 2);
        source_holds(&o, i, "vector", zeros, sizeof zeros);
        float rows[2 * DLC_BOX_VALUES];
        for (int k = 0; k < 2 * DLC_BOX_VALUES; k++)
            rows[k] = (float)((double *)boxes[i])[k];
        source_holds(&o, i, "boxes", rows, sizeof rows);
    }
    source_close(&o);
}

/* A value for chunks that were never written, whether or not there are any. */
TEST(fill_values) {
    static const hsize_t chunk[] = {4, 3, 5, 7}, rows[] = {3, 3, 5, 7};
    float filled[PIXELS];
    fill();
    for (int i = 0; i < PIXELS; i++)
        filled[i] = -2.5F;
    begin("a.h5");
    for (int k = 0; k < 2; k++) {
        hid_t properties = chunked(4, chunk), memory, space;
        hid_t type = k ? H5T_IEEE_F64BE : H5T_IEEE_F32LE;
        H5Pset_fill_value(properties, H5T_NATIVE_FLOAT, &filled[0]);
        put_as(k ? "some" : "all", type, H5T_NATIVE_FLOAT, 4, image_dims,
               k ? NULL : numbers, properties);
        if (!k)
            continue;
        hid_t set = H5Dopen2(file, "some", H5P_DEFAULT); /* the first chunk alone */
        space = H5Dget_space(set);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, (hsize_t[]){0, 0, 0, 0}, NULL, rows,
                            NULL);
        memory = H5Screate_simple(4, rows, NULL);
        ck_assert_int_ge(
            H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, numbers), 0);
        H5Sclose(memory);
        H5Sclose(space);
        H5Dclose(set);
    }
    finish();
    opened o = open_with(files, "image=all", "vector=some");
    for (int i = 0; i < SAMPLES; i++) {
        source_holds(&o, i, "image", numbers[i], sizeof numbers[i]);
        source_holds(&o, i, "vector", i < 3 ? numbers[i] : filled, sizeof filled);
    }
    source_close(&o);
}

/* A block of another program before the data, as MATLAB's files have. */
TEST(user_blocks) {
    static const hsize_t chunk[] = {2, 3, 5, 7};
    fill();
    memset(images, 7, PIXELS * 4L); /* chunks that look alike */
    for (hsize_t block = 512; block <= 2048; block *= 4) {
        begin_as("a.h5", 0, block);
        put_as("data", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, 4, image_dims, images,
               chunked(4, chunk));
        put("label", H5T_NATIVE_FLOAT, 2, label_dims, labels);
        hid_t properties = chunked(4, chunk);
        H5Pset_deflate(properties, 6);
        put_as("packed", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 4, image_dims, numbers,
               properties);
        finish();
        opened o = open_with(files, "vector=packed", NULL);
        for (int i = 0; i < SAMPLES; i++) {
            holds(&o, i, i);
            source_holds(&o, i, "vector", numbers[i], sizeof numbers[i]);
        }
        source_close(&o);
    }
}

/* Several files, by a pattern and by a list. */
TEST(parts) {
    char name[4200];
    write_some("p1.h5");
    write_some("p2.h5");
    begin("p3.h5");
    put("data", H5T_NATIVE_UINT8, 4, (hsize_t[]){2, 3, 5, 7}, images[4]);
    put("label", H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, labels + 4);
    finish();
    (void)snprintf(files, sizeof files, "files=%s", scratch_path("p[12].h5"));
    opened o = open_with(files, NULL, NULL);
    ck_assert_int_eq(o.info.samples, 2 * SAMPLES);
    for (int i = 0; i < 2 * SAMPLES; i++)
        holds(&o, i, i % SAMPLES);
    source_close(&o);
    (void)snprintf(name, sizeof name, "p2.h5 \r\n\n%s\n", scratch_path("p1.h5"));
    scratch_write("list.txt", name, strlen(name));
    (void)snprintf(files, sizeof files, "files=%s", scratch_path("list.txt"));
    o = open_with(files, NULL, NULL);
    ck_assert_int_eq(o.info.samples, 2 * SAMPLES);
    o.ops->name(o.source, SAMPLES + 3, name, sizeof name);
    ck_contains(name, "/p1.h5: row 3");
    source_close(&o);
    (void)snprintf(files, sizeof files, "files=%s", scratch_path("p*.h5"));
    source_refused("hdf5", (const char *[]){files, NULL}, DLC_ERR_DATA,
                   "p3.h5: label has another type or shape (float32, 2) than in");
    ck_contains(dlc_detail(), "/p1.h5 (float32, 11 x 1)");
}

/* Threads that read from the same chunks. */
typedef struct reading {
    const opened *from;
    int first, failed;
} reading;

static void *give(dlc_sample *sample, int32_t field, uint64_t bytes) {
    void *memory = malloc((size_t)bytes);
    sample->value[field].data = memory;
    sample->value[field].bytes = bytes;
    return memory;
}

static void *read_all(void *argument) {
    reading *r = argument;
    for (int i = 0; i < 40 * SAMPLES; i++) {
        dlc_value value[DLC_FIELDS_MAX] = {{0}};
        dlc_sample sample = {.size = sizeof sample,
                             .wanted = 1,
                             .index = (r->first + i * 5) % SAMPLES,
                             .value = value,
                             .memory = give};
        dlc_status status = r->from->ops->read_sample(r->from->source, &sample);
        r->failed |= status != DLC_OK ||
                     memcmp(value[0].data, numbers[sample.index], sizeof *numbers) != 0;
        free((void *)(uintptr_t)value[0].data);
    }
    return NULL;
}

TEST(several_threads) {
    pthread_t threads[4];
    reading readings[4];
    hid_t properties = chunked(4, (hsize_t[]){2, 2, 5, 7});
    fill();
    H5Pset_deflate(properties, 1);
    begin("a.h5");
    put_as("data", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 4, image_dims, numbers,
           properties);
    finish();
    opened o = open_with(files, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        readings[i] = (reading){&o, i, 0};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &readings[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(readings[i].failed, 0);
    }
    source_close(&o);
}

/* ---- Refusals ------------------------------------------------------------------ */

static void refused(const char *setting, const char *detail) {
    source_refused("hdf5", (const char *[]){files, setting, NULL}, DLC_ERR_DATA,
                   detail);
}

TEST(datasets_that_do_not_fit) {
    static const float one[2] = {1, 2};
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE), text = H5Tcopy(H5T_C_S1);
    fill();
    begin("other.h5");
    put("d", H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, one);
    finish();
    begin("a.h5");
    put("one", H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, one);
    put("rows", H5T_NATIVE_FLOAT, 1, (hsize_t[]){1}, one);
    put("long double", H5T_NATIVE_LDOUBLE, 1, (hsize_t[]){1}, NULL);
    H5Tset_size(text, 4);
    put("text", text, 1, (hsize_t[]){1}, "abcd");
    put("unwritten", H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, NULL);
    put("scalar", H5T_NATIVE_FLOAT, 0, NULL, one);
    H5Pset_external(properties, scratch_path("raw"), 0, 8);
    put_as("external", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, NULL,
           properties);
    properties = chunked(1, (hsize_t[]){2});
    H5Pset_scaleoffset(properties, H5Z_SO_INT, 0);
    put_as("scaled", H5T_NATIVE_INT, H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, one,
           properties);
    H5Lcreate_external(scratch_path("other.h5"), "d", file, "elsewhere", H5P_DEFAULT,
                       H5P_DEFAULT);
    H5Lcreate_soft("nowhere", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Tclose(text);
    finish();
    refused(NULL, "a.h5: it has neither data nor label");
    refused("vector=x", "a.h5: there is no array x");
    refused("vector=soft", "a.h5: there is no array soft");
    refused("vector=one,rows", "rows has 1 rows, but another dataset has 2");
    refused("vector=text", "text: it is not of numbers");
    refused("vector=long double", "its floats are not those of IEEE 754");
    refused("vector=unwritten", "its numbers were never written");
    refused("vector=scalar", "it is one number, or has too many");
    refused("vector=external", "its numbers are in another file");
    refused("vector=scaled", "by a filter (6, scaleoffset) that is not deflate");
    refused("vector=elsewhere", "elsewhere: it is in another file");
    refused("vector=group", "it is no dataset, or damaged");
    scratch_write("a.h5", "not at all", 10);
    refused(NULL, "data: libhdf5 cannot open it: it is no HDF5 file");
    scratch_write("empty.txt", "\n", 1);
    (void)snprintf(files, sizeof files, "files=%s", scratch_path("empty.txt"));
    refused(NULL, "empty.txt: it lists no files");
    (void)snprintf(files, sizeof files, "files=%s", scratch_path("none*.h5"));
    refused(NULL, "none*.h5: No such file");
}

TEST(shortened) {
    dlc_value value;
    write_some("a.h5");
    opened o = open_with(files, NULL, NULL);
    ck_assert_int_eq(truncate(scratch_path("a.h5"), 2100), 0);
    ck_assert_int_eq(source_read(&o, SAMPLES - 1, "image", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "while it is being read");
    source_close(&o);
    refused(NULL, "a.h5: data: ");
}

/* Each costs a process or two, whose start takes long with sanitizers. */
enum { TIMES = SANITIZED ? 60 : 500 };

TEST(mutations) {
    write_some("a.h5");
    source_mutate("hdf5", (const char *[]){files, NULL}, "a.h5", TIMES, TIMES / 10);
}

TEST(mutations_of_chunks) {
    hid_t properties = chunked(2, (hsize_t[]){2, 2});
    float table[6][3] = {{1, 2, 3}, {4, 5, 6}};
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 6);
    begin_as("a.h5", 1, 0);
    put_as("v", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){6, 3}, table,
           properties);
    finish();
    source_mutate("hdf5", (const char *[]){files, "vector=v", NULL}, "a.h5", TIMES,
                  TIMES / 10);
}

TEST(without_memory) {
    write_some("a.h5");
    source_starved("hdf5", (const char *[]){files, "classes=a,b,c,d,e,f,g", NULL});
}
