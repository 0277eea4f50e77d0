/* Tests the nets of models/ and a U-Net for a GPU that is not here, in all precisions:
 * cuDNN has an engine for every layer, memory stays in bounds, activations and biases
 * are fused, and shapes are those of the CPU layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "net/net.h"
#include "support/test.h"

static const char *const reserved[] = {"net",       "data",  "data.test", "solver",
                                       "transport", "train", "parallel",  NULL};

typedef struct model {
    const char *name;
    int64_t batch, channels, side;
} model;

static const model models[] = {
    {"lenet", 64, 1, 28},          {"lenet-fashion", 64, 1, 28},
    {"cifar10-quick", 100, 3, 32}, {"cifar10-full", 100, 3, 32},
    {"alexnet", 64, 3, 227},       {"caffenet", 32, 3, 227},
    {"googlenet", 32, 3, 224},     {"vgg16", 16, 3, 224},
    {"resnet18", 32, 3, 224},      {"resnet50", 32, 3, 224},
    {"mobilenet-v2", 32, 3, 224},  {"unet", 16, 3, 24}};
enum { MODELS = sizeof models / sizeof *models };

typedef struct precision {
    const char *name;
    dlc_dtype dtype;
    uint32_t math;
} precision;

static const precision precisions[] = {{"float32", DLC_F32, 0},
                                       {"tf32", DLC_F32, DLC_MATH_TF32},
                                       {"bf16", DLC_BF16, 0},
                                       {"fp16", DLC_F16, 0}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

/* A graph of layers for one device, and a net of it. */
typedef struct built {
    dlc_config *config;
    dlc_problems problems;
    dlc_graph *graph;
    dlc_net *net;
} built;

static dlc_registry *registry;

static void open_all(void) {
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
}

static void close_all(void) {
    dlc_registry_close(registry);
}

/* Are the samples images and masks, and not images and classes? */
static int has_masks(const model *m) {
    return strcmp(m->name, "unet") == 0;
}

static void make_graph(built *b, const model *m, const char *device) {
    const int masks = has_masks(m);
    const dlc_field_names fields = {.data = masks ? "image" : NULL,
                                    .label = masks ? "mask" : NULL};
    char path[512];
    memset(b, 0, sizeof *b);
    (void)snprintf(path, sizeof path, "%s/%s/%s.ini", getenv("DLCORE_SOURCE_DIR"),
                   masks ? "examples/fields" : "models", m->name);
    ck_assert_int_eq(dlc_config_load(path, reserved, NULL, 0, &b->problems, &b->config),
                     DLC_OK);
    dlc_status status = dlc_graph_make(b->config, reserved, &fields, registry, device,
                                       &b->problems, &b->graph);
    ck_assert_int_eq(status, DLC_OK);
    ck_assert_int_eq(dlc_problems_report(&b->problems), DLC_OK);
}

/* Of images and masks; those of images and classes need not be described. */
static dlc_net_fields fields_of(const model *m) {
    const dlc_shape image = {.rank = 3, .dims = {m->channels, m->side, m->side}};
    const dlc_shape mask = {.rank = 2, .dims = {m->side, m->side}};
    return (dlc_net_fields){
        .count = has_masks(m) ? 2 : 0,
        .field = {{.name = "image", .dtype = DLC_F32, .shape = image},
                  {.name = "mask", .is_label = 1, .dtype = DLC_I32, .shape = mask}}};
}

/* Nothing is computed and no memory is allocated: the operations of the CPU device
 * replace those of the GPU's. */
static void make_split_net(built *b, const model *m, const precision *p,
                           const char *device, dlc_phase phase, dlc_net *train_net,
                           const dlc_net_tensor_parallel *split) {
    const dlc_feature *cpu = NULL;
    ck_assert_int_eq(dlc_registry_use_first(registry, DLC_KIND_DEVICE, &cpu), DLC_OK);
    dlc_feature device_feature = *cpu;
    device_feature.name = device;
    const dlc_net_args args = {
        .graph = b->graph,
        .phase = phase,
        .device_feature = &device_feature,
        .device_ops = cpu->ops,
        .threads = 1,
        .precision = p->dtype,
        .math = p->math,
        .fields = fields_of(m),
        .sample = {.rank = 3, .dims = {m->channels, m->side, m->side}},
        .batch = m->batch,
        .seed = 1,
        .train_net = train_net,
        .tensor_parallel = split};
    dlc_status status = dlc_net_build(&args, &b->net);
    ck_assert_msg(status == DLC_OK, "%s in %s on %s: %s", m->name, p->name, device,
                  dlc_detail());
}

