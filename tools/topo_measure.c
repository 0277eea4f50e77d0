/* Measures pairs by ping-pong: small messages for the latency, large ones for the
 * bandwidth, and some of every size to check that each byte arrives unchanged. All
 * other ranks wait meanwhile, so that they don't disturb. */
#include "topo_measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/oob.h"

enum { SMALL = 8, LARGE = 8 << 20, BATCHES = 5, TAG = 1 };

/* One rank's side of a pair. */
typedef struct side {
    int me; /* 0 or 1 */
    const dlc_transport_ops *ops;
    dlc_endpoint *endpoint;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_memory out, in;
    unsigned char *host; /* LARGE bytes */
    void *oob_group;     /* of the out-of-band all-gathers of the pair */
    uint64_t begun;
    double seconds;
} side;

/* ---- Services for the transport ---------------------------------------------- */

static dlc_status gather(void *context, const void *mine, size_t bytes, void *all) {
    const side *s = context;
    return dlc_oob_all_gather(s->oob_group, mine, bytes, all);
}

static dlc_status check(void *context) {
    const side *s = context;
    if (dlc_since(s->begun) > s->seconds)
        return dlc_fail(DLC_ERR_TIMEOUT, "no answer within %g s", s->seconds);
    return dlc_oob_check(s->oob_group);
}

/* ---- Ping-pong -------------------------------------------------------------- */

static dlc_status send(side *s, size_t bytes) {
    dlc_request *request = NULL;
    DLC_TRY(s->ops->send(s->endpoint, 1 - s->me, TAG, s->out.base, bytes, &request));
    return s->ops->wait(s->endpoint, request);
}

static dlc_status receive(side *s, size_t bytes) {
    dlc_request *request = NULL;
    DLC_TRY(s->ops->recv(s->endpoint, 1 - s->me, TAG, s->in.base, bytes, &request));
    return s->ops->wait(s->endpoint, request);
}

static dlc_status ping_pong(side *s, size_t bytes, int rounds) {
    for (int i = 0; i < rounds; i++) {
        DLC_TRY(check(s));
        if (s->me == 0)
            DLC_TRY(send(s, bytes));
        DLC_TRY(receive(s, bytes));
        if (s->me == 1)
            DLC_TRY(send(s, bytes));
    }
    return DLC_OK;
}

/* Gives both sides the value of side 0. */
static dlc_status agree(side *s, double *value) {
    double all[2] = {0};
    DLC_TRY(gather(s, value, sizeof *value, all));
    *value = all[0];
    return DLC_OK;
}

/* One-way seconds: the best of some batches, each long enough for the clock. */
static dlc_status time_bytes(side *s, size_t bytes, double batch, double *seconds) {
    DLC_TRY(ping_pong(s, bytes, 2)); /* warm-up: connections, pages */
    uint64_t start = dlc_now_ns();
    DLC_TRY(ping_pong(s, bytes, 4));
    double rounds = fmin(fmax(batch / (dlc_since(start) / 4), 1), 10000);
    DLC_TRY(agree(s, &rounds));
    double best = INFINITY;
    for (int i = 0; i < BATCHES; i++) {
        start = dlc_now_ns();
        DLC_TRY(ping_pong(s, bytes, (int)rounds));
        best = fmin(best, dlc_since(start) / (int)rounds / 2);
    }
    *seconds = best;
    return DLC_OK;
}

/* ---- Checking every byte
 * -------------------------------------------------------------- */

static void fill(unsigned char *bytes, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (unsigned char)(state >> 32);
    }
}

static size_t count_changed(const unsigned char *bytes, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    size_t changed = 0;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        changed += bytes[i] != (unsigned char)(state >> 32);
    }
    return changed;
}

static dlc_status compare(side *s, size_t bytes, double *wrong) {
    uint64_t salt = bytes * 2;
    fill(s->host, bytes, salt + (uint64_t)s->me);
    DLC_TRY(s->device_ops->copy(s->device, NULL, s->out.base, s->host, bytes));
    DLC_TRY(s->device_ops->fill(s->device, NULL, s->in.base, 0x5a, bytes));
    DLC_TRY(ping_pong(s, bytes, 1));
    DLC_TRY(s->device_ops->copy(s->device, NULL, s->host, s->in.base, bytes));
    *wrong += (double)count_changed(s->host, bytes, salt + (uint64_t)(1 - s->me));
    return DLC_OK;
}

