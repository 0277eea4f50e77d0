/* Times passes on made-up samples on all ranks at once, and balances the batch split by
 * the results. */
#include "parallel/rebalance/throughput.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* A new split must be faster by this factor: measurements are never exact, and ranks
 * with equal batches have equal nets. */
static const double min_gain = 1.1;

/* ---- Measuring ------------------------------------------------------------------- */

enum { WARM_UP = 2, REPEATS = 5, LONG_ENOUGH_MS = 120 };

typedef struct samples {
    const void *field[DLC_NET_FIELDS];
    void *memory[DLC_NET_FIELDS]; /* own; the same */
} samples;

/* Values like an image's, all labelled class 0. */
static dlc_status make_samples(const dlc_net *net, int64_t batch, samples *made) {
    const dlc_net_fields *fields = dlc_net_batch_fields(net);
    for (int32_t i = 0; i < fields->count; i++) {
        size_t bytes = (size_t)batch * dlc_net_field_bytes(&fields->field[i]);
        float *number = dlc_alloc(bytes, 1);
        made->field[i] = made->memory[i] = number;
        if (!number)
            return DLC_ERR_NOMEM;
        for (size_t k = 0; i == DLC_FIELD_DATA && k < bytes / sizeof *number; k++)
            number[k] = (float)(k % 251) / 251.0f;
    }
    return DLC_OK;
}

static void free_samples(samples *made) {
    for (int32_t i = 0; i < DLC_NET_FIELDS; i++)
        dlc_free(made->memory[i]);
}

/* The memory of inputs serves other tensors once they are read. */
static dlc_status pass(const dlc_session *session, dlc_net *net, const samples *made) {
    DLC_TRY(dlc_job_check(session->job));
    DLC_TRY(dlc_net_set_batch(net, made->field));
    DLC_TRY(dlc_net_forward(net, 0, 0));
    DLC_TRY(dlc_net_backward(net, 1, NULL, NULL));
    return dlc_net_sync(net);
}

/* Seconds of a pass, averaged over enough passes to include interruptions by the
 * scheduler. */
static dlc_status time_passes(const dlc_session *session, dlc_net *net,
                              const samples *made, double *seconds) {
    uint64_t start = dlc_now_ns();
    double spent = 0;
    int passes = 0;
    do {
        DLC_TRY(pass(session, net, made));
        passes++;
        spent = dlc_since(start);
    } while (spent * 1e3 < LONG_ENOUGH_MS);
    *seconds = spent / passes;
    return DLC_OK;
}

