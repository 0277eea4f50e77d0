/* Counts predictions by their labels. */
#include "tally.h"

#include "base/memory.h"

dlc_status dlc_tally_open(int32_t classes, int32_t top, dlc_tally *tally) {
    *tally = (dlc_tally){.classes = classes, .top = top};
    if (top > classes)
        return dlc_fail(DLC_ERR_CONFIG, "--top=%d: the net has only %d classes",
                        (int)top, (int)classes);
    tally->confusion = dlc_alloc((size_t)classes * (size_t)classes + 1,
                                 sizeof *tally->confusion);
    return tally->confusion ? DLC_OK : DLC_ERR_NOMEM;
}

void dlc_tally_close(dlc_tally *tally) {
    dlc_free(tally->confusion);
    tally->confusion = NULL;
}

static void count(dlc_tally *tally, const float *score, int32_t label) {
    int32_t best = label, before = 0;
    for (int32_t c = 0; c < tally->classes; c++) {
        if (c == label || score[c] < score[label])
            continue;
        before++; /* also if one of the two is NaN */
        if (best == label || score[c] > score[best])
            best = c;
    }
    tally->confusion[(size_t)label * (size_t)tally->classes + (size_t)best]++;
    tally->in_top += before < tally->top;
}

dlc_status dlc_tally_take(void *context, const dlc_evaluation_batch *batch) {
    dlc_tally *tally = context;
    for (int32_t i = 0; i < batch->samples; i++)
        if (batch->labels[i] >= 0 && batch->labels[i] < tally->classes)
            count(tally, batch->values + (size_t)i * batch->each, batch->labels[i]);
    return DLC_OK;
}

dlc_status dlc_tally_sum(dlc_tally *tally, dlc_job *job) {
    size_t cells = (size_t)tally->classes * (size_t)tally->classes;
    size_t ranks = (size_t)dlc_job_ranks(job);
    double *all = dlc_alloc(ranks * (cells + 1), sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    tally->confusion[cells] = tally->in_top;
    dlc_status status = dlc_job_all_gather(job, tally->confusion,
                                           (cells + 1) * sizeof *all, all);
    for (size_t i = 0; status == DLC_OK && i <= cells; i++) {
        tally->confusion[i] = 0;
        for (size_t r = 0; r < ranks; r++)
            tally->confusion[i] += all[r * (cells + 1) + i];
    }
    tally->in_top = tally->confusion[cells];
    dlc_free(all);
    return status;
}

double dlc_tally_at(const dlc_tally *tally, int32_t label, int32_t prediction) {
    return tally
        ->confusion[(size_t)label * (size_t)tally->classes + (size_t)prediction];
}

double dlc_tally_labelled(const dlc_tally *tally, int32_t class) {
    double sum = 0;
    for (int32_t i = 0; i < tally->classes; i++)
        sum += dlc_tally_at(tally, class, i);
    return sum;
}

double dlc_tally_predicted(const dlc_tally *tally, int32_t class) {
    double sum = 0;
    for (int32_t i = 0; i < tally->classes; i++)
        sum += dlc_tally_at(tally, i, class);
    return sum;
}

double dlc_tally_samples(const dlc_tally *tally) {
    double sum = 0;
    for (int32_t i = 0; i < tally->classes; i++)
        sum += dlc_tally_labelled(tally, i);
    return sum;
}

double dlc_tally_accuracy(const dlc_tally *tally) {
    double right = 0, samples = dlc_tally_samples(tally);
    for (int32_t i = 0; i < tally->classes; i++)
        right += dlc_tally_at(tally, i, i);
    return samples > 0 ? right / samples : 0;
}
