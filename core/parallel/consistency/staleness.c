/* Gathers the solver's statistics from all ranks, and writes them to the log and as
 * JSON. */
#include "parallel/consistency/staleness.h"

#include "base/log.h"
#include "base/memory.h"

/* ---- Gathering --------------------------------------------------------------- */

/* Of two ranks that were waited for, the slower one is kept. */
static void add(const dlc_consistency_stats *seen, dlc_consistency_stats *stats) {
    stats->wait_seconds += seen->wait_seconds;
    stats->reads += seen->reads;
    for (int i = 0; i < DLC_STALENESS_BINS; i++)
        stats->staleness[i] += seen->staleness[i];
    if (stats->slowest == seen->slowest) {
        stats->slowest_wait_seconds += seen->slowest_wait_seconds;
    } else if (stats->slowest_wait_seconds < seen->slowest_wait_seconds) {
        stats->slowest = seen->slowest;
        stats->slowest_wait_seconds = seen->slowest_wait_seconds;
    }
}

int dlc_staleness_is_known(const dlc_session *session) {
    return session->set[DLC_PARAMS_WHOLE].model &&
           DLC_CAN(session->consistency_ops, stats);
}

/* Adds those of one model, which numbers the ranks that it has. */
static dlc_status add_model(const dlc_session *session, const dlc_param_set *set,
                            dlc_consistency_stats *stats) {
    dlc_consistency_stats its = {.size = sizeof its, .slowest = -1};
    DLC_TRY(session->consistency_ops->stats(set->model, &its));
    if (its.slowest >= 0)
        its.slowest = dlc_replicas_rank(&set->replicas, its.slowest);
    add(&its, stats);
    return DLC_OK;
}

dlc_status dlc_staleness_read(const dlc_session *session,
                              const dlc_consistency_stats *earlier,
                              dlc_consistency_stats *stats) {
    *stats = (dlc_consistency_stats){.size = sizeof *stats, .slowest = -1};
    if (!dlc_staleness_is_known(session))
        return DLC_OK;
    add(earlier, stats);
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(add_model(session, set, stats));
    return DLC_OK;
}

/* Finds the rank that all ranks together waited for longest. */
static void find_slowest(const dlc_consistency_stats *all, dlc_staleness *staleness) {
    staleness->slowest = -1;
    for (int32_t r = 0; r < staleness->ranks; r++) {
        double waited = 0;
        for (int32_t i = 0; i < staleness->ranks; i++)
            if (all[i].slowest == r)
                waited += all[i].slowest_wait_seconds;
        if (waited > staleness->slowest_wait_seconds) {
            staleness->slowest = r;
            staleness->slowest_wait_seconds = waited;
        }
    }
}

static void add_up(const dlc_consistency_stats *all, dlc_staleness *staleness) {
    for (int32_t r = 0; r < staleness->ranks; r++) {
        staleness->waited[r] = all[r].wait_seconds;
        staleness->reads += all[r].reads;
        for (int i = 0; i < DLC_STALENESS_BINS; i++)
            staleness->bin[i] += all[r].staleness[i];
    }
    find_slowest(all, staleness);
}

dlc_status dlc_staleness_gather(const dlc_session *session,
                                const dlc_consistency_stats *mine,
                                dlc_staleness *staleness) {
    dlc_staleness made = {.ranks = session->ranks};
    dlc_consistency_stats *all;
    made.waited = dlc_alloc((size_t)made.ranks, sizeof *made.waited);
    all = dlc_alloc((size_t)made.ranks, sizeof *all);
    dlc_status status = made.waited && all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, sizeof *mine, all);
    if (status == DLC_OK)
        add_up(all, &made);
    dlc_free(all);
    if (status != DLC_OK) {
        dlc_staleness_free(&made);
        return status;
    }
    dlc_staleness_free(staleness);
    *staleness = made;
    return DLC_OK;
}

void dlc_staleness_free(dlc_staleness *staleness) {
    dlc_free(staleness->waited);
    *staleness = (dlc_staleness){0};
}

/* ---- Telling ----------------------------------------------------------------- */

/* The number of bins up to the last that is not empty. */
static int bins_used(const int64_t bin[DLC_STALENESS_BINS]) {
    int used = DLC_STALENESS_BINS;
    while (used > 1 && !bin[used - 1])
        used--;
    return used;
}

/* Two lines: "clocks stale" with the numbers of the bins, and "reads" below them. */
static void add_bins(const dlc_staleness *staleness, dlc_text *text) {
    int used = bins_used(staleness->bin);
    double reads = staleness->reads > 0 ? (double)staleness->reads : 1;

    dlc_text_add(text, "\n    clocks stale ");
    for (int i = 0; i < used; i++)
        dlc_text_add(text, "%7d%s", i, i == DLC_STALENESS_BINS - 1 ? "+" : " ");
    dlc_text_add(text, "\n    reads        ");
    for (int i = 0; i < used; i++)
        dlc_text_add(text, "%6.1f%% ", 100 * (double)staleness->bin[i] / reads);
}

/* Two lines for every ten ranks. */
static void add_ranks(const dlc_staleness *staleness, dlc_text *text) {
    enum { A_LINE = 10 };
    for (int32_t first = 0; first < staleness->ranks; first += A_LINE) {
        int32_t end = first + A_LINE < staleness->ranks ? first + A_LINE
                                                        : staleness->ranks;
        dlc_text_add(text, "\n    rank         ");
        for (int32_t r = first; r < end; r++)
            dlc_text_add(text, "%7d ", (int)r);
        dlc_text_add(text, "\n    waited, s    ");
        for (int32_t r = first; r < end; r++)
            dlc_text_add(text, "%7.2f ", staleness->waited[r]);
    }
}

void dlc_staleness_log(const dlc_staleness *staleness) {
    dlc_text text = {0};

    if (!staleness->ranks)
        return;
    dlc_text_add(&text, "staleness of %lld reads of the weights, and waiting times:",
                 (long long)staleness->reads);
    add_bins(staleness, &text);
    add_ranks(staleness, &text);
    if (staleness->slowest >= 0)
        dlc_text_add(&text, "\n    slowest: rank %d, waited for %.2f s by the others",
                     (int)staleness->slowest, staleness->slowest_wait_seconds);
    dlc_log_lines(DLC_LOG_INFO, dlc_text_string(&text));
    dlc_text_free(&text);
}

static void bins_json(const int64_t bin[DLC_STALENESS_BINS], dlc_json *json) {
    int used = bins_used(bin);
    dlc_json_array(json, "staleness");
    for (int i = 0; i < used; i++)
        dlc_json_int(json, NULL, bin[i]);
    dlc_json_end_array(json);
}

void dlc_staleness_json(const dlc_staleness *staleness, dlc_json *json) {
    if (!staleness->ranks)
        return;
    bins_json(staleness->bin, json);
    dlc_json_array(json, "waited");
    for (int32_t r = 0; r < staleness->ranks; r++)
        dlc_json_number(json, NULL, staleness->waited[r]);
    dlc_json_end_array(json);
    dlc_json_int(json, "slowest", staleness->slowest);
}

void dlc_staleness_rank_json(const dlc_consistency_stats *stats, dlc_json *json) {
    bins_json(stats->staleness, json);
    dlc_json_number(json, "waited", stats->wait_seconds);
}