static int by_seconds(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static dlc_status measure_rank(const dlc_session *session, dlc_net *net,
                               const samples *made, double *seconds) {
    double all[REPEATS];
    for (int i = 0; i < WARM_UP; i++)
        DLC_TRY(pass(session, net, made));
    DLC_TRY(dlc_job_barrier(session->job));
    for (int i = 0; i < REPEATS; i++)
        DLC_TRY(time_passes(session, net, made, &all[i]));
    qsort(all, REPEATS, sizeof *all, by_seconds);
    *seconds = all[REPEATS / 2];
    return DLC_OK;
}

/* ---- Balancing ------------------------------------------------------------------- */

static void log_event(const dlc_session *session, const char *list,
                      const dlc_rank_throughput *throughput) {
    const dlc_batch_split *split = &session->setup->batch_split;
    int32_t workers = split->ranks - split->servers;
    dlc_json event = dlc_log_event_begin("batch_split");
    dlc_json_int(&event, "iteration", session->iteration);
    dlc_json_string(&event, "batch_split", list);
    dlc_json_array(&event, "samples_per_s");
    for (int32_t r = 0; r < workers; r++)
        dlc_json_number(&event, NULL, throughput[r].samples_per_s);
    dlc_json_end_array(&event);
    dlc_json_array(&event, "fixed_s");
    for (int32_t r = 0; r < workers; r++)
        dlc_json_number(&event, NULL, throughput[r].fixed_seconds);
    dlc_json_end_array(&event);
    dlc_log_event_end(&event);
}

static void log_rank(int32_t rank, const dlc_rank_throughput *throughput,
                     int64_t count) {
    dlc_text fixed = {0};
    if (throughput->fixed_seconds > 0)
        dlc_text_add(&fixed, " and %.1f ms of fixed time",
                     throughput->fixed_seconds * 1e3);
    dlc_info("rank %" PRId32 ": %.0f samples/s%s, %" PRId64 " samples of each batch",
             rank, throughput->samples_per_s, dlc_text_string(&fixed), count);
    dlc_text_free(&fixed);
}

/* If ranks compare often, only changes are reported. */
static void announce_split(const dlc_session *session,
                           const dlc_rank_throughput *throughput, int changed) {
    const dlc_batch_split *split = &session->setup->batch_split;
    dlc_text list = {0};
    if (session->rank != 0 || (split->is_default && !changed))
        return;
    dlc_batch_split_print(split, &list);
    for (int32_t r = 0; r < split->ranks - split->servers; r++)
        log_rank(r, &throughput[r], split->count[r]);
    dlc_info("%s batch split; to repeat this run: --set parallel.batch_split=%s",
             changed ? "new" : "unchanged", dlc_text_string(&list));
    log_event(session, dlc_text_string(&list), throughput);
    dlc_text_free(&list);
}

/* All ranks have the same numbers, so they decide alike. */
static int is_worthwhile(const dlc_batch_split *split,
                         const dlc_rank_throughput *throughput, const int64_t *count) {
    return dlc_batch_split_seconds(split, throughput, split->count) >
           min_gain * dlc_batch_split_seconds(split, throughput, count);
}

/* The ranks of a tensor group wait for each other inside of an iteration: each counts
 * as the slowest of them. */
static void even_groups(const dlc_session *session, dlc_rank_throughput *throughput) {
    int32_t tensor = session->mesh.tensor;
    for (int32_t r = 0; r < session->ranks; r++) {
        dlc_rank_throughput *first = &throughput[r - r % tensor];
        first->samples_per_s = fmin(first->samples_per_s, throughput[r].samples_per_s);
        first->fixed_seconds = fmax(first->fixed_seconds, throughput[r].fixed_seconds);
    }
    for (int32_t r = 0; r < session->ranks; r++)
        throughput[r] = throughput[r - r % tensor];
}

/* Splits the samples of a stage over its tensor groups, whose ranks get equal parts;
 * the first ranks get one more of what is left. `of_group`, `parts`: room for each
 * group. */
static void balance_stage(const dlc_session *session, int32_t stage,
                          const dlc_rank_throughput *throughput,
                          dlc_rank_throughput *of_group, int64_t *parts,
                          int64_t *count) {
    const dlc_mesh *mesh = &session->mesh;
    dlc_batch_split groups = session->setup->batch_split;
    int32_t first = dlc_mesh_stage_first(mesh, stage);
    int32_t ranks = dlc_mesh_stage_ranks(mesh, stage);
    int64_t all = groups.batch / mesh->pipeline;
    groups.batch = all / mesh->tensor;
    groups.ranks = ranks / mesh->tensor;
    for (int32_t g = 0; g < groups.ranks; g++)
        of_group[g] = throughput[first + g * mesh->tensor];
    dlc_batch_split_balance(&groups, of_group, parts);
    for (int32_t r = 0; r < ranks; r++)
        count[first + r] = parts[r / mesh->tensor] + (r < all % mesh->tensor);
}

/* Every stage computes all samples, which its ranks split. */
static dlc_status balance_stages(const dlc_session *session,
                                 dlc_rank_throughput *throughput, int64_t *count) {
    size_t ranks = (size_t)session->ranks;
    dlc_rank_throughput *of_group = dlc_alloc(ranks, sizeof *of_group);
    int64_t *parts = dlc_alloc(ranks, sizeof *parts);
    dlc_status status = of_group && parts ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        even_groups(session, throughput);
    for (int32_t s = 0; status == DLC_OK && s < session->mesh.pipeline; s++)
        balance_stage(session, s, throughput, of_group, parts, count);
    dlc_free(of_group);
    dlc_free(parts);
    return status;
}

/* `seconds`: of an iteration, on the slowest rank. */
static dlc_status balance(dlc_session *session, dlc_rank_throughput *throughput,
                          double seconds, int *changed) {
    dlc_batch_split *split = &session->setup->batch_split;
    *changed = dlc_batch_split_verify(split, seconds);
    if (*changed && session->rank == 0)
        dlc_info(
            "with this batch split iterations take longer than before, %.1f ms: the "
            "previous one is restored",
            seconds * 1e3);
    if (*changed || dlc_batch_split_is_kept(split, seconds))
        return DLC_OK;
    int64_t *count = dlc_alloc((size_t)split->ranks, sizeof *count);
    if (!count)
        return DLC_ERR_NOMEM;
    dlc_status status = balance_stages(session, throughput, count);
    *changed = status == DLC_OK && is_worthwhile(split, throughput, count);
    if (*changed)
        dlc_batch_split_set(split, count, seconds);
    dlc_free(count);
    return status;
}

/* What each rank sends to all. */
typedef struct report {
    dlc_rank_throughput throughput;
    double seconds;
} report;

static dlc_status exchange(const dlc_session *session, const report *mine,
                           dlc_rank_throughput *throughput, double *seconds) {
    report *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, mine, sizeof *mine, all);
    *seconds = 0;
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++) {
        throughput[r] = all[r].throughput;
        *seconds = fmax(*seconds, all[r].seconds);
    }
    dlc_free(all);
    return status;
}

dlc_status dlc_throughput_balance(dlc_session *session, dlc_rank_throughput mine,
                                  double seconds, int *changed) {
    dlc_rank_throughput *throughput = dlc_alloc((size_t)session->ranks,
                                                sizeof *throughput);
    if (!throughput)
        return DLC_ERR_NOMEM;
    dlc_status status = exchange(session, &(report){mine, seconds}, throughput,
                                 &seconds);
    if (status == DLC_OK)
        status = balance(session, throughput, seconds, changed);
    if (status == DLC_OK)
        announce_split(session, throughput, *changed);
    dlc_free(throughput);
    return status;
}

dlc_status dlc_throughput_measure(dlc_session *session, dlc_net *net, int64_t batch) {
    samples made = {{NULL}, {NULL}};
    double seconds = 0;
    int changed;
    if (!net) {
        DLC_TRY(dlc_job_barrier(session->job));
        return dlc_throughput_balance(session, (dlc_rank_throughput){0}, 0, &changed);
    }
    dlc_status status = make_samples(net, batch, &made);
    if (status == DLC_OK)
        status = measure_rank(session, net, &made, &seconds);
    free_samples(&made);
    DLC_TRY(status);
    dlc_rank_throughput mine = {.samples_per_s = (double)batch / seconds};
    return dlc_throughput_balance(session, mine, 0, &changed);
}
