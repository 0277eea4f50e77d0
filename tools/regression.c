/* Adds up the errors of a regression. */
#include "regression.h"

#include <math.h>

#include "base/memory.h"

static int compares_numbers(const dlc_graph_layer *layer) {
    const uint64_t classes = DLC_LAYER_CLASSIFIES | DLC_LAYER_MULTI_LABEL;
    return layer->phases & DLC_PHASE_TEST && layer->feature->caps & DLC_LAYER_LOSS &&
           !(layer->feature->caps & classes) && layer->inputs == 2 &&
           layer->input[0].layer != DLC_FROM_DATA &&
           layer->input[1].layer == DLC_FROM_DATA;
}

int dlc_regression_find(const dlc_graph *graph, dlc_graph_input *from,
                        dlc_regression *regression) {
    for (int32_t i = graph->layers - 1; i >= 0; i--) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (!compares_numbers(layer))
            continue;
        *from = layer->input[0];
        *regression = (dlc_regression){.field = layer->input[1].output};
        return 1;
    }
    return 0;
}

dlc_status dlc_regression_take(void *context, const dlc_evaluation_batch *batch) {
    dlc_regression *r = context;
    const float *target = batch->field[r->field];
    for (size_t i = 0; i < (size_t)batch->samples * batch->each; i++) {
        double wanted = (double)target[i], error = (double)batch->values[i] - wanted;
        if (isnan(wanted))
            continue;
        r->count++;
        r->absolute += fabs(error);
        r->squared += error * error;
        r->targets += wanted;
        r->squared_targets += wanted * wanted;
    }
    return DLC_OK;
}

dlc_status dlc_regression_sum(dlc_regression *regression, dlc_job *job) {
    size_t ranks = (size_t)dlc_job_ranks(job);
    const dlc_regression mine = *regression;
    dlc_regression *all = dlc_alloc(ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(job, &mine, sizeof mine, all);
    *regression = (dlc_regression){.field = mine.field};
    for (size_t r = 0; status == DLC_OK && r < ranks; r++) {
        regression->count += all[r].count;
        regression->absolute += all[r].absolute;
        regression->squared += all[r].squared;
        regression->targets += all[r].targets;
        regression->squared_targets += all[r].squared_targets;
    }
    dlc_free(all);
    return status;
}

double dlc_regression_mae(const dlc_regression *regression) {
    return regression->absolute / regression->count;
}

double dlc_regression_rmse(const dlc_regression *regression) {
    return sqrt(regression->squared / regression->count);
}

double dlc_regression_r2(const dlc_regression *regression) {
    double mean = regression->targets / regression->count;
    double variance = regression->squared_targets / regression->count - mean * mean;
    return variance > 0 ? 1 - regression->squared / regression->count / variance
                        : (double)NAN;
}
