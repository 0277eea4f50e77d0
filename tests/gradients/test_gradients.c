/* Tests every net of models/ against PyTorch: the loss and the gradient of each
 * parameter, with the same weights and batch. The results of PyTorch are in the .ref
 * files in this folder, which reference.py has written; it also explains the choice of
 * weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "recorded.h"
#include "setup/setup.h"
#include "support/sanitized.h"
#include "support/test.h"

/* Largest error of a gradient, relative to its norm. */
static const double most = 1e-4;
/* The gradient of a bias before a normalization is zero but for rounding errors. Below
 * this, relative to the net's largest gradient, it counts as zero. */
static const double nothing = 1e-9;

static const struct {
    const char *name;
    int large; /* takes too long with a sanitizer */
} nets[] = {
    {"lenet", 0},    {"cifar10-full", 0}, {"alexnet", 1},
    {"caffenet", 0}, {"vgg16", 1},        {"googlenet", 0},
    {"resnet18", 0}, {"resnet50", 1},     {"mobilenet-v2", 0},
};

typedef struct fixture {
    recorded reference;
    dlc_setup *setup;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_net *net;
    int32_t *param; /* of the net, for each of the recorded tensors */
    float *images;
    int32_t *labels;
} fixture;

static void ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static void *take(size_t count, size_t size) {
    void *memory = calloc(count, size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* ---- The net ----------------------------------------------------------------- */

/* Reads models/<name>.ini, with dropout disabled. */
static dlc_setup *open_setup(const char *name) {
    char path[4096];
    dlc_setup *first = NULL, *setup = NULL;
    snprintf(path, sizeof path, "%s/models/%s.ini",
             getenv("DLCORE_SOURCE_DIR") ? getenv("DLCORE_SOURCE_DIR") : ".", name);
    const dlc_setup_args as_it_is = {.path = path};
    ok(dlc_setup_open(&as_it_is, &first));
    char **sets = take((size_t)first->graph->layers, sizeof *sets);
    size_t count = 0;
    for (int32_t i = 0; i < first->graph->layers; i++) {
        const dlc_graph_layer *layer = &first->graph->layer[i];
        if (strcmp(layer->feature->name, "dropout") == 0)
            ck_assert_int_gt(asprintf(&sets[count++], "%s.ratio=0", layer->name), 0);
    }
    const dlc_setup_args args = {
        .path = path, .sets = (const char *const *)sets, .nsets = count};
    ok(dlc_setup_open(&args, &setup));
    dlc_setup_close(first);
    while (count > 0)
        free(sets[--count]);
    free(sets);
    return setup;
}

/* The parameters in the order of the file; the net has them in the order of backward.
 */
static void order_params(fixture *r) {
    const dlc_graph *graph = r->setup->graph;
    size_t count = 0;
    r->param = take(r->reference.tensors, sizeof *r->param);
    for (int32_t layer = 0; layer < graph->layers; layer++)
        for (int32_t i = 0; i < dlc_net_params(r->net); i++) {
            const dlc_net_param *param = dlc_net_param_at(r->net, i);
            size_t length = (size_t)(strrchr(param->name, '.') - param->name);
            const char *name = graph->layer[layer].name;
            if (param->is_buffer || strncmp(param->name, name, length) != 0 ||
                name[length] != '\0')
                continue;
            ck_assert_uint_lt(count, r->reference.tensors);
            const recorded_tensor *tensor = &r->reference.tensor[count];
            ck_assert_msg(dlc_shape_count(&param->shape) ==
                              dlc_shape_count(&tensor->shape),
                          "%s has %lld elements, PyTorch's tensor %zu %lld",
                          param->name, (long long)dlc_shape_count(&param->shape), count,
                          (long long)dlc_shape_count(&tensor->shape));
            r->param[count++] = i;
        }
    ck_assert_uint_eq(count, r->reference.tensors);
}

static void fill(fixture *r) {
    for (size_t k = 0; k < r->reference.tensors; k++) {
        size_t count = (size_t)dlc_shape_count(&r->reference.tensor[k].shape);
        float *values = take(count, sizeof *values);
        recorded_fill(&r->reference, k, values);
        ok(dlc_net_param_import(r->net, r->param[k], values,
                                dlc_net_param_arena(r->net, r->param[k])));
        free(values);
    }
}

static void fixture_open(fixture *r, const char *name) {
    *r = (fixture){0};
    recorded_read(name, &r->reference);
    r->setup = open_setup(name);
    r->device_ops = r->setup->device->ops;
    dlc_device_args device = {.size = sizeof device, .threads = 2};
    ok(r->device_ops->open(&device, &r->device));
    dlc_net_args args = {.graph = r->setup->graph,
                         .phase = DLC_PHASE_TRAIN,
                         .device_feature = r->setup->device,
                         .device_ops = r->device_ops,
                         .device = r->device,
                         .threads = 2,
                         .sample = r->reference.sample,
                         .batch = r->reference.batch};
    ok(dlc_net_build(&args, &r->net));
    ok(dlc_net_allocate(r->net));
    order_params(r);
    fill(r);
    size_t batch = (size_t)r->reference.batch;
    r->images = take(batch * (size_t)dlc_shape_count(&r->reference.sample),
                     sizeof *r->images);
    r->labels = take(batch, sizeof *r->labels);
    recorded_images(&r->reference, r->images);
    recorded_labels(&r->reference, r->labels);
    ok(dlc_net_set_input(r->net, r->images, r->labels));
}

static void fixture_close(fixture *r) {
    dlc_net_free(r->net);
    r->device_ops->close(r->device);
    dlc_setup_close(r->setup);
    recorded_free(&r->reference);
    free(r->param);
    free(r->images);
    free(r->labels);
}

/* ---- The comparison ---------------------------------------------------------- */

static double loss_of(const dlc_net *net) {
    double loss = 0;
    for (int32_t i = 0; i < dlc_net_metrics(net); i++) {
        dlc_metric metric;
        ok(dlc_net_metric(net, i, &metric));
        if (metric.is_loss)
            loss += metric.weight * metric.sum / metric.count;
    }
    return loss;
}

static double largest_norm(const recorded *reference) {
    double largest = 0;
    for (size_t k = 0; k < reference->tensors; k++)
        largest = fmax(largest, reference->tensor[k].gradient.norm);
    return largest;
}

/* The error of tensor k's gradient, relative to its norm. */
static double error_of(fixture *r, size_t k, double largest) {
    const recorded_tensor *tensor = &r->reference.tensor[k];
    size_t count = (size_t)dlc_shape_count(&tensor->shape);
    float *gradient = take(count, sizeof *gradient);
    sketch found;
    ok(dlc_net_param_export(r->net, r->param[k], dlc_net_arenas(r->net)->gradients,
                            gradient));
    sketch_make(gradient, count, &found);
    free(gradient);
    double norm = tensor->gradient.norm;
    if (norm < nothing * largest)
        return found.norm / largest;
    return fmax(sketch_distance(&found, &tensor->gradient), fabs(found.norm - norm)) /
           norm;
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(gradients_agree, COUNT(nets)) {
    const char *name = nets[_i].name;
    if (SANITIZED && nets[_i].large)
        return;
    fixture r;
    fixture_open(&r, name);
    ok(dlc_net_forward(r.net, 0, 0));
    double loss = loss_of(r.net);
    ck_assert_msg(fabs(loss / r.reference.loss - 1) < 1e-5, "loss %.9g, PyTorch's %.9g",
                  loss, r.reference.loss);
    ok(dlc_net_backward(r.net, 1, NULL, NULL));

    double largest = largest_norm(&r.reference), worst = 0;
    size_t worst_at = 0, wrong = 0;
    for (size_t k = 0; k < r.reference.tensors; k++) {
        double error = error_of(&r, k, largest);
        if (!(error < most)) {
            wrong++;
            printf("%s: gradient of %s is off by %.1e\n", name,
                   dlc_net_param_at(r.net, r.param[k])->name, error);
        }
        if (!(error <= worst)) {
            worst = error;
            worst_at = k;
        }
    }
    printf("%s: %zu gradients, off by at most %.1e (%s)\n", name, r.reference.tensors,
           worst, dlc_net_param_at(r.net, r.param[worst_at])->name);
    ck_assert_uint_eq(wrong, 0);
    fixture_close(&r);
}