static void make_net(built *b, const model *m, const precision *p, const char *device,
                     dlc_phase phase, dlc_net *train_net) {
    make_split_net(b, m, p, device, phase, train_net, NULL);
}

static void drop(built *b) {
    dlc_net_free(b->net);
    dlc_graph_free(b->graph);
    dlc_problems_free(&b->problems);
    dlc_config_free(b->config);
}

static void row_at(const dlc_net *net, int32_t i, dlc_net_row *row) {
    ck_assert_int_eq(dlc_net_row_at(net, i, row), DLC_OK);
}

/* The descriptions of convolutions name an engine that fuses everything; those of
 * deconvolutions an engine, and what is added after it. */
static void check_choices(const model *m, const precision *p, const dlc_net *net) {
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        row_at(net, i, &row);
        int transposed = strcmp(row.type, "deconvolution") == 0;
        if (row.is_reorder || row.fused_into ||
            (!transposed && strcmp(row.type, "convolution") != 0))
            continue;
        ck_assert_msg(strncmp(row.choice, "engine ", 7) == 0, "%s", row.choice);
        ck_assert_msg(!strstr(row.choice, "then") == !transposed,
                      "%s in %s: layer '%s' is not fused: %s", m->name, p->name,
                      row.name, row.choice);
    }
}

/* In half precision the convolutions of a residual net provide the statistics of its
 * batch norms: all but the first, for whose few channels cuDNN has no such engine. */
static void check_statistics(const model *m, const precision *p, const dlc_net *net) {
    int norms = 0, given = 0;
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        row_at(net, i, &row);
        if (row.is_reorder || row.fused_into || strcmp(row.type, "batch_norm") != 0)
            continue;
        norms++;
        given += strstr(row.choice, "statistics given") != NULL;
    }
    if (p->dtype != DLC_F16)
        ck_assert_int_eq(given, 0);
    else if (strncmp(m->name, "resnet", 6) == 0)
        ck_assert_msg(norms > 1 && given == norms - 1, "%s: %d of %d", m->name, given,
                      norms);
    if (given > 0)
        printf("%s: the statistics of %d of %d batch norms are given\n", m->name, given,
               norms);
}

/* Where a tensor forks, convolutions accumulate into the gradient, so that no extra
 * pass is needed. The exceptions: GoogLeNet's two side heads, and the two ways down of
 * the U-Net, start with a pooling that is not the first of its fork in backward. */
static void check_added(const model *m, const dlc_net *net) {
    int added = 0;
    int expected = strcmp(m->name, "googlenet") == 0 || has_masks(m) ? 2 : 0;
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        row_at(net, i, &row);
        added += row.added;
        ck_assert_msg(row.added == 0 || strcmp(row.type, "pooling") == 0,
                      "%s: the gradient of layer '%s' is added apart", m->name,
                      row.name);
    }
    ck_assert_msg(added == expected, "%s: %d gradients are added apart, not %d",
                  m->name, added, expected);
}

static void check_fused(const model *m, const dlc_net *net) {
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        row_at(net, i, &row);
        if (!row.is_reorder && strcmp(row.type, "relu") == 0 &&
            strncmp(m->name, "resnet", 6) == 0)
            ck_assert_msg(row.fused_into != NULL, "%s: relu '%s' runs by itself",
                          m->name, row.name);
    }
}

/* All layers share scratch memory, so the total stays near the size of the tensors. */
static void check_memory(const model *m, const precision *p, const dlc_net *net) {
    const size_t most = (size_t)14 << 30;
    dlc_net_memory memory = dlc_net_memory_plan(net);
    ck_assert_msg(memory.activations < most, "%s in %s wants %zu MiB", m->name, p->name,
                  memory.activations >> 20);
}

