/* Tests the source of image files: folders of any kind, lists, and what is refused. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "data/samples.h"
#include "source.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

enum { FAR = 12000 };

static char text[FAR]; /* of put */

static void make(const char *path) {
    ck_assert_int_eq(mkdir(scratch_path(path), 0777), 0);
}

static void put(const char *path, const char *contents) {
    scratch_write(path, contents, strlen(contents));
}

static const char *setting(const char *key, const char *path) {
    static char texts[2][5000];
    static int turn;
    char *to = texts[turn ^= 1];
    (void)snprintf(to, sizeof texts[0], "%s=%s", key, scratch_path(path));
    return to;
}

static opened open_with(const char *first, const char *second) {
    opened o;
    dlc_status status = source_open("images", 0, (const char *[]){first, second, NULL},
                                    &o);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return o;
}

/* Checks the bytes and the label of a sample. */
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

static void unreadable(const opened *o, int64_t index, const char *detail) {
    dlc_samples samples;
    dlc_read_sample read = {0};
    ck_assert_int_eq(dlc_samples_describe(o->ops, o->source, &samples), DLC_OK);
    ck_assert_int_eq(dlc_samples_read(&samples, index, 0, NULL, &read), DLC_ERR_DATA);
    ck_contains(dlc_detail(), detail);
    dlc_read_sample_free(&read);
}

static void setup(void) {
    scratch_setup();
    make("p");
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = scratch_teardown);

/* ---- Folders ----------------------------------------------------------------- */

/* Names of all kinds, folders in folders, other files, and links. */
TEST(folders) {
    make("p/b");
    make("p/a");
    make("p/a/deep");
    make("p/a/deep/er");
    make("elsewhere");
    put("p/a/2 two.JPG", "a2");
    put("p/a/1\nline.png", "a1");
    put("p/a/deep/er/x.webp", "axx");
    put("p/a/notes.txt", "no");
    put("p/a/.hidden.png", "no");
    put("p/b/\303\244\303\266.jpeg", "b");
    put("p/README", "no");
    put("elsewhere/z.png", "z");
    ck_assert_int_eq(symlink(scratch_path("elsewhere"), scratch_path("p/b/link")), 0);
    opened o = open_with(setting("folder", "p"), NULL);
    ck_assert_int_eq(o.info.samples, 5);
    ck_assert_int_eq(o.info.fields[1].classes, 2);
    ck_assert_str_eq(o.info.fields[1].class_names[0], "a");
    ck_assert_str_eq(o.info.fields[1].class_names[1], "b");
    holds(&o, 0, "a1", 0);
    holds(&o, 1, "a2", 0);
    holds(&o, 2, "axx", 0);
    holds(&o, 3, "z", 1);
    holds(&o, 4, "b", 1);
    o.ops->name(o.source, 3, text, sizeof text);
    ck_contains(text, "/p/b/link/z.png");
    source_close(&o);
}

TEST(links_that_lead_back) {
    make("p/a");
    make("p/a/b");
    put("p/a/b/1.png", "1");
    ck_assert_int_eq(symlink("..", scratch_path("p/a/b/up")), 0);
    ck_assert_int_eq(symlink(scratch_path("p"), scratch_path("p/a/root")), 0);
    ck_assert_int_eq(symlink("itself.png", scratch_path("p/a/itself.png")), 0);
    opened o = open_with(setting("folder", "p"), NULL);
    ck_assert_int_eq(o.info.samples, 2);
    holds(&o, 0, "1", 0);
    unreadable(&o, 1, "itself.png: Too many levels of symbolic links");
    source_close(&o);
}

TEST(files_that_cannot_be_read) {
    make("p/a");
    put("p/a/1.png", "1");
    put("p/a/2.png", "");
    ck_assert_int_eq(symlink("nowhere", scratch_path("p/a/3.png")), 0);
    ck_assert_int_eq(mkfifo(scratch_path("p/a/4.png"), 0666), 0);
    opened o = open_with(setting("folder", "p"), NULL);
    ck_assert_int_eq(o.info.samples, 4);
    holds(&o, 0, "1", 0);
    holds(&o, 1, "", 0);
    unreadable(&o, 2, "p/a/3.png: No such file or directory");
    unreadable(&o, 3, "p/a/4.png: not a file");
    ck_assert_int_eq(unlink(scratch_path("p/a/1.png")), 0);
    unreadable(&o, 0, "p/a/1.png: No such file or directory");
    source_close(&o);
}

