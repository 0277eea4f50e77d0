/* Tests what cuDNN can fuse in each precision, for a GPU that is not here, so that a
 * regression of cuDNN is noticed; and plans that are read from the disk cache. */
#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "graph.h"
#include "plan_cache.h"
#include "plugin/object.h"
#include "support/scratch.h"
#include "support/test.h"

const dlc_host *host;

static context *net;

static void open_net(dlc_dtype precision, uint32_t math) {
    const dlc_family_args args = {.size = sizeof args,
                                  .phase = DLC_PHASE_TRAIN,
                                  .precision = precision,
                                  .math = math};
    void *opened = NULL;
    dlc_status status = cudnn_family.open(&args, &opened);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    net = opened;
}

static void close_net(void) {
    cudnn_family.close(net);
    net = NULL;
}

/* ---- Patterns ---------------------------------------------------------------- */

typedef enum pattern {
    FORWARD,
    BACKWARD_DATA,
    BACKWARD_WEIGHTS,
    ACCUMULATE_DATA,
    BIAS,
    BIAS_RELU,
    STATISTICS
} pattern;

typedef struct shape {
    const char *name;
    int64_t channels, side, filters, kernel, stride, group;
} shape;

static const shape shapes[] = {
    {"3x3", 64, 56, 64, 3, 1, 1},         {"1x1", 256, 56, 64, 1, 1, 1},
    {"first", 8, 224, 64, 7, 2, 1},       {"odd", 20, 12, 50, 5, 1, 1},
    {"depthwise", 32, 112, 32, 3, 1, 32}, {"groups", 96, 27, 256, 5, 1, 2},
    {"enlarging", 16, 12, 32, 2, 2, 1},   {"few", 3, 32, 20, 4, 2, 1}};
enum { BATCH = 32, IMAGES = 2 /* the shapes for which fp16 has statistics */ };

static void build(graph *g, pattern what, const shape *s) {
    int64_t pad = s->kernel / 2, out = (s->side + 2 * pad - s->kernel) / s->stride + 1;
    const sliding_window win = {
        {s->kernel, s->kernel}, {s->stride, s->stride}, {0, 0}, {pad, pad}, {pad, pad}};
    const bounds relu = {.high = INFINITY};
    dlc_dtype type = net->precision;
    graph_tensor x = graph_last(g, type, BATCH, s->channels, s->side, s->side);
    graph_tensor w = graph_last(g, type, s->filters, s->channels / s->group, s->kernel,
                                s->kernel);
    graph_tensor y = graph_last(g, type, BATCH, s->filters, out, out);
    if (what <= ACCUMULATE_DATA) {
        graph_convolution(g, (graph_conv)what, &win, x, w, y);
    } else if (what == STATISTICS) {
        graph_tensor sum = graph_last(g, DLC_F32, 1, s->filters, 1, 1);
        graph_tensor squares = graph_last(g, DLC_F32, 1, s->filters, 1, 1);
        graph_convolution(g, GRAPH_FORWARD, &win, x, w, y);
        graph_statistics(g, y, sum, squares);
    } else {
        graph_tensor product = graph_virtual(g, y);
        graph_tensor added = what == BIAS ? y : graph_virtual(g, y);
        graph_convolution(g, GRAPH_FORWARD, &win, x, w, product);
        graph_add(g, product, graph_last(g, type, 1, s->filters, 1, 1), added);
        if (what == BIAS_RELU)
            graph_bounds(g, &relu, added, y);
    }
}

static dlc_status make_plan(pattern what, const shape *s, const plan_bounds *limit,
                            cudnn_plan *p) {
    graph g;
    graph_open(&g, net, s->name, "do its pass");
    build(&g, what, s);
    dlc_status status = graph_plan(&g, limit, p);
    graph_close(&g);
    return status;
}

