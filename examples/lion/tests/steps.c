/* Tests a hundred steps of the solver against the published algorithm in double
 * precision, with an lr_mult and a decay_mult. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <dlcore/solver.h>

enum { COUNT = 40, STEPS = 100 };

static const double learning_rate = 0.02, beta1 = 0.8, beta2 = 0.95, decay = 0.1,
                    lr_mult = 2, decay_mult = 0.5;

static double get_float(const dlc_settings *settings, const char *name) {
    (void)settings;
    return strcmp(name, "beta1") == 0 ? beta1 : beta2;
}

static const dlc_host host = {.size = sizeof host, .get_float = get_float};

static double gradient_of(int step, int i) {
    return sin(0.7 * step + i) * (1 + i % 5);
}

static double reference(int i) {
    double w = i, m = 0;
    for (int step = 0; step < STEPS; step++) {
        double g = (double)(float)gradient_of(step, i);
        double c = beta1 * m + (1 - beta1) * g;
        double direction = c > 0 ? 1 : c < 0 ? -1 : 0;
        w -= learning_rate * lr_mult * (direction + decay * decay_mult * w);
        m = beta2 * m + (1 - beta2) * g;
    }
    return w;
}

/* One step, as a device makes it. */
static int make_step(const dlc_solver_ops *ops, const dlc_rule *rule, int iteration,
                     float *slot, float *weights) {
    dlc_update update = {.size = sizeof update,
                         .rule = rule,
                         .lr_mult = (float)lr_mult,
                         .decay_mult = (float)decay_mult,
                         .grad_scale = 1,
                         .values = {.learning_rate = (float)learning_rate,
                                    .weight_decay = (float)decay,
                                    .clip_value = INFINITY}};
    dlc_rule_step step;
    float gradients[COUNT];
    for (int i = 0; i < COUNT; i++)
        gradients[i] = (float)gradient_of(iteration, i);
    if (ops->values(NULL, iteration, &update.values) != DLC_OK ||
        !dlc_rule_step_make(&update, &step))
        return 0;
    rule->run(&step, COUNT, gradients, &slot, weights);
    return 1;
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    float weights[COUNT], slot[COUNT] = {0};
    dlc_solver_needs needs = {.size = sizeof needs};
    if (!plugin || plugin->load(&host) != DLC_OK) {
        puts("usage: steps PLUGIN.so");
        return 2;
    }
    const dlc_solver_ops *ops = plugin->features->ops;
    if (ops->needs(NULL, &needs) != DLC_OK || needs.rule->slots != 1)
        return 1;
    for (int i = 0; i < COUNT; i++)
        weights[i] = (float)i;
    for (int i = 0; i < STEPS; i++)
        if (!make_step(ops, needs.rule, i, slot, weights))
            return 1;
    for (int i = 0; i < COUNT; i++) {
        double expected = reference(i), actual = (double)weights[i];
        if (fabs(actual - expected) <= 2e-5 * (1 + fabs(expected)))
            continue;
        printf("weight %d is %.9g, not %.9g\n", i, actual, expected);
        return 1;
    }
    return 0;
}
