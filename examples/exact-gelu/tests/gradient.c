/* Tests the layer against the function in double precision, and its gradient against
 * finite differences of that function, for x in -10 .. 10. It loads the plugin as
 * dlcore does, with a host table of its own. */
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <dlcore/layer.h>

enum { HALF = 20000, N = 2 * HALF + 1 };

static dlc_status host_fail(dlc_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    return status;
}

static void *host_alloc(size_t bytes) {
    return calloc(1, bytes + 1);
}

static const dlc_host host = {
    .size = sizeof host, .fail = host_fail, .alloc = host_alloc, .free = free};

static double gelu(double x) {
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

/* 1 if the difference is within the tolerance. */
static int is_near(double actual, double expected, double tolerance) {
    return fabs(actual - expected) <= tolerance * (1 + fabs(expected));
}

static int check(const dlc_layer_ops *ops, dlc_layer *layer) {
    static float x[N], y[N], dy[N], dx[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - HALF) / 2000;
        dy[i] = 1 + (float)(i % 7);
    }
    dlc_layer_run run = {.size = sizeof run,
                         .in = (const void *[]){x},
                         .out = (void *[]){y},
                         .out_diff = (void *[]){dy},
                         .in_diff = (void *[]){dx}};
    if (ops->forward(layer, &run) != DLC_OK || ops->backward(layer, &run) != DLC_OK)
        return 1;
    for (int i = 0; i < N; i++) {
        double step = 1e-4, at = (double)x[i];
        double slope = (gelu(at + step) - gelu(at - step)) / (2 * step);
        if (is_near((double)y[i], gelu(at), 1e-6) &&
            is_near((double)dx[i], (double)dy[i] * slope, 3e-6))
            continue;
        printf("x = %g: y = %.9g, not %.9g; dx = %.9g, not %.9g\n", at, (double)y[i],
               gelu(at), (double)dx[i], (double)dy[i] * slope);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    if (!plugin || plugin->load(&host) != DLC_OK) {
        puts("usage: gradient PLUGIN.so");
        return 2;
    }
    const dlc_layer_ops *ops = plugin->features->ops;
    dlc_layer_args args = {.size = sizeof args, .name = "gelu"};
    dlc_tensor in = {.shape = {1, {N}}, .dtype = DLC_F32}, out = {.dtype = DLC_F32};
    dlc_layer_shapes shapes = {
        .size = sizeof shapes, .inputs = 1, .in = &in, .outputs = 1, .out = &out};
    dlc_layer_memory memory = {
        .size = sizeof memory, .inputs = 1, .outputs = 1, .in = &in, .out = &out};
    dlc_layer *layer = NULL;
    if (ops->create(&args, &layer) != DLC_OK || ops->infer(layer, &shapes) != DLC_OK ||
        ops->prepare(layer, &memory) != DLC_OK)
        return 1;
    int wrong = check(ops, layer);
    ops->destroy(layer);
    return wrong;
}