static const struct {
    const char *name;
    dlc_dtype dtype;
    uint32_t math;
} precisions[] = {{"float32", DLC_F32, 0},
                  {"tf32", DLC_F32, DLC_MATH_TF32},
                  {"bf16", DLC_BF16, 0},
                  {"fp16", DLC_F16, 0}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static const plan_bounds much = {.scratch_bytes = (size_t)1 << 30};

static void set_host(void) {
    host = dlc_host_services();
}

TEST_SETTINGS(.name = "plans", .timeout = 60, .setup_once = set_host);

TEST_EACH(patterns, PRECISIONS) {
    open_net(precisions[_i].dtype, precisions[_i].math);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (pattern what = FORWARD; what <= STATISTICS; what++) {
            cudnn_plan p = {0};
            int expected = what < STATISTICS ||
                           (net->precision == DLC_F16 && i < IMAGES);
            dlc_status status = make_plan(what, &shapes[i], &much, &p);
            if (expected)
                ck_assert_msg(status == DLC_OK, "%s, pattern %d in %s: %s",
                              shapes[i].name, (int)what, precisions[_i].name,
                              dlc_detail());
            else
                ck_assert(status == DLC_OK || status == DLC_ERR_UNSUPPORTED);
            if (status == DLC_OK)
                ck_assert_uint_le(p.scratch_bytes, much.scratch_bytes);
            plan_clear(&p);
        }
    close_net();
}

/* Plans respect the limit of scratch memory; if no engine does, an error says so. */
TEST(scratch_memory_is_bounded) {
    const plan_bounds none = {.scratch_bytes = 0};
    cudnn_plan p = {0};
    open_net(DLC_F16, 0);
    ck_assert_int_eq(make_plan(FORWARD, &shapes[0], &none, &p), DLC_OK);
    ck_assert_uint_eq(p.scratch_bytes, 0);
    close_net();
    plan_clear(&p);
    open_net(DLC_BF16, 0);
    ck_assert_int_eq(make_plan(STATISTICS, &shapes[4], &none, &p), DLC_ERR_UNSUPPORTED);
    ck_contains(dlc_detail(), "layer 'depthwise': cuDNN cannot do its pass");
    plan_clear(&p);
    close_net();
}

static int autotune_of(const dlc_family_args *args) {
    void *opened = NULL;
    ck_assert_int_eq(cudnn_family.open(args, &opened), DLC_OK);
    net = opened;
    int reported = net->autotune;
    close_net();
    return reported;
}

/* The core asks for autotuning; a core that is too old for the field does not. A GPU
 * that is not here cannot be timed, so the heuristics choose the engine. */
TEST(autotune_needs_a_gpu) {
    dlc_family_args args = {.size = sizeof args,
                            .phase = DLC_PHASE_TRAIN,
                            .precision = DLC_F16,
                            .autotune = 1};
    ck_assert_int_eq(autotune_of(&args), 1);
    args.size = offsetof(dlc_family_args, autotune);
    ck_assert_int_eq(autotune_of(&args), 0);
    cudnn_plan bare = {0}, tuned = {0};
    open_net(DLC_F16, 0);
    ck_assert_int_eq(make_plan(FORWARD, &shapes[0], &much, &bare), DLC_OK);
    net->autotune = 1;
    ck_assert_int_eq(make_plan(FORWARD, &shapes[0], &much, &tuned), DLC_OK);
    ck_assert_int_eq(bare.engine, tuned.engine);
    plan_clear(&bare);
    plan_clear(&tuned);
    close_net();
}

/* An invalid graph is reported by graph_plan, not earlier. */
TEST(invalid_graphs_are_reported) {
    cudnn_plan p = {0};
    shape wrong = shapes[0];
    graph g;
    open_net(DLC_F16, 0);
    graph_open(&g, net, "wrong", "do its pass");
    wrong.channels = 0;
    build(&g, FORWARD, &wrong);
    ck_assert_int_ne(graph_plan(&g, &much, &p), DLC_OK);
    ck_contains(dlc_detail(), "wrong");
    graph_close(&g);
    plan_clear(&p);
    close_net();
}

/* ---- The disk cache -------------------------------------------------------------- */

static const char *cache_folder(void) {
    static char path[512];
    const char *root = scratch_path("cache");
    ck_assert_int_eq(mkdir(root, 0700) == 0 || access(root, W_OK) == 0, 1);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", root, 1), 0);
    (void)unsetenv("DLCORE_CUDNN_CACHE");
    (void)snprintf(path, sizeof path, "%s/dlcore/cudnn", root);
    return path;
}

/* The path of the only file in the folder. */
static const char *only_file(const char *folder) {
    static char path[1024];
    DIR *dir = opendir(folder);
    int count = 0;
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            count++;
        }
    (void)closedir(dir);
    ck_assert_int_eq(count, 1);
    return path;
}

