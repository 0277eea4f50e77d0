/* Looks for settings that are allowed and rarely meant, and warns about them; called by
 * dlc_setup_open when the data and the graph are known. */
#include <string.h>

#include "setup/setup_checks.h"

/* Accuracies are metrics of the test net that are no losses. */
static int has_accuracy(const dlc_graph *graph) {
    for (int32_t i = 0; i < graph->layers; i++) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (layer->broken || (layer->phases & DLC_PHASE_TEST &&
                              layer->feature->caps & DLC_LAYER_METRIC &&
                              !(layer->feature->caps & DLC_LAYER_LOSS)))
            return 1;
    }
    return 0;
}

/* What ends the training must be measured. */
static void check_target(const dlc_setup *setup, dlc_problems *problems) {
    const dlc_settings *run = setup->train_settings;
    if (!run || !(dlc_settings_get_float(run, "target_accuracy") > 0))
        return;
    const char *missing = !setup->test.present ? "there is no [data.test]"
                          : !has_accuracy(setup->graph)
                              ? "the net has no layer of type "
                                "accuracy"
                              : NULL;
    if (missing)
        dlc_problems_add(
            problems, setup->config, dlc_settings_line(run, "target_accuracy"),
            "[train] target_accuracy ends the training when a test reaches "
            "it, but %s: add one",
            missing);
}

/* These losses apply the function themselves; twice, training is slow and stays bad. */
static void check_losses(const dlc_setup *setup, dlc_problems *problems) {
    static const struct {
        uint64_t loss;
        const char *type;
    } twice[] = {{DLC_LAYER_CLASSIFIES, "softmax"}, {DLC_LAYER_MULTI_LABEL, "sigmoid"}};
    const dlc_graph *graph = setup->graph;
    for (int32_t i = 0; i < graph->layers; i++) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (layer->broken || !(layer->feature->caps & DLC_LAYER_LOSS) ||
            layer->inputs < 1 || layer->input[0].layer == DLC_FROM_DATA)
            continue;
        const dlc_graph_layer *from = &graph->layer[layer->input[0].layer];
        for (size_t k = 0; !from->broken && k < sizeof twice / sizeof *twice; k++)
            if (layer->feature->caps & twice[k].loss &&
                strcmp(from->feature->name, twice[k].type) == 0)
                dlc_problems_warn_in(
                    problems, setup->config,
                    dlc_config_find(setup->config, layer->name), "input",
                    "reads [%s], a %s, but computes the %s itself: "
                    "applied twice, it trains badly; read what [%s] "
                    "reads",
                    from->name, twice[k].type, twice[k].type, from->name);
    }
}

static void check_batch(const dlc_setup *setup, dlc_problems *problems) {
    const dlc_data_setup *data = &setup->train;
    if (!data->source || data->broken || data->batch <= data->info.samples)
        return;
    dlc_problems_warn(
        problems, setup->config, dlc_settings_line(data->settings, "batch"),
        "[data] batch = %lld is more than the %lld samples that there are: "
        "each iteration repeats some",
        (long long)data->batch, (long long)data->info.samples);
}

/* Do both sections give their source the same settings, files among them? */
static int read_the_same(const dlc_data_setup *a, const dlc_data_setup *b) {
    int has_path = 0;
    if (!a->present || !b->present || !a->feature || a->feature != b->feature ||
        a->broken || b->broken)
        return 0;
    for (const dlc_option *row = a->feature->options; row && row->name;
         row = DLC_NEXT(row)) {
        const char *of_a = dlc_settings_text(a->settings, row->name);
        const char *of_b = dlc_settings_text(b->settings, row->name);
        if (strcmp(of_a ? of_a : "", of_b ? of_b : "") != 0)
            return 0;
        has_path |= row->type == DLC_OPT_PATH && of_a && *of_a;
    }
    return has_path;
}

static void check_test_data(const dlc_setup *setup, dlc_problems *problems) {
    if (read_the_same(&setup->train, &setup->test))
        dlc_problems_warn(
            problems, setup->config, dlc_settings_line(setup->test.settings, "source"),
            "[data.test] reads the samples of [data]: a test then shows how "
            "well they were remembered, not what the net does with others "
            "(`dlcore data split` divides a data set)");
}

/* Rules that scale each layer's step by its norm take far larger rates. */
static void check_rate(const dlc_setup *setup, dlc_problems *problems) {
    const double large = 4;
    const dlc_settings *settings = setup->solver_settings;
    if (!settings || setup->solver_broken ||
        dlc_solver_needs_whole_tensors(&setup->checked_solver))
        return;
    double rate = dlc_settings_get_float(settings, "learning_rate");
    if (rate > large)
        dlc_problems_warn(
            problems, setup->config, dlc_settings_line(settings, "learning_rate"),
            "[solver] learning_rate = %g is very large: most nets diverge "
            "above 1; 0.01 is usual",
            rate);
}

void dlc_setup_check_sense(const dlc_setup *setup, dlc_problems *problems) {
    if (!setup->graph)
        return;
    check_target(setup, problems);
    check_losses(setup, problems);
    check_batch(setup, problems);
    check_test_data(setup, problems);
    check_rate(setup, problems);
}
