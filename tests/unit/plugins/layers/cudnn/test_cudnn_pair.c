/* Tests a convolution and the batch norm that reads it, in half precision: the
 * convolution computes the sums that the batch norm needs and announces them by the
 * layout of its output. On the host (host_layers.c), compared with the pair without
 * such an engine. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/layer.h>

#include "base/status.h"
#include "config/config.h"
#include "kernels/body.h"
#include "plugin/object.h"
#include "support/plugins.h"
#include "support/test.h"

enum { BATCH = 3, CHANNELS = 16, FILTERS = 24, SIDE = 7, PARAMS = 4 };

#define OK(call) ck_assert_msg((call) == DLC_OK, "%s: %s", #call, dlc_detail())

static const dlc_plugin *plugin;
static const dlc_family *family;

static const dlc_feature *feature_of(const char *type) {
    const dlc_feature *f = plugin->features;
    while (f->name && strcmp(f->name, type) != 0)
        f = DLC_NEXT(f);
    ck_assert_ptr_nonnull(f->name);
    return f;
}

static void open_plugin(void) {
    void *object = dlopen(getenv("DLCORE_TEST_LAYERS"), RTLD_NOW | RTLD_LOCAL);
    plugin = object ? dlsym(object, DLC_PLUGIN_SYMBOL) : NULL;
    ck_assert_msg(plugin != NULL, "%s", dlerror());
    OK(plugin->load(dlc_host_services()));
    family = ((const dlc_layer_ops *)feature_of("batch_norm")->ops)->family;
}

/* ---- One layer --------------------------------------------------------------- */

typedef struct stage {
    const dlc_layer_ops *ops;
    dlc_settings *settings;
    dlc_layer *layer;
    dlc_layer_shapes shapes;
    dlc_layer_memory memory;
    dlc_tensor in[DLC_MAX_INPUTS], out[DLC_MAX_OUTPUTS];
    dlc_param params[DLC_MAX_PARAMS];
    int64_t param_count[DLC_MAX_PARAMS];
    void *param[PARAMS], *y, *workspace, *scratch;
    char words[160];
} stage;

static void *zeros(size_t bytes) {
    void *made = aligned_alloc(64, (bytes + 64) / 64 * 64);
    ck_assert_ptr_nonnull(made);
    memset(made, 0, (bytes + 64) / 64 * 64);
    return made;
}

static void open_stage(stage *s, void *context, const char *type,
                       const char *const *sets, const dlc_tensor *in) {
    const dlc_feature *feature = feature_of(type);
    *s = (stage){.ops = feature->ops, .settings = plugin_settings(feature, sets)};
    const dlc_layer_args args = {.size = sizeof args,
                                 .name = type,
                                 .settings = s->settings,
                                 .context = context,
                                 .phase = DLC_PHASE_TRAIN};
    OK(s->ops->create(&args, &s->layer));
    s->in[0] = *in;
    s->shapes = (dlc_layer_shapes){.size = sizeof s->shapes,
                                   .inputs = 1,
                                   .in = s->in,
                                   .outputs = 1,
                                   .out = s->out,
                                   .param = s->params};
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        s->params[i].size = sizeof s->params[i];
    OK(s->ops->infer(s->layer, &s->shapes));
    s->memory = (dlc_layer_memory){.size = sizeof s->memory,
                                   .inputs = 1,
                                   .outputs = 1,
                                   .params = s->shapes.params,
                                   .wants_gradient = 1,
                                   .in = s->in,
                                   .out = s->out,
                                   .param_count = s->param_count};
    for (int32_t i = 0; i < s->shapes.params; i++)
        s->param_count[i] = dlc_shape_count(&s->params[i].shape);
    OK(s->ops->prepare(s->layer, &s->memory));
    for (int32_t i = 0; i < s->memory.params; i++)
        s->param[i] = zeros((size_t)s->param_count[i] * sizeof(float));
    s->y = zeros(dlc_tensor_bytes(&s->out[0]));
    s->workspace = zeros(s->memory.workspace_bytes);
    s->scratch = zeros(s->memory.scratch_bytes);
    if (s->ops->describe)
        s->ops->describe(s->layer, s->words, sizeof s->words);
}

static void run_stage(stage *s, const void *x) {
    const dlc_layer_run run = {.size = sizeof run,
                               .in = &x,
                               .out = &s->y,
                               .param = s->param,
                               .workspace = s->workspace,
                               .scratch = s->scratch};
    OK(s->ops->forward(s->layer, &run));
}

static void close_stage(stage *s) {
    s->ops->destroy(s->layer);
    for (int i = 0; i < PARAMS; i++)
        free(s->param[i]);
    free(s->y);
    free(s->workspace);
    free(s->scratch);
    dlc_settings_free(s->settings);
}

/* ---- The pair ---------------------------------------------------------------- */

static const char *const conv_sets[] = {"num_output=24", "kernel_size=3", "pad=1",
                                        "bias=no", NULL};
static const dlc_tensor images = {
    .shape = {.rank = 4, .dims = {BATCH, CHANNELS, SIDE, SIDE}}, .dtype = DLC_F16};