static void check_model(const model *m, const precision *p) {
    built train, test;
    make_graph(&train, m, "cuda");
    make_net(&train, m, p, "cuda", DLC_PHASE_TRAIN, NULL);
    check_choices(m, p, train.net);
    check_fused(m, train.net);
    check_statistics(m, p, train.net);
    check_added(m, train.net);
    check_memory(m, p, train.net);
    test = (built){.graph = train.graph};
    make_net(&test, m, p, "cuda", DLC_PHASE_TEST, train.net);
    dlc_net_free(test.net);
    drop(&train);
}

TEST_SETTINGS(.timeout = 60, .setup_once = open_all, .teardown_once = close_all);

TEST_EACH(every_layer_has_an_engine, MODELS) {
    for (int p = 0; p < PRECISIONS; p++)
        check_model(&models[_i], &precisions[p]);
}

/* The next row that is a layer and not a reorder; 0 after the last. */
static int next_layer(const dlc_net *net, int32_t *i, dlc_net_row *row) {
    while (*i < dlc_net_rows(net)) {
        row_at(net, (*i)++, row);
        if (!row->is_reorder)
            return 1;
    }
    return 0;
}

TEST_EACH(shapes_equal_those_of_the_cpu, MODELS) {
    const model *m = &models[_i];
    built cuda, cpu;
    make_graph(&cuda, m, "cuda");
    make_graph(&cpu, m, "cpu");
    make_net(&cuda, m, &precisions[1], "cuda", DLC_PHASE_TRAIN, NULL);
    make_net(&cpu, m, &precisions[0], "cpu", DLC_PHASE_TRAIN, NULL);
    dlc_net_row a, b;
    int32_t i = 0, j = 0, rows = 0;
    while (next_layer(cuda.net, &i, &a)) {
        ck_assert_int_eq(next_layer(cpu.net, &j, &b), 1);
        ck_assert_str_eq(a.name, b.name);
        ck_assert_str_eq(a.type, b.type);
        ck_assert_msg(a.output.rank == b.output.rank, "%s: layer '%s'", m->name,
                      a.name);
        for (int32_t d = 0; d < a.output.rank; d++)
            ck_assert_int_eq(a.output.dims[d], b.output.dims[d]);
        ck_assert_int_eq(a.parameters, b.parameters);
        ck_assert_int_eq(a.multiply_adds, b.multiply_adds);
        rows++;
    }
    ck_assert_int_eq(next_layer(cpu.net, &j, &b), 0);
    ck_assert_int_gt(rows, 4);
    drop(&cuda);
    drop(&cpu);
}

static void same_text(const char *a, const char *b, const char *where) {
    ck_assert_msg((!a && !b) || (a && b && strcmp(a, b) == 0), "%s: \"%s\", \"%s\"",
                  where, a ? a : "-", b ? b : "-");
}

static void same_options(const dlc_feature *cuda, const dlc_feature *cpu) {
    const dlc_option *a = cuda->options, *b = cpu->options;
    ck_assert_msg(!a == !b, "%s", cuda->name);
    for (; a && b && a->name && b->name; a = DLC_NEXT(a), b = DLC_NEXT(b)) {
        same_text(a->name, b->name, cuda->name);
        same_text(a->def, b->def, a->name);
        same_text(a->choices, b->choices, a->name);
        ck_assert_int_eq(a->type, b->type);
        ck_assert_int_eq(a->flags, b->flags);
        ck_assert_msg(a->min == b->min && a->max == b->max, "%s", a->name);
    }
    ck_assert_msg(!a || (!a->name && !b->name), "%s: one has more options", cuda->name);
}

/* ---- Some of the channels ------------------------------------------------------- */

/* Nets whose last layers, or all, are split over three ranks; many numbers of channels
 * are no multiple of three, so there are odd slices. */
enum { SPLIT_RANKS = 3 };

static const struct {
    model model;
    int convolutions; /* are split, too */
    dlc_tensor_schedule schedule;
} split_models[] = {{{"lenet", 64, 1, 28}, 1, DLC_TENSOR_WHOLE_BATCH},
                    {{"alexnet", 66, 3, 227}, 0, DLC_TENSOR_BY_RANK},
                    {{"alexnet", 66, 3, 227}, 0, DLC_TENSOR_CHUNKED},
                    {{"resnet18", 16, 3, 224}, 1, DLC_TENSOR_WHOLE_BATCH}};
enum { SPLIT_MODELS = sizeof split_models / sizeof *split_models };

