/* Tests the plugin: generates a folder of images, reads it and compares; then damages
 * files and checks that errors name them. Arguments: the plugin, the folder to make. */
#include <dlfcn.h>
#include <errno.h>
#include <png.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>

#include <dlcore/data.h>

enum { SIDE = 8, CLASSES = 3, EACH = 24, SAMPLES = CLASSES * EACH };
enum { VALUES = 3 * SIDE * SIDE };

static const char *const class_name[CLASSES] = {"ant", "bee", "cat"};

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("%s:%d: %s (the last failure: %s)\n", __FILE__, __LINE__, \
                   #condition, detail); \
            exit(1); \
        } \
    } while (0)

/* ---- Fake host -------------------------------------------------------------- */

static char detail[512] = "none";
static const char *root;
static int64_t dims[] = {3, SIDE, SIDE};

static dlc_status host_fail(dlc_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    return status;
}

static void host_log(dlc_log_level level, const char *format, ...) {
    (void)level;
    (void)format;
}

static void *host_alloc(size_t bytes) {
    return calloc(1, bytes + 1);
}

static size_t get_ints(const dlc_settings *settings, const char *name,
                       const int64_t **values) {
    (void)settings;
    (void)name;
    *values = dims;
    return 3;
}

static const char *written = ""; /* the setting `classes` */

static const char *get_string(const dlc_settings *settings, const char *name) {
    (void)settings;
    return strcmp(name, "classes") == 0 ? written : root;
}

static int get_bool(const dlc_settings *settings, const char *name) {
    (void)settings;
    (void)name;
    return 1;
}

static const dlc_host host = {.size = sizeof host,
                              .log = host_log,
                              .fail = host_fail,
                              .alloc = host_alloc,
                              .free = free,
                              .get_bool = get_bool,
                              .get_string = get_string,
                              .get_ints = get_ints};

/* ---- Pictures --------------------------------------------------------------- */

/* Paints noise, with the colour channel of the label brighter than the others. */
static void paint(unsigned char *pixels, int width, int height, int label, unsigned n) {
    for (int i = 0; i < width * height; i++)
        for (int c = 0; c < 3; c++) {
            n = n * 1103515245u + 12345u;
            pixels[3 * i + c] = (unsigned char)((n >> 24 & 63) +
                                                (c == label ? 160 : 0));
        }
}

static void write_png(const char *path, const unsigned char *pixels, int width,
                      int height) {
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    CHECK(png_image_write_to_file(&image, path, 0, pixels, 0, NULL));
}

static void write_jpeg(const char *path, const unsigned char *pixels, int width,
                       int height) {
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    tjhandle writer = tjInitCompress();
    CHECK(tjCompress2(writer, pixels, width, 0, height, TJPF_RGB, &bytes, &size,
                      TJSAMP_444, 95, 0) == 0);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    tjFree(bytes);
    (void)tjDestroy(writer);
}

static void path_of(char path[256], int label, int i) {
    static const char *const ending[] = {"png", "jpg", "JPEG"};
    (void)snprintf(path, 256, "%s/%s/%02d.%s", root, class_name[label], i,
                   ending[i % 3]);
}

static void make_folder(const char *path) {
    CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
}

/* Image 0 of each class has the size of samples; the others have other sizes. */
static void make_pictures(void) {
    static unsigned char pixels[3 * 64 * 64];
    char path[256];
    make_folder(root);
    for (int label = 0; label < CLASSES; label++) {
        (void)snprintf(path, sizeof path, "%s/%s", root, class_name[label]);
        make_folder(path);
        for (int i = 0; i < EACH; i++) {
            int width = SIDE + 5 * (i % 7), height = SIDE + (3 * i) % 11;
            width = i ? width : SIDE;
            paint(pixels, width, height, label, (unsigned)(100 * label + i));
            path_of(path, label, i);
            (i % 3 ? write_jpeg : write_png)(path, pixels, width, height);
        }
    }
    (void)snprintf(path, sizeof path, "%s/ant/notes.txt", root);
    FILE *file = fopen(path, "w");
    CHECK(file && fclose(file) == 0);
}

/* ---- Checks ----------------------------------------------------------------- */

static const dlc_data_ops *ops;

static dlc_source *open_source(void) {
    const dlc_data_args args = {.size = sizeof args};
    dlc_source *source = NULL;
    CHECK(ops->open(&args, &source) == DLC_OK);
    return source;
}