static dlc_status compare_sizes(side *s, int *intact) {
    static const size_t sizes[] = {1, 4096, 65537, (1 << 20) + 3, LARGE};
    double wrong = 0, all[2] = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        DLC_TRY(compare(s, sizes[i], &wrong));
    DLC_TRY(gather(s, &wrong, sizeof wrong, all));
    *intact = all[0] + all[1] == 0;
    return DLC_OK;
}

/* ---- A pair -------------------------------------------------------------------- */

static dlc_status open_memory(side *s) {
    DLC_TRY(s->device_ops->alloc(s->device, LARGE, 0, &s->out));
    DLC_TRY(s->device_ops->alloc(s->device, LARGE, 0, &s->in));
    s->host = dlc_alloc(LARGE, 1);
    return s->host ? DLC_OK : DLC_ERR_NOMEM;
}

static void close_side(side *s) {
    if (s->endpoint)
        s->ops->close(s->endpoint);
    dlc_free(s->host);
    if (s->in.base)
        s->device_ops->free(s->device, &s->in);
    if (s->out.base)
        s->device_ops->free(s->device, &s->out);
    s->device_ops->close(s->device);
}

static dlc_status measure_open(side *s, topo_measured *measured) {
    double small = 0, large = 0;
    if (DLC_CAN(s->ops, describe) &&
        s->ops->describe(s->endpoint, measured->uses, sizeof measured->uses) != DLC_OK)
        measured->uses[0] = '\0';
    DLC_TRY(compare_sizes(s, &measured->intact));
    DLC_TRY(time_bytes(s, SMALL, 0.005, &small));
    DLC_TRY(time_bytes(s, LARGE, 0.05, &large));
    measured->us = small * 1e6;
    measured->gbs = LARGE / large / 1e9;
    return DLC_OK;
}

/* The arguments of a pair's transport. */
typedef struct pair_args {
    dlc_transport_args args;
    dlc_rank_info rank_info[2];
    dlc_settings *made; /* owned */
} pair_args;

static dlc_status open_side(side *s, const dlc_bench_plan *plan,
                            const topo_report *report, const topo_pair *pair,
                            pair_args *with) {
    dlc_device_args device = {
        .size = sizeof device,
        .settings = plan->train_settings,
        .index = report->rank_info[s->me ? pair->b : pair->a].device_index,
        .threads = 1};
    s->device_ops = plan->device->ops;
    s->ops = pair->choice.level[0].feature->ops;
    s->out.size = s->in.size = sizeof s->out;
    DLC_TRY(s->device_ops->open(&device, &s->device));
    with->rank_info[0] = report->rank_info[pair->a];
    with->rank_info[1] = report->rank_info[pair->b];
    with->rank_info[1].node = with->rank_info[1].node != with->rank_info[0].node;
    with->rank_info[0].node = 0;
    with->args = (dlc_transport_args){.size = sizeof with->args,
                                      .rank = s->me,
                                      .ranks = 2,
                                      .rank_info = with->rank_info,
                                      .device_ops = s->device_ops,
                                      .device = s->device,
                                      .job = s,
                                      .oob_all_gather = gather,
                                      .check = check};
    dlc_status status = open_memory(s);
    if (status == DLC_OK)
        status = topo_settings_of(plan, pair->choice.level[0].feature, &with->made,
                                  &with->args.settings);
    if (status == DLC_OK)
        status = s->ops->open(&with->args, &s->endpoint);
    if (status != DLC_OK)
        close_side(s);
    return status;
}

static void measure_side(side *s, const dlc_bench_plan *plan, const topo_report *report,
                         const topo_pair *pair, topo_measured *measured) {
    pair_args with = {.made = NULL};
    dlc_status status = open_side(s, plan, report, pair, &with);
    if (status == DLC_OK) {
        status = measure_open(s, measured);
        close_side(s);
    }
    dlc_settings_free(with.made);
    if (status != DLC_OK)
        snprintf(measured->problem, sizeof measured->problem, "%.250s",
                 dlc_detail()[0] ? dlc_detail() : dlc_status_text(status));
    measured->done = 1;
}