static int is_split(const dlc_graph_layer *layer, int convolutions) {
    return strcmp(layer->feature->name, "inner_product") == 0 ||
           (convolutions && strcmp(layer->feature->name, "convolution") == 0);
}

static void choose_layers(const dlc_graph *graph, int convolutions, char *layers) {
    for (int32_t i = 0; i < graph->layers; i++)
        layers[i] = (char)is_split(&graph->layer[i], convolutions);
}

/* The layer of the graph that has this name; -1: none, it is a reshard operation. */
static int32_t node_of(const dlc_graph *graph, const char *name) {
    int32_t i = graph->layers - 1;
    while (i >= 0 && strcmp(graph->layer[i].name, name) != 0)
        i--;
    return i;
}

/* Adds the channels and parameters of the net's layers, `sign` times. Returns the
 * number of layers that are split. */
static int add_slices(const built *b, const char *layers, int sign, int64_t *channels,
                      int64_t *parameters) {
    dlc_net_row row;
    int count = 0;
    for (int32_t i = 0; next_layer(b->net, &i, &row);) {
        int32_t node = node_of(b->graph, row.name);
        if (node < 0 || !layers[node])
            continue;
        channels[node] += sign * row.output.dims[1];
        parameters[node] += sign * row.parameters;
        count++;
    }
    return count;
}

/* Every rank has engines for its slices, forward and backward and in tests, and the
 * slices are the layer. */
static void check_slices(int which, const precision *p) {
    const model *m = &split_models[which].model;
    const int64_t first[] = {0, m->batch, 2 * m->batch, 3 * m->batch};
    enum { LAYERS = 256 };
    char layers[LAYERS] = {0};
    int64_t channels[LAYERS] = {0}, parameters[LAYERS] = {0};
    built b, whole;
    make_graph(&b, m, "cuda");
    ck_assert_int_le(b.graph->layers, LAYERS);
    choose_layers(b.graph, split_models[which].convolutions, layers);
    for (int32_t r = 0; r < SPLIT_RANKS; r++) {
        const dlc_net_tensor_parallel split = {
            .rank = r,
            .ranks = SPLIT_RANKS,
            .layers = layers,
            .first_sample = first,
            .channel_share = first,
            .schedule = split_models[which].schedule};
        built test = {.graph = b.graph};
        make_split_net(&b, m, p, "cuda", DLC_PHASE_TRAIN, NULL, &split);
        make_split_net(&test, m, p, "cuda", DLC_PHASE_TEST, b.net, &split);
        check_choices(m, p, b.net);
        ck_assert_int_gt(add_slices(&b, layers, 1, channels, parameters), 1);
        dlc_net_free(test.net);
        dlc_net_free(b.net);
    }
    whole = (built){.graph = b.graph};
    make_net(&whole, m, p, "cuda", DLC_PHASE_TRAIN, NULL);
    (void)add_slices(&whole, layers, -1, channels, parameters);
    for (int32_t i = 0; i < b.graph->layers; i++)
        ck_assert_msg(channels[i] == 0 && parameters[i] == 0,
                      "layer '%s' and its slices differ by %lld channels and %lld "
                      "parameters",
                      b.graph->layer[i].name, (long long)channels[i],
                      (long long)parameters[i]);
    dlc_net_free(whole.net);
    b.net = NULL;
    drop(&b);
}

TEST_EACH(slices_have_engines, SPLIT_MODELS) {
    for (int p = 0; p < PRECISIONS; p += 2) /* float32 and bf16 */
        check_slices(_i, &precisions[p]);
}

/* One net.ini works on both devices: types and options are the same. */
TEST(types_and_options_equal_those_of_the_cpu) {
    const dlc_feature_entry *entry;
    int types = 0;
    for (size_t i = 0; (entry = dlc_registry_usable(registry, DLC_KIND_LAYER, i));
         i++) {
        const dlc_feature *cpu = NULL, *cuda = NULL;
        if (!entry->device || strcmp(entry->device, "cpu") != 0)
            continue;
        dlc_status status = dlc_registry_use(registry, entry, &cpu);
        ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
        status = dlc_registry_find(registry, DLC_KIND_LAYER, cpu->name, "cuda", &cuda);
        ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
        same_options(cuda, cpu);
        types++;
    }
    ck_assert_int_ge(types, 26);
}
