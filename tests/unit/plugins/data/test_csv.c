/* Tests the source of CSV files: quoting, columns, fields, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "source.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

static char file[4200]; /* the setting */

static void setup(void) {
    scratch_setup();
    (void)snprintf(file, sizeof file, "file=%s", scratch_path("t.csv"));
}

static void put(const char *text) {
    scratch_write("t.csv", text, strlen(text));
}

static opened open_with(const char *first, const char *second, const char *third) {
    opened o;
    const char *sets[] = {file, first, second, third, NULL};
    dlc_status status = source_open("csv", 0, sets, &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return o;
}

static void holds(const opened *o, int64_t index, float first, float second,
                  int32_t label) {
    float numbers[] = {first, second};
    source_holds(o, index, "vector", numbers, sizeof numbers);
    source_holds(o, index, "label", &label, sizeof label);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = scratch_teardown);

/* ---- Rows ---------------------------------------------------------------------- */

TEST(header_and_names) {
    put("\xef\xbb\xbf"
        "height,weight,kind,a b\r\n1,-2.5e1,3,9\r\n\r\n\n 4 ,5,0,9");
    opened o = open_with("label=kind", "vector=height, 2", NULL);
    ck_assert_int_eq(o.info.samples, 2);
    ck_assert_int_eq(o.info.fields[0].classes, 4);
    ck_assert(dlc_shape_equal(&o.info.fields[1].shape, &(dlc_shape){1, {2}}));
    holds(&o, 0, 1, -25, 3);
    holds(&o, 1, 4, 5, 0);
    char name[5000];
    o.ops->name(o.source, 1, name, sizeof name);
    ck_contains(name, "t.csv:5");
    source_close(&o);
    o = open_with("label=kind", "vector=a b, height", NULL);
    holds(&o, 0, 9, 1, 3);
    source_close(&o);
}

TEST(no_header) {
    put("0;1.5;2\n1;2.5;3\n");
    opened o = open_with("header=no", "label=1", "delimiter=;");
    ck_assert_int_eq(o.info.samples, 2);
    source_close(&o);
    const char *sets[] = {file,          "header=no",   "label=1",
                          "delimiter=;", "vector=2..3", NULL};
    ck_assert_int_eq(source_open("csv", 0, sets, &o), DLC_OK);
    holds(&o, 1, 2.5, 3, 1);
    source_close(&o);
    put("0\t1\t2\n");
    sets[3] = "delimiter=tab";
    ck_assert_int_eq(source_open("csv", 0, sets, &o), DLC_OK);
    holds(&o, 0, 1, 2, 0);
    source_close(&o);
}

/* Quotes, with delimiters, newlines and quotes in them, also in names of columns. */
TEST(quotes) {
    put("\"a,\"\"x\"\"\",\"b\nc\",\303\274,kind\n"
        "\"1\",2,\"free, \"\"text\"\"\n\nand more\",\"cat\"\n"
        "3,\"4\",,dog\n");
    opened o = open_with("label=kind", "classes=dog, cat", "vector=1..2");
    ck_assert_int_eq(o.info.samples, 2);
    ck_assert_str_eq(o.info.fields[0].class_names[1], "cat");
    holds(&o, 0, 1, 2, 1);
    holds(&o, 1, 3, 4, 0);
    char name[5000];
    o.ops->name(o.source, 1, name, sizeof name);
    ck_contains(name, "t.csv:6");
    source_close(&o);
}

/* Rows at the ends of blocks of a large file, in little time. */
TEST(many_rows) {
    int rows = SANITIZED ? 100000 : 1000000;
    FILE *to = fopen(scratch_path("t.csv"), "w");
    ck_assert_ptr_nonnull(to);
    fputs("x,y,l\n", to);
    for (int i = 0; i < rows; i++)
        fprintf(to, i % 7 ? "%d,%d,%d\n" : "\"%d\",%d,\"%d\"\r\n", i, i + 1, i % 10);
    ck_assert_int_eq(fclose(to), 0);
    clock_t begin = clock();
    opened o = open_with("label=l", "vector=x, y", NULL);
    ck_assert_double_lt((double)(clock() - begin) / CLOCKS_PER_SEC, 2);
    ck_assert_int_eq(o.info.samples, rows);
    for (int i = 0; i < rows; i += 997)
        holds(&o, i, (float)i, (float)(i + 1), i % 10);
    source_close(&o);
}

/* ---- Fields -------------------------------------------------------------------- */

TEST(images) {
    static const float pixels[] = {1, 2, 3, 4, 5, 6};
    put("l,p0,p1,p2,p3,p4,p5,m0,m1,m2\n1,1,2,3,4,5,6,0,1,1\n");
    opened o = open_with("image=p0..p5", "shape=1,2,3", "labels=m0..m2");
    ck_assert_int_eq(o.info.fields[0].role, DLC_ROLE_IMAGE);
    ck_assert(dlc_shape_equal(&o.info.fields[0].shape, &(dlc_shape){3, {1, 2, 3}}));
    ck_assert_int_eq(o.info.fields[1].role, DLC_ROLE_CLASSES);
    ck_assert_int_eq(o.info.fields[1].classes, 3);
    source_holds(&o, 0, "image", pixels, sizeof pixels);
    source_holds(&o, 0, "labels", "\0\1\1", 3);
    source_close(&o);
    o = open_with("image=2..7", NULL, NULL);
    ck_assert(dlc_shape_equal(&o.info.fields[0].shape, &(dlc_shape){3, {6, 1, 1}}));
    source_close(&o);
    source_refused("csv", (const char *[]){file, "image=2..7", "shape=1,2,4", NULL},
                   DLC_ERR_CONFIG, "whose product is the number of columns, 6");
}

TEST(image_files) {
    char folder[4200];
    dlc_value value;
    put("path,age\n\"an image, \303\274.png\",33\nmissing.png,44\n");
    scratch_write("an image, \303\274.png", "picture", 7);
    opened o = open_with("path=path", "vector=age", "grey=yes");
    ck_assert_uint_eq(o.info.fields[0].flags, DLC_FIELD_ENCODED);
    ck_assert_int_eq(o.info.fields[0].shape.dims[0], 1);
    source_holds(&o, 0, "image", "picture", 7);
    source_holds(&o, 1, "vector", &(float){44}, sizeof(float));
    ck_assert_int_eq(source_read(&o, 1, "image", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "missing.png: No such file");
    source_close(&o);
    (void)snprintf(folder, sizeof folder, "folder=%s", scratch_path("nowhere"));
    o = open_with("path=1", folder, NULL);
    ck_assert_int_eq(source_read(&o, 0, "image", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "/nowhere/an image");
    source_close(&o);
}

/* Classes by number or by name; boxes without one are none, whatever else is there. */
TEST(boxes) {
    static const float first[] = {1, 0, 1.5f, 2, 3, 0, 4, 5, 6, 7};
    static const float second[] = {-1, 0, 0, 0, 0, 1, 2, 2, 3, 4};
    put("c,x,y,r,b,c2,x2,y2,r2,b2,p\n1,0,1.5,2,3,cat,4,5,6,7,0.5\n,,x,,,1,2,2,3,4,1\n"
        " -1,,,,, ,,,,,2\n");
    opened o = open_with("boxes=c..b2", "vector=p", "classes=cat,dog");
    int32_t f = source_field(&o, "boxes");
    ck_assert_int_eq(o.info.fields[f].role, DLC_ROLE_BOXES);
    ck_assert_int_eq(o.info.fields[f].classes, 2);
    ck_assert_str_eq(o.info.fields[f].class_names[1], "dog");
    ck_assert(dlc_shape_equal(&o.info.fields[f].shape, &(dlc_shape){2, {2, 5}}));
    source_holds(&o, 0, "boxes", first, sizeof first);
    source_holds(&o, 1, "boxes", second, sizeof second);
    static const float none[] = {-1, 0, 0, 0, 0, -1, 0, 0, 0, 0};
    source_holds(&o, 2, "boxes", none, sizeof none);
    source_close(&o);
    o = open_with("boxes=c, y, x, b, r", "vector=p", NULL);
    ck_assert_int_eq(o.info.fields[source_field(&o, "boxes")].classes, 0);
    source_holds(&o, 0, "boxes", (float[]){1, 1.5f, 0, 3, 2}, 20);
    source_close(&o);
}

/* What losses leave out: a class, some of several, and numbers beside an image. */
TEST(what_does_not_count) {
    float numbers[2];
    dlc_value value;
    put("p,l,a,b,c,x,y\n9,-1,1,nan,-1,NaN,5\n9, 1 ,0,1,0,6,-7\n");
    opened o = open_with("image=p", "label=l", "vector=x,y");
    ck_assert_int_eq(o.info.fields[source_field(&o, "label")].classes, 2);
    source_holds(&o, 0, "label", &(int32_t){DLC_LABEL_NONE}, sizeof(int32_t));
    source_holds(&o, 1, "label", &(int32_t){1}, sizeof(int32_t));
    ck_assert_int_eq(source_read(&o, 0, "vector", &value), DLC_OK);
    memcpy(numbers, value.data, sizeof numbers);
    ck_assert_float_nan(numbers[0]);
    ck_assert_float_eq(numbers[1], 5);
    source_close(&o);
    o = open_with("image=p", "labels=a..c", NULL);
    source_holds(&o, 0, "labels", "\1\377\377", 3);
    source_holds(&o, 1, "labels", "\0\1\0", 3);
    source_close(&o);
}

/* As pandas writes them: whole numbers beside missing ones, and those that miss; blanks
 * around cells, unless they are quoted. */
TEST(as_other_programs_write) {
    dlc_value value;
    put("p, l,\tx ,\"y \"\n9, 0.0,, 5\n 9 ,2.0,6,\nnan,, nan ,7\n9,nan,1,1\n");
    opened o = open_with("image=p", "label=l", "vector=x,4");
    ck_assert_int_eq(o.info.fields[source_field(&o, "label")].classes, 3);
    for (int i = 0; i < 4; i++) {
        static const int32_t label[] = {0, 2, DLC_LABEL_NONE, DLC_LABEL_NONE};
        source_holds(&o, i, "label", &label[i], sizeof *label);
        ck_assert_int_eq(source_read(&o, i, "vector", &value), DLC_OK);
        ck_assert_int_eq(isnan(((const float *)value.data)[0]), i % 2 == 0);
        ck_assert_int_eq(isnan(((const float *)value.data)[1]), i == 1);
    }
    ck_assert_int_eq(source_read(&o, 2, "image", &value), DLC_ERR_DATA);
    source_close(&o);
    put("kind, x\n\"a b\" , 1\n cat, 2\n");
    o = open_with("label=kind", "classes=a b, cat, 1.0", "vector=x,x");
    holds(&o, 0, 1, 1, 0);
    holds(&o, 1, 2, 2, 1);
    source_close(&o);
}

/* ---- Refusals ------------------------------------------------------------------ */

static void refused(const char *text, const char *first, const char *second,
                    dlc_status status, const char *detail) {
    put(text);
    source_refused("csv", (const char *[]){file, first, second, NULL}, status, detail);
}

TEST(damaged_rows) {
    refused("", "label=1", NULL, DLC_ERR_DATA,
            "t.csv: it has no rows below its header");
    refused("a\n", "label=1", NULL, DLC_ERR_DATA, "it has no rows below its header");
    refused("a,b\n1,2\n1\n", "label=1", NULL, DLC_ERR_DATA,
            "t.csv:3: it has 1 cells, but the first row has 2");
    refused("a,b\n1,2\n1,2,3\n", "label=1", NULL, DLC_ERR_DATA, "t.csv:3: it has 3");
    refused("a,b\n1,\"2\n", "label=1", NULL, DLC_ERR_DATA,
            "t.csv:2: cell 2: a quote is not closed");
    refused("a,b\n1,\"2\"x\n", "label=1", NULL, DLC_ERR_DATA,
            "t.csv:2: cell 2: there is something after its closing quote");
    refused("a,b\n1,2\"x\"\n", "label=1", NULL, DLC_ERR_DATA,
            "t.csv:2: cell 2: a quote inside");
    scratch_write("t.csv", "a\n1\0\n", 5);
    source_refused("csv", (const char *[]){file, "label=1", NULL}, DLC_ERR_DATA,
                   "t.csv:2: cell 1: it has a zero byte");
    char *far = malloc(17 << 20);
    ck_assert_ptr_nonnull(far);
    memset(far, 'x', 17 << 20);
    memcpy(far, "a\n\"", 3);
    scratch_write("t.csv", far, 17 << 20);
    free(far);
    source_refused("csv", (const char *[]){file, "label=1", NULL}, DLC_ERR_DATA,
                   "t.csv:2: a row of more than 16777216 bytes; a quote may be");
}

TEST(damaged_cells) {
    static const char *const labels[] = {"x",   "-2", "-1x", "1.5", "99999999999",
                                         "1 2", ".0", "1e0", "inf"};
    static const char *const numbers[] = {"x", "", "1.5.2", "nan", "inf", "1e99", "0x"};
    char text[100];
    dlc_value value;
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        (void)snprintf(text, sizeof text, "a,b\n1,2\n3,%s\n", labels[i]);
        refused(text, "label=b", NULL, DLC_ERR_DATA, "t.csv:3: column 2, b: \"");
        ck_contains(dlc_detail(), "is neither the number of a class nor the name");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(text, sizeof text, "a,b\n1,2\n%s,1\n", numbers[i]);
        put(text);
        opened o = open_with("vector=a", NULL, NULL);
        source_holds(&o, 0, "vector", &(float){1}, sizeof(float));
        ck_assert_int_eq(source_read(&o, 1, "vector", &value), DLC_ERR_DATA);
        ck_contains(dlc_detail(), "t.csv:3: column 1, a: \"");
        ck_contains(dlc_detail(), "is not a number");
        source_close(&o);
    }
    put("a\n2\n");
    opened o = open_with("labels=a", NULL, NULL);
    ck_assert_int_eq(source_read(&o, 0, "labels", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "\"2\" is not 1, 0 or -1");
    source_close(&o);
    put("c,x,y,r,b\n0,1,2,3,nan\ncat,1,2,3,4\n");
    o = open_with("boxes=1..5", NULL, NULL);
    ck_assert_int_eq(source_read(&o, 0, "boxes", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "t.csv:2: column 5, b: \"nan\" is not a number");
    ck_assert_int_eq(source_read(&o, 1, "boxes", &value), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "t.csv:3: column 1, c: \"cat\" is neither the number of");
    source_close(&o);
}

TEST(too_many_classes) {
    refused("a,b\n1,99999999\n", "label=b", NULL, DLC_ERR_DATA,
            "t.csv: it has a label 99999999, but only 1 samples");
    put("a,b\n1,99999\n");
    opened o = open_with("label=b", NULL, NULL);
    source_close(&o);
}

TEST(wrong_settings) {
    const char *text = "a,b\n1,2\n";
    refused(text, NULL, NULL, DLC_ERR_CONFIG, "csv needs a column for something");
    refused(
        text, "label=c", NULL, DLC_ERR_DATA,
        "there is no column \"c\": the 2 columns have the numbers from 1, and names");
    refused(text, "label=0", NULL, DLC_ERR_DATA, "there is no column \"0\"");
    refused(text, "label=3", NULL, DLC_ERR_DATA, "there is no column \"3\"");
    refused(text, "vector=b..a", NULL, DLC_ERR_DATA, "there is no column \"b..a\"");
    refused(text, "vector=a..", NULL, DLC_ERR_DATA, "there is no column \"a..\"");
    refused(text, "vector=1,,2", NULL, DLC_ERR_DATA, "there is no column \"\"");
    refused(text, "label=a,b", NULL, DLC_ERR_CONFIG, "it is one column; see `labels`");
    refused(text, "boxes=a,b", NULL, DLC_ERR_CONFIG,
            "boxes: there are 2 columns, but each box has five");
    refused(text, "path=a", "image=b", DLC_ERR_CONFIG, "instead of `image`");
    refused(text, "label=a", "delimiter=ab", DLC_ERR_CONFIG, "it is one character");
    refused(text, "label=a", "classes=x, y,z ,y", DLC_ERR_CONFIG,
            "the class \"y\" is there twice");
    refused(text, "label=a", "classes=x", DLC_ERR_DATA,
            "it has a label 1, but there are 1 names");
}

/* ---- All of them --------------------------------------------------------------- */

TEST(mutations) {
    put("kind,\"x, 1\",y\r\n1,\"2\",3\r\n0,\"4\",5e3\r\n\"2\",6,\"7\"\r\n3,8,-9.5\r\n");
    source_mutate("csv", (const char *[]){file, "label=1", "vector=2..3", NULL},
                  "t.csv", 1000, 270);
}

TEST(without_memory) {
    put("kind,x,y\n1,2,3\n0,4,5\n");
    source_starved(
        "csv", (const char *[]){file, "label=1", "vector=2..3", "classes=a,b", NULL});
}