static dlc_status take_part(dlc_job *job, const dlc_bench_plan *plan, double seconds,
                            const topo_report *report, const topo_pair *pair, int go,
                            topo_measured *measured) {
    int32_t mine = (int32_t)dlc_job_rank(job), ranks[] = {pair->a, pair->b};
    side s = {.me = mine == pair->b, .seconds = seconds, .begun = dlc_now_ns()};
    dlc_oob *oob = NULL;
    DLC_TRY(dlc_oob_open(mine, (int32_t)dlc_job_ranks(job), job, dlc_job_all_gather,
                         dlc_job_check, &oob));
    dlc_status status = DLC_OK;
    if (go && (mine == pair->a || mine == pair->b)) {
        status = dlc_oob_add_group(oob, 0, ranks, 2, &s.oob_group);
        if (status == DLC_OK)
            measure_side(&s, plan, report, pair, measured);
    }
    if (status == DLC_OK)
        status = dlc_oob_finish(oob, DLC_OK);
    dlc_oob_close(oob);
    return status;
}

/* Distributes the result of a pair to all ranks; a problem of either side counts. */
static dlc_status share_result(dlc_job *job, topo_pair *pair,
                               const topo_measured *mine) {
    topo_measured *all = dlc_alloc((size_t)dlc_job_ranks(job), sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(job, mine, sizeof *mine, all);
    if (status == DLC_OK)
        pair->measured = all[pair->b].problem[0] && !all[pair->a].problem[0]
                             ? all[pair->b]
                             : all[pair->a];
    dlc_free(all);
    return status;
}

/* Scores should be equal on all ranks, but one rank may see a network and another none.
 * *go: both have chosen the same transport; if they differ `measured` says so. */
static dlc_status agree_on_transport(dlc_job *job, const topo_pair *pair, int *go,
                                     topo_measured *measured) {
    typedef char name[48];
    name mine = "none";
    if (!pair->problem)
        snprintf(mine, sizeof mine, "%s", pair->choice.level[0].feature->name);
    name *all = dlc_alloc((size_t)dlc_job_ranks(job), sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(job, mine, sizeof mine, all);
    const char *a = all[pair->a], *b = all[pair->b];
    *go = strcmp(a, b) == 0 && strcmp(a, mine) == 0 && strcmp(a, "none") != 0;
    if (status == DLC_OK && strcmp(a, b) != 0) {
        snprintf(measured->problem, sizeof measured->problem,
                 "rank %d chose transport %s, but rank %d chose %s", pair->a, a,
                 pair->b, b);
        measured->done = 1;
    }
    dlc_free(all);
    return status;
}

static dlc_status measure_pair(dlc_job *job, const dlc_bench_plan *plan, double seconds,
                               const topo_report *report, topo_pair *pair) {
    topo_measured mine = {0};
    char name[32];
    int go = 0;
    snprintf(name, sizeof name, "rank %d - rank %d", pair->a, pair->b);
    dlc_job_activity(job, "measuring", name, 0); /* restarts the hang timeout */
    dlc_status status = agree_on_transport(job, pair, &go, &mine);
    if (status == DLC_OK)
        status = take_part(job, plan, seconds, report, pair, go, &mine);
    if (status == DLC_OK)
        status = share_result(job, pair, &mine);
    dlc_job_activity(job, NULL, NULL, 0);
    return status;
}

dlc_status topo_measure(dlc_job *job, const dlc_bench_plan *plan, double seconds,
                        topo_report *report) {
    dlc_status status = DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < report->pairs; i++) {
        topo_pair *pair = &report->pair[i];
        if (dlc_job_rank(job) == 0)
            dlc_log_status("measuring rank %d - rank %d (%zu of %zu)", pair->a, pair->b,
                           i + 1, report->pairs);
        status = measure_pair(job, plan, seconds, report, pair);
    }
    if (dlc_job_rank(job) == 0)
        dlc_log_status("%s", "");
    report->measured = 1;
    return status;
}
