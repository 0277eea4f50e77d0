/* Gathers the consistency models' statistics from all ranks, and writes them to the log
 * and as JSON. */
#include "parallel/staleness/staleness.h"

#include "base/log.h"
#include "base/memory.h"

/* ---- Gathering --------------------------------------------------------------- */

/* Of two ranks that were waited for, the slower one is kept. */
static void add_staleness(const dlc_consistency_stats *seen,
                          dlc_consistency_stats *stats) {
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

static int has_stats(const dlc_session *session) {
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
    add_staleness(&its, stats);
    return DLC_OK;
}

dlc_status dlc_staleness_read(const dlc_staleness *staleness,
                              dlc_consistency_stats *stats) {
    const dlc_session *session = staleness->session;
    *stats = (dlc_consistency_stats){.size = sizeof *stats, .slowest = -1};
    if (!has_stats(session))
        return DLC_OK;
    add_staleness(&staleness->earlier, stats);
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(add_model(session, set, stats));
    return DLC_OK;
}

/* Finds the rank that all ranks together waited for longest. */
static void find_slowest(const dlc_consistency_stats *all,
                         dlc_staleness_report *report) {
    report->slowest = -1;
    for (int32_t r = 0; r < report->ranks; r++) {
        double waited = 0;
        for (int32_t i = 0; i < report->ranks; i++)
            if (all[i].slowest == r)
                waited += all[i].slowest_wait_seconds;
        if (waited > report->slowest_wait_seconds) {
            report->slowest = r;
            report->slowest_wait_seconds = waited;
        }
    }
}

static void add_up(const dlc_consistency_stats *all, dlc_staleness_report *report) {
    for (int32_t r = 0; r < report->ranks; r++) {
        report->waited[r] = all[r].wait_seconds;
        report->reads += all[r].reads;
        for (int i = 0; i < DLC_STALENESS_BINS; i++)
            report->bin[i] += all[r].staleness[i];
    }
    find_slowest(all, report);
}

static dlc_status gather_reports(const dlc_session *session,
                                 const dlc_consistency_stats *mine,
                                 dlc_staleness_report *report) {
    size_t ranks = (size_t)session->ranks;
    dlc_consistency_stats *all = dlc_alloc(ranks, sizeof *all);
    double *waited = dlc_alloc(ranks, sizeof *waited);
    dlc_status status = waited && all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, sizeof *mine, all);
    if (status == DLC_OK) {
        dlc_free(report->waited);
        *report = (dlc_staleness_report){.ranks = session->ranks, .waited = waited};
        add_up(all, report);
        waited = NULL;
    }
    dlc_free(waited);
    dlc_free(all);
    return status;
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
static void add_bins(const dlc_staleness_report *report, dlc_text *text) {
    int used = bins_used(report->bin);
    double reads = report->reads > 0 ? (double)report->reads : 1;

    dlc_text_add(text, "\n    clocks stale ");
    for (int i = 0; i < used; i++)
        dlc_text_add(text, "%7d%s", i, i == DLC_STALENESS_BINS - 1 ? "+" : " ");
    dlc_text_add(text, "\n    reads        ");
    for (int i = 0; i < used; i++)
        dlc_text_add(text, "%6.1f%% ", 100 * (double)report->bin[i] / reads);
}

/* Two lines for every ten ranks. */
static void add_ranks(const dlc_staleness_report *report, dlc_text *text) {
    enum { A_LINE = 10 };
    for (int32_t first = 0; first < report->ranks; first += A_LINE) {
        int32_t end = first + A_LINE < report->ranks ? first + A_LINE : report->ranks;
        dlc_text_add(text, "\n    rank         ");
        for (int32_t r = first; r < end; r++)
            dlc_text_add(text, "%7d ", (int)r);
        dlc_text_add(text, "\n    waited, s    ");
        for (int32_t r = first; r < end; r++)
            dlc_text_add(text, "%7.2f ", report->waited[r]);
    }
}

static void log_staleness(const dlc_staleness_report *report) {
    dlc_text text = {0};
    dlc_text_add(&text, "staleness of %lld reads of the weights, and waiting times:",
                 (long long)report->reads);
    add_bins(report, &text);
    add_ranks(report, &text);
    if (report->slowest >= 0)
        dlc_text_add(&text, "\n    slowest: rank %d, waited for %.2f s by the others",
                     (int)report->slowest, report->slowest_wait_seconds);
    dlc_log_lines(DLC_LOG_INFO, dlc_text_string(&text));
    dlc_text_free(&text);
}

/* Each rank has its own throughput: that of the job is what all replicas process. */
static dlc_status sum_throughput(const dlc_session *session, double *images_per_s) {
    double mine = *images_per_s * (double)session->local_batch /
                  (double)session->global_batch;
    const dlc_replicas *replicas = &session->set[DLC_PARAMS_WHOLE].replicas;
    double *all = dlc_alloc((size_t)session->ranks, sizeof *all), sum = 0;
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &mine, sizeof mine, all);
    for (int32_t i = 0; status == DLC_OK && i < replicas->ranks.ranks; i++)
        sum += all[dlc_replicas_rank(replicas, i)];
    dlc_free(all);
    if (status == DLC_OK)
        *images_per_s = sum;
    return status;
}

dlc_status dlc_staleness_report_end(dlc_staleness *staleness, double *images_per_s) {
    const dlc_session *session = staleness->session;
    dlc_consistency_stats mine;
    DLC_TRY(sum_throughput(session, images_per_s));
    if (!has_stats(session))
        return DLC_OK;
    DLC_TRY(dlc_staleness_read(staleness, &mine));
    DLC_TRY(gather_reports(session, &mine, &staleness->report));
    if (session->rank == 0)
        log_staleness(&staleness->report);
    return DLC_OK;
}

static void bins_json(const int64_t bin[DLC_STALENESS_BINS], dlc_json *json) {
    int used = bins_used(bin);
    dlc_json_array(json, "staleness");
    for (int i = 0; i < used; i++)
        dlc_json_int(json, NULL, bin[i]);
    dlc_json_end_array(json);
}

void dlc_staleness_json(const dlc_staleness *staleness, dlc_json *json) {
    const dlc_staleness_report *report = &staleness->report;
    if (!report->ranks)
        return;
    bins_json(report->bin, json);
    dlc_json_array(json, "waited");
    for (int32_t r = 0; r < report->ranks; r++)
        dlc_json_number(json, NULL, report->waited[r]);
    dlc_json_end_array(json);
    dlc_json_int(json, "slowest", report->slowest);
}

void dlc_staleness_progress(const dlc_staleness *staleness, dlc_json *json) {
    dlc_consistency_stats now;
    if (!has_stats(staleness->session) || dlc_staleness_read(staleness, &now) != DLC_OK)
        return;
    bins_json(now.staleness, json);
    dlc_json_number(json, "waited", now.wait_seconds);
}