static void check_samples(dlc_source *source) {
    static unsigned char all[SAMPLES * VALUES], one[VALUES], exact[VALUES];
    int32_t labels[SAMPLES], label;
    int64_t index[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        index[i] = i;
    CHECK(ops->read(source, SAMPLES, index, all, labels) == DLC_OK);
    for (int i = SAMPLES - 1; i >= 0; i--) { /* the order must not matter */
        CHECK(ops->read(source, 1, &index[i], one, &label) == DLC_OK);
        CHECK(memcmp(one, all + (size_t)i * VALUES, VALUES) == 0);
        CHECK(label == i / EACH && label == labels[i]);
        for (int c = 0; c < 3; c++) { /* the plane of each colour */
            int sum = 0;
            for (int k = 0; k < SIDE * SIDE; k++)
                sum += one[c * SIDE * SIDE + k];
            CHECK((sum > 128 * SIDE * SIDE) == (c == label));
        }
        for (int other = 0; other < i; other++) /* all samples differ */
            CHECK(memcmp(one, all + (size_t)other * VALUES, VALUES) != 0);
    }
    for (int c = 0; c < CLASSES; c++) { /* image 0 is not resized */
        paint(exact, SIDE, SIDE, c, (unsigned)(100 * c));
        for (int k = 0; k < VALUES; k++)
            CHECK(all[(size_t)c * EACH * VALUES +
                      (size_t)(k % 3 * SIDE * SIDE + k / 3)] == exact[k]);
    }
}

/* An image of one colour must keep its colour when it is resized and made grey. */
static void check_plain(int grey) {
    static unsigned char pixels[3 * 64 * 64], sample[VALUES];
    char path[256];
    int32_t label;
    int64_t index = 0;
    memset(pixels, 77, sizeof pixels);
    path_of(path, 0, 0);
    write_png(path, pixels, 61, 3);
    dims[0] = grey ? 1 : 3;
    dlc_source *source = open_source();
    CHECK(ops->read(source, 1, &index, sample, &label) == DLC_OK);
    for (int k = 0; k < (grey ? VALUES / 3 : VALUES); k++)
        CHECK(sample[k] == 77);
    ops->close(source);
    dims[0] = 3;
    paint(pixels, SIDE, SIDE, 0, 0);
    write_png(path, pixels, SIDE, SIDE);
}

/* A file that is truncated within its header must be an error of open; after the
 * header, of read. */
static void check_broken(int i, off_t bytes, int opens) {
    char path[256], whole[300];
    const dlc_data_args args = {.size = sizeof args};
    unsigned char sample[VALUES];
    dlc_source *source = NULL;
    int32_t label;
    int64_t index = i;
    path_of(path, 0, i);
    (void)snprintf(whole, sizeof whole, "cp '%s' '%s.whole'", path, path);
    CHECK(system(whole) == 0);
    CHECK(truncate(path, bytes) == 0);
    (void)snprintf(detail, sizeof detail, "none");
    dlc_status rc = ops->open(&args, &source);
    CHECK((rc == DLC_OK) == opens);
    if (rc == DLC_OK)
        rc = ops->read(source, 1, &index, sample, &label);
    CHECK(rc == DLC_ERR_DATA && strstr(detail, path));
    ops->close(source);
    (void)snprintf(whole, sizeof whole, "%s.whole", path);
    CHECK(rename(whole, path) == 0);
}

static void check_folders(const char *made) {
    const dlc_data_args args = {.size = sizeof args};
    dlc_source *source = NULL;
    root = "no/such/folder";
    CHECK(ops->open(&args, &source) == DLC_ERR_DATA && strstr(detail, root));
    root = "nothing-in-it";
    make_folder(root);
    CHECK(ops->open(&args, &source) == DLC_ERR_DATA && strstr(detail, "no images"));
    CHECK(rmdir(root) == 0 && !source);
    root = made;
}

/* Labels must follow from the class names that are given, not from the folders. */
static void check_classes(void) {
    static const char *const given[] = {"aardvark", "ant", "bee", "cat", "dog"};
    const dlc_data_args args = {
        .size = sizeof args, .class_names = given, .classes = 5};
    dlc_data_info info = {.size = sizeof info};
    unsigned char sample[VALUES];
    dlc_source *source = NULL;
    int32_t label;
    for (int i = 0; i < 2; i++) {
        written = i ? "dog, cat,bee , aardvark,ant" : "";
        CHECK(ops->open(&args, &source) == DLC_OK);
        CHECK(ops->describe(source, &info) == DLC_OK && info.classes == 5);
        CHECK(!strcmp(info.class_names[0], i ? "dog" : "aardvark"));
        for (int64_t n = 0; n < SAMPLES; n += EACH) {
            CHECK(ops->read(source, 1, &n, sample, &label) == DLC_OK);
            CHECK(!strcmp(info.class_names[label], class_name[n / EACH]));
        }
        ops->close(source);
        source = NULL;
    }
    written = "ant, bee";
    CHECK(ops->open(&args, &source) == DLC_ERR_DATA && strstr(detail, "/cat: "));
    written = "ant,,bee";
    CHECK(ops->open(&args, &source) == DLC_ERR_CONFIG && strstr(detail, "ant,,bee"));
    written = "";
    CHECK(!source);
}

int main(int argc, char **argv) {
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    dlc_data_info info = {.size = sizeof info};
    if (!plugin || plugin->load(&host) != DLC_OK) {
        puts("usage: samples PLUGIN.so FOLDER");
        return 2;
    }
    ops = plugin->features->ops;
    root = argv[2];
    make_pictures();
    dlc_source *source = open_source();
    CHECK(ops->describe(source, &info) == DLC_OK);
    CHECK(info.samples == SAMPLES && info.classes == CLASSES && info.dtype == DLC_U8);
    CHECK(dlc_shape_count(&info.shape) == VALUES);
    check_samples(source);
    ops->close(source);
    ops->close(NULL);
    check_classes();
    check_plain(0);
    check_plain(1);
    check_broken(0, 60, 1); /* PNG */
    check_broken(0, 20, 0);
    check_broken(1, 700, 1); /* JPEG */
    check_broken(1, 20, 0);
    check_broken(2, 4, 0);
    check_folders(argv[2]);
    return 0;
}