TEST(refused_folders) {
    const char *sets[] = {setting("folder", "p"), NULL, NULL};
    source_refused("images", (const char *[]){NULL}, DLC_ERR_CONFIG,
                   "images needs `folder`");
    source_refused("images", (const char *[]){"folder=/nowhere", NULL}, DLC_ERR_DATA,
                   "cannot open the folder /nowhere: No such file");
    source_refused("images", sets, DLC_ERR_DATA,
                   "no images; each class needs a folder");
    make("p/a");
    source_refused("images", sets, DLC_ERR_DATA,
                   "no images; each class needs a folder");
    put("p/1.png", "1");
    source_refused("images", sets, DLC_ERR_DATA, "p/1.png: an image in no class");
    ck_assert_int_eq(unlink(scratch_path("p/1.png")), 0);
    put("p/a/1.png", "1");
    sets[1] = "classes=b,c";
    source_refused("images", sets, DLC_ERR_DATA,
                   "p/a: a folder whose name is none of the 2 classes (b, ...)");
    sets[1] = "classes=a,,c";
    source_refused("images", sets, DLC_ERR_CONFIG, "a class has no name");
    sets[1] = "endings=tiff";
    source_refused("images", sets, DLC_ERR_DATA, "no images");
}

TEST(known_classes) {
    make("p/a");
    make("p/c");
    put("p/a/1.tif", "a");
    put("p/c/1.tif", "c");
    opened o;
    const char *sets[] = {setting("folder", "p"), "classes= c, b,a", "endings=tif, x",
                          NULL};
    ck_assert_int_eq(source_open("images", 0, sets, &o), DLC_OK);
    ck_assert_int_eq(o.info.fields[1].classes, 3);
    holds(&o, 0, "a", 2);
    holds(&o, 1, "c", 0);
    source_close(&o);
}

TEST(too_deep) {
    char path[2048] = "p";
    for (int i = 0; i < 70; i++) {
        strcat(path, "/d");
        make(path);
    }
    strcat(path, "/1.png");
    put(path, "1");
    source_refused("images", (const char *[]){setting("folder", "p"), NULL},
                   DLC_ERR_DATA, "nested too deeply");
}

/* ---- Lists ------------------------------------------------------------------- */

TEST(lists) {
    make("p/a");
    put("p/a/1.png", "1");
    put("p/with a space 7", "2");
    put("absolute", "3");
    (void)snprintf(
        text, sizeof text,
        "a/1.png 3\n\n  \nwith a space 7\t 0 \r\n%s    12.0\na/1.png 3\na/1.png -1",
        scratch_path("absolute"));
    put("p/list", text);
    opened o = open_with(setting("list", "p/list"), NULL);
    ck_assert_int_eq(o.info.samples, 5);
    ck_assert_int_eq(o.info.fields[1].classes, 13);
    ck_assert_ptr_null(o.info.fields[1].class_names);
    holds(&o, 0, "1", 3);
    holds(&o, 1, "2", 0);
    holds(&o, 2, "3", 12);
    holds(&o, 3, "1", 3);
    holds(&o, 4, "1", DLC_LABEL_NONE);
    source_close(&o);
    put("list", "\xef\xbb\xbf"
                "1.png 1\n");
    const char *sets[] = {setting("list", "list"), setting("folder", "p/a"),
                          "classes=no,yes", NULL};
    ck_assert_int_eq(source_open("images", 0, sets, &o), DLC_OK);
    holds(&o, 0, "1", 1);
    ck_assert_str_eq(o.info.fields[1].class_names[1], "yes");
    source_close(&o);
}