static void *open_context(void) {
    const dlc_family_args args = {
        .size = sizeof args, .phase = DLC_PHASE_TRAIN, .precision = DLC_F16};
    void *context = NULL;
    OK(family->open(&args, &context));
    return context;
}

/* The output, and mean and 1 / deviation as kept and averaged. */
typedef struct results {
    float y[BATCH * FILTERS * SIDE * SIDE];
    float kept[2][FILTERS], running[2][FILTERS];
    int given;
} results;

static void run_pair(int with_engine, results *r) {
    void *context = open_context(),
         *x = zeros((size_t)BATCH * CHANNELS * SIDE * SIDE * 2);
    stage conv, norm;
    if (!with_engine)
        ck_assert_int_eq(setenv("DLCORE_TEST_UNFUSED", "1", 1), 0);
    open_stage(&conv, context, "convolution", conv_sets, &images);
    (void)unsetenv("DLCORE_TEST_UNFUSED");
    open_stage(&norm, context, "batch_norm", NULL, &conv.out[0]);
    ck_assert_int_eq(strstr(conv.words, "+statistics") != NULL, with_engine);
    r->given = strstr(norm.words, "statistics given") != NULL;
    for (int i = 0; i < BATCH * CHANNELS * SIDE * SIDE; i++)
        store_one(DLC_F16, x, i, (float)(i * 29 % 53 - 20) / 16);
    for (int64_t i = 0; i < conv.param_count[0]; i++)
        ((float *)conv.param[0])[i] = (float)(i * 31 % 47 - 20) / 64;
    for (int c = 0; c < FILTERS; c++)
        ((float *)norm.param[0])[c] = 1;
    for (int pass = 0; pass < 2; pass++) { /* the sums are those of the current pass */
        store_one(DLC_F16, x, 5, (float)pass);
        run_stage(&conv, x);
        run_stage(&norm, conv.y);
    }
    for (int i = 0; i < BATCH * FILTERS * SIDE * SIDE; i++)
        r->y[i] = load_one(DLC_F16, norm.y, i);
    size_t half = norm.memory.workspace_bytes / 2;
    memcpy(r->kept[0], norm.workspace, sizeof r->kept[0]);
    memcpy(r->kept[1], (char *)norm.workspace + half, sizeof r->kept[1]);
    memcpy(r->running[0], norm.param[2], sizeof r->running[0]);
    memcpy(r->running[1], norm.param[3], sizeof r->running[1]);
    close_stage(&norm);
    close_stage(&conv);
    family->close(context);
    free(x);
}

static void near_each(const float *got, const float *want, int count, double error,
                      const char *what) {
    for (int i = 0; i < count; i++)
        ck_assert_msg(fabs((double)got[i] - (double)want[i]) <=
                          error * (1 + fabs((double)want[i])),
                      "%s %d: %g, not %g", what, i, (double)got[i], (double)want[i]);
}

TEST_SETTINGS(.setup = open_plugin);

TEST(with_and_without_sums_agree) {
    static results with, without;
    run_pair(1, &with);
    run_pair(0, &without);
    ck_assert_int_eq(with.given, 1);
    ck_assert_int_eq(without.given, 0);
    near_each(with.kept[0], without.kept[0], FILTERS, 1e-6, "mean");
    near_each(with.kept[1], without.kept[1], FILTERS, 1e-5, "inverse");
    near_each(with.running[0], without.running[0], FILTERS, 1e-6, "running mean");
    near_each(with.running[1], without.running[1], FILTERS, 1e-5, "running variance");
    near_each(with.y, without.y, BATCH * FILTERS * SIDE * SIDE, 1e-3, "output");
}

/* A layer in between passes the layout on, but not the sums, which belong to another
 * tensor. */
TEST(sums_are_of_one_tensor) {
    static const char *const between[] = {"relu", "dropout", "scale", "pooling"};
    static const char *const pool[] = {"kernel_size=3", "stride=1", "pad=1", NULL};
    for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
        void *context = open_context();
        stage conv, other, norm;
        open_stage(&conv, context, "convolution", conv_sets, &images);
        open_stage(&other, context, between[i], i == 3 ? pool : NULL, &conv.out[0]);
        open_stage(&norm, context, "batch_norm", NULL, &other.out[0]);
        ck_assert_ptr_nonnull(strstr(conv.words, "+statistics"));
        ck_assert_msg(!strstr(norm.words, "given"), "%s: %s", between[i], norm.words);
        close_stage(&norm);
        close_stage(&other);
        close_stage(&conv);
        family->close(context);
    }
}

/* A convolution with a bias provides no sums. */
TEST(not_with_a_bias) {
    static const char *const biased[] = {"num_output=24", "kernel_size=3", NULL};
    void *context = open_context();
    stage conv;
    open_stage(&conv, context, "convolution", biased, &images);
    ck_assert_ptr_null(strstr(conv.words, "+statistics"));
    close_stage(&conv);
    family->close(context);
}