TEST_SETTINGS(.name = "disk", .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = set_host);

TEST(texts_are_stored) {
    const char *folder = cache_folder();
    size_t bytes = 0;
    ck_assert_ptr_null(plan_cache_load("a", &bytes));
    plan_cache_store("a", "text of a", 9);
    char *text = plan_cache_load("a", &bytes);
    ck_assert_str_eq(text, "text of a");
    ck_assert_uint_eq(bytes, 9);
    host->free(text);
    ck_assert_ptr_null(plan_cache_load("b", &bytes));
    plan_cache_store("a", "another", 7);
    text = plan_cache_load("a", &bytes);
    ck_assert_str_eq(text, "another");
    host->free(text);
    (void)only_file(folder); /* no temporary file is left */
    ck_assert_int_eq(setenv("DLCORE_CUDNN_CACHE", "no", 1), 0);
    ck_assert_ptr_null(plan_cache_load("a", &bytes));
}

static void write_file(const char *path, const unsigned char *bytes, size_t count) {
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
}

/* A file that is truncated, has a changed byte or is too long is ignored. */
TEST(damaged_files_are_ignored) {
    unsigned char file[256];
    const char *path;
    size_t bytes = 0, count;
    cache_folder();
    plan_cache_store("key", "some text", 9);
    path = only_file(cache_folder());
    FILE *in = fopen(path, "re");
    ck_assert_ptr_nonnull(in);
    count = fread(file, 1, sizeof file, in);
    ck_assert_int_eq(fclose(in), 0);
    ck_assert_uint_gt(count, 30);
    for (size_t i = 0; i < count; i++) {
        write_file(path, file, i);
        ck_assert_ptr_null(plan_cache_load("key", &bytes));
        file[i] ^= 0x20;
        write_file(path, file, count);
        ck_assert_ptr_null(plan_cache_load("key", &bytes));
        file[i] ^= 0x20;
    }
    file[count] = 'x';
    write_file(path, file, count + 1);
    ck_assert_ptr_null(plan_cache_load("key", &bytes));
    write_file(path, file, count);
    char *text = plan_cache_load("key", &bytes);
    ck_assert_ptr_nonnull(text);
    host->free(text);
}

/* A link or folder in place of a file is neither followed nor changed. */
TEST(other_files_are_left_alone) {
    const char *folder = cache_folder(), *path;
    char elsewhere[1024];
    size_t bytes = 0;
    plan_cache_store("key", "some text", 9);
    path = only_file(folder);
    (void)snprintf(elsewhere, sizeof elsewhere, "%s", scratch_path("elsewhere"));
    ck_assert_int_eq(rename(path, elsewhere), 0);
    ck_assert_int_eq(symlink(elsewhere, path), 0);
    ck_assert_ptr_null(plan_cache_load("key", &bytes));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_ptr_null(plan_cache_load("key", &bytes));
    plan_cache_store("key", "some text", 9);
    ck_assert_ptr_null(plan_cache_load("key", &bytes));
    (void)only_file(folder);
}

TEST(a_plan_from_disk_is_identical) {
    const char *folder = cache_folder();
    cudnn_plan first = {0}, second = {0};
    open_net(DLC_BF16, 0);
    ck_assert_int_eq(make_plan(FORWARD, &shapes[3], &much, &first), DLC_OK);
    const char *path = only_file(folder);
    ck_assert_int_eq(make_plan(FORWARD, &shapes[3], &much, &second), DLC_OK);
    ck_assert_int_eq(first.engine, second.engine);
    ck_assert_uint_eq(first.scratch_bytes, second.scratch_bytes);
    ck_assert_int_eq(first.tensors, second.tensors);
    write_file(path, (const unsigned char *)"nothing", 7);
    ck_assert_int_eq(make_plan(FORWARD, &shapes[3], &much, &second), DLC_OK);
    ck_assert_int_eq(first.engine, second.engine);
    plan_clear(&first);
    plan_clear(&second);
    close_net();
}