TEST(several_classes) {
    put("p/list", "a b.png 3 0\n7 up.png\nc 1\t1 \r\n");
    opened o = open_with(setting("list", "p/list"), "multi_label=yes");
    ck_assert_int_eq(o.info.samples, 3);
    ck_assert_str_eq(o.info.fields[1].name, "labels");
    ck_assert_int_eq(o.info.fields[1].role, DLC_ROLE_CLASSES);
    ck_assert_int_eq(o.info.fields[1].classes, 4);
    source_holds(&o, 0, "labels", "\1\0\0\1", 4);
    source_holds(&o, 1, "labels", "\0\0\0\0", 4);
    source_holds(&o, 2, "labels", "\0\1\0\0", 4);
    o.ops->name(o.source, 0, text, sizeof text);
    ck_contains(text, "/p/a b.png");
    source_close(&o);
    const char *sets[] = {setting("list", "p/list"), "multi_label=yes",
                          "classes=a,b,c,d,e", NULL};
    ck_assert_int_eq(source_open("images", 0, sets, &o), DLC_OK);
    ck_assert_str_eq(o.info.fields[1].class_names[4], "e");
    source_holds(&o, 2, "labels", "\0\1\0\0\0", 5);
    source_close(&o);
    sets[2] = "classes=a,b,c";
    source_refused("images", sets, DLC_ERR_DATA, "it has a label 3, but there are 3");
    sets[2] = NULL;
    put("p/list", "a.png 1\nb.png 99999999999\n");
    source_refused("images", sets, DLC_ERR_DATA,
                   "list:2: \"b.png 99999999999\" is not");
    put("p/list", "a.png -1\n");
    source_refused("images", sets, DLC_ERR_DATA, "list:1: \"a.png -1\" is not");
    put("p/list", "a.png\n");
    source_refused("images", sets, DLC_ERR_DATA, "list: no image is of a class");
    sets[0] = setting("folder", "p");
    source_refused("images", sets, DLC_ERR_CONFIG, "only a `list` has several classes");
}

TEST(refused_lists) {
    static const char *const lines[] = {
        "a.png", "a.png -2", "a.png x",   "3",  "a.png -11", "a.png-1",
        " 3",    "a.png3",   "a.png 1.5", "-1", " -1",       "a.png 999999999999"};
    const char *sets[] = {setting("list", "list"), NULL, NULL};
    source_refused("images", sets, DLC_ERR_DATA, "No such file or directory");
    put("list", "");
    source_refused("images", sets, DLC_ERR_DATA, "no images; its lines are");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        (void)snprintf(text, sizeof text, "good.png 1\n\n%s\n", lines[i]);
        put("list", text);
        source_refused("images", sets, DLC_ERR_DATA, "list:3: \"");
        ck_contains(dlc_detail(), "is not the path of an image and the number");
    }
    put("list", "a.png 99999999\n");
    source_refused("images", sets, DLC_ERR_DATA,
                   "list: it has a label 99999999, but only 1 samples");
    sets[1] = "multi_label=yes";
    source_refused("images", sets, DLC_ERR_DATA,
                   "list: it has a label 99999999, but only 1 samples");
    put("list", "a.png 2\n");
    sets[1] = "classes=a,b";
    source_refused("images", sets, DLC_ERR_DATA,
                   "it has a label 2, but there are 2 names");
    sets[0] = setting("list", "p");
    source_refused("images", sets, DLC_ERR_DATA, "p is not a file");
}

TEST(a_million_lines) {
    int lines = SANITIZED ? 100000 : 1300000;
    FILE *file = fopen(scratch_path("list"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < lines; i++)
        fprintf(file, "n%08d/n%08d_%d.JPEG %d\n", i / 1300, i / 1300, i, i / 1300);
    ck_assert_int_eq(fclose(file), 0);
    clock_t begin = clock(); /* of the CPU: other tests run beside this one */
    opened o = open_with(setting("list", "list"), NULL);
    ck_assert_double_lt((double)(clock() - begin) / CLOCKS_PER_SEC, 2);
    ck_assert_int_eq(o.info.samples, lines);
    o.ops->name(o.source, lines - 1, text, sizeof text);
    (void)snprintf(text + 6000, 6000, "/n%08d/n%08d_%d.JPEG", (lines - 1) / 1300,
                   (lines - 1) / 1300, lines - 1);
    ck_contains(text, text + 6000);
    source_close(&o);
}

TEST(without_memory) {
    make("p/a");
    make("p/b");
    put("p/a/1.png", "1");
    put("p/b/2.png", "2");
    put("list", "a.png 0\nb.png 1\n");
    source_starved("images", (const char *[]){setting("folder", "p"), NULL});
    source_starved("images",
                   (const char *[]){setting("folder", "p"), "classes=a,b", NULL});
    source_starved("images", (const char *[]){setting("list", "list"), NULL});
}
