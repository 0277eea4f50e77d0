/* Creates and destroys solver ssp: which rank owns which slices, and all memory. */
#include <math.h>
#include <string.h>

#include "ssp.h"

enum { LINE = 16 }; /* slices begin at multiples of so many elements of the bucket */

dlc_status staleness_of(const dlc_settings *settings, int64_t *staleness) {
    double losses = host->get_float(settings, "staleness");
    if (isinf(losses)) {
        *staleness = INT64_MAX;
        return DLC_OK;
    }
    if (losses != floor(losses) || losses > 0x1p31)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: staleness = %g is a number of iterations: 0, 1, 2, ... "
                          "or inf",
                          host->where(settings, "staleness"), losses);
    *staleness = (int64_t)losses;
    return DLC_OK;
}

/* Parts `begin` to `end`, of `parts`, of the trained elements of a bucket. */
static span parts_of(const ssp *s, int32_t bucket, int64_t begin, int64_t end,
                     int64_t parts) {
    size_t first = s->exchange->bucket_begin[bucket];
    size_t last = s->exchange->bucket_begin[bucket + 1];
    if (last > s->trained)
        last = s->trained;
    size_t n = last > first ? last - first : 0;
    size_t lines = (n + LINE - 1) / LINE, of = (size_t)parts;
    size_t from = lines * (size_t)begin / of * LINE;
    size_t to = lines * (size_t)end / of * LINE;
    to = to < n ? to : n;
    return (span){first + (from < to ? from : to), from < to ? to - from : 0};
}

span bucket_of(const ssp *s, int32_t bucket) {
    return parts_of(s, bucket, 0, 1, 1);
}

span part_of(const ssp *s, int32_t bucket, int32_t worker) {
    return parts_of(s, bucket, worker, worker + 1, s->workers);
}

span slice_of(const ssp *s, int32_t bucket, int32_t owner) {
    return parts_of(s, bucket, s->border[owner], s->border[owner + 1],
                    s->border[s->owners]);
}

/* ---- Settings ---------------------------------------------------------------- */

static void take_arenas(ssp *s, const dlc_solver_args *args) {
    s->ops = args->device_ops;
    s->device = args->device;
    s->exchange = args->exchange;
    s->buckets = args->exchange->buckets;
    s->weights = args->weights;
    s->gradients = args->gradients;
    s->velocity = args->slots[SLOT_MOMENTUM];
    s->sum = args->slots[SLOT_SUM];
    s->control_words = args->control_words;
    s->trained = args->count - args->control_words;
}

static dlc_status take_settings(ssp *s, const dlc_solver_args *args) {
    const dlc_settings *settings = args->settings;
    s->momentum = host->get_float(settings, "momentum");
    s->nesterov = host->get_bool(settings, "nesterov");
    s->weight_decay = host->get_float(settings, "weight_decay");
    s->accumulation_steps = (int32_t)host->get_int(settings, "accumulation_steps");
    dlc_status status = staleness_of(settings, &s->staleness);
    if (status == DLC_OK)
        status = policy_from_args(host, args, &s->policy);
    return status;
}

static dlc_status check_args(const dlc_solver_args *args) {
    int scaled = DLC_HAS(args, loss_scale) ? args->loss_scale != NULL : 0;
    if (scaled || args->queue)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "solver ssp works only on CPUs; for weights on a GPU set "
                          "[solver] type = sgd");
    if (args->control_words < 1 || args->control_words > MAX_CONTROL_WORDS)
        return host->fail(DLC_ERR_INTERNAL,
                          "%zu control words are too few or too many for solver ssp",
                          args->control_words);
    return DLC_OK;
}

static dlc_status take_ranks(ssp *s, const dlc_solver_args *args) {
    int32_t servers = (int32_t)host->get_int(args->settings, "servers");
    s->p2p = DLC_HAS(args, p2p) ? args->p2p : NULL;
    s->first = DLC_HAS(args, iteration) ? args->iteration : 0;
    s->ranks = args->exchange->ranks;
    s->alone = s->ranks == 1;
    if (!s->alone && !s->p2p)
        return host->fail(DLC_ERR_INTERNAL, "solver ssp was given no p2p channel");
    s->ranks = s->alone ? 1 : s->p2p->ranks;
    s->me = s->alone ? 0 : s->p2p->rank;
    s->workers = s->ranks - servers;
    s->owners = servers ? servers : s->ranks;
    s->first_owner = servers ? s->workers : 0;
    s->owner = s->me >= s->first_owner ? s->me - s->first_owner : -1;
    if (s->workers < 1)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: servers = %d of %d ranks leaves no rank to compute",
                          host->where(args->settings, "servers"), servers, s->ranks);
    return DLC_OK;
}

/* ---- Memory ------------------------------------------------------------------ */

#define MAKE(to, count) ((to) = host->alloc(((size_t)(count) + 1) * sizeof *(to)))

static dlc_status make_groups(ssp *s, const dlc_settings *settings) {
    int64_t groups = host->is_set(settings, "groups")
                         ? host->get_int(settings, "groups")
                         : s->workers;
    if (groups > s->workers)
        return host->fail(DLC_ERR_CONFIG, "%s: groups = %d, but only %d ranks compute",
                          host->where(settings, "groups"), (int)groups, s->workers);
    if (!MAKE(s->group, s->workers))
        return DLC_ERR_NOMEM;
    /* Groups as equal as possible: group g begins at worker g * workers / groups. */
    for (int32_t w = 0; w < s->workers; w++)
        s->group[w] = (int32_t)((((int64_t)w + 1) * groups - 1) / s->workers);
    return DLC_OK;
}

/* A rank that computes fewer samples, because it is slower, also owns less. Dedicated
 * servers compute none and own equal slices. */
static dlc_status set_slice_borders(ssp *s, const dlc_solver_args *args) {
    const int64_t *batch_split = DLC_HAS(args, batch_split) ? args->batch_split : NULL;
    if (!MAKE(s->border, s->owners))
        return DLC_ERR_NOMEM;
    for (int32_t o = 0; o < s->owners; o++)
        s->border[o + 1] = s->border[o] +
                           (batch_split && !s->first_owner ? batch_split[o] : 1);
    return DLC_OK;
}

/* Lists the workers node by node, the nodes in the order of their first ranks. */
static dlc_status list_members(ssp *s) {
    const int32_t *node = s->p2p->node;
    int32_t count = 0;
    if (!MAKE(s->member, s->workers) || !MAKE(s->first_member, s->workers) ||
        !MAKE(s->source, s->workers) || !MAKE(s->loss_scratch, 2 * s->workers) ||
        !MAKE(s->answer_clocks, s->workers))
        return DLC_ERR_NOMEM;
    for (int32_t w = 0; w < s->workers; w++) {
        int32_t before = 0;
        while (before < w && node[before] != node[w])
            before++;
        if (before < w)
            continue; /* its node is listed already */
        s->first_member[s->nodes++] = count;
        for (int32_t other = w; other < s->workers; other++)
            if (node[other] == node[w])
                s->member[count++] = other;
    }
    s->first_member[s->nodes] = count;
    return DLC_OK;
}

static void start_clocks(int64_t *clock, int32_t count, int64_t value) {
    for (int32_t w = 0; w < count; w++)
        clock[w] = value;
}

static dlc_status make_slices(ssp *s) {
    size_t count = (size_t)s->buckets * (size_t)s->owners;
    s->header_bytes = sizeof(header) + (size_t)s->workers * sizeof(int64_t);
    if (!MAKE(s->slices, count) || !MAKE(s->pulled, s->trained) ||
        !MAKE(s->pushed_steps, s->nesterov ? s->trained : 0) ||
        !MAKE(s->message, s->buckets) || !MAKE(s->queued_bucket, s->buckets) ||
        !MAKE(s->taken_bucket, s->buckets) || !MAKE(s->waited_for, s->workers) ||
        !MAKE(s->agree.replied, s->ranks))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++)
        for (int32_t o = 0; o < s->owners; o++) {
            slice *one = slice_at(s, b, o);
            one->at = slice_of(s, b, o);
            one->last = -1;
            if (!MAKE(one->clocks, s->workers) || !MAKE(one->held_clocks, s->workers) ||
                !(one->incoming = host->alloc(s->header_bytes)))
                return DLC_ERR_NOMEM;
            start_clocks(one->clocks, s->workers, s->first - 1);
            start_clocks(one->held_clocks, s->workers, s->first - 1);
        }
    return DLC_OK;
}

/* Adds the size of the slices that this rank owns to *own and updates *largest. */
static dlc_status make_shards(ssp *s, size_t *own, size_t *largest) {
    if (!MAKE(s->shards, s->buckets) || !MAKE(s->losses, s->workers))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++) {
        shard *one = &s->shards[b];
        one->at = slice_of(s, b, s->owner);
        one->offset = *own;
        one->velocity_clock = s->first - 1;
        *own += one->at.count;
        *largest = one->at.count > *largest ? one->at.count : *largest;
        if (!MAKE(one->peers, s->ranks))
            return DLC_ERR_NOMEM;
        for (int32_t r = 0; r < s->ranks; r++) {
            one->peers[r].clock = s->first - 1;
            if (r != s->me && !MAKE(one->peers[r].data, one->at.count))
                return DLC_ERR_NOMEM;
        }
    }
    return DLC_OK;
}

static dlc_status make_owned_ranges(ssp *s, const dlc_solver_args *args) {
    size_t *begin, *end;
    dlc_status status = DLC_ERR_NOMEM;
    MAKE(begin, s->buckets);
    MAKE(end, s->buckets);
    if (begin && end) {
        for (int32_t b = 0; b < s->buckets; b++) {
            begin[b] = s->shards[b].at.begin;
            end[b] = begin[b] + s->shards[b].at.count;
        }
        status = param_ranges_make(host, args, begin, end, &s->owned_ranges);
    }
    host->free(begin);
    host->free(end);
    return status;
}

static dlc_status make_owner(ssp *s, const dlc_solver_args *args) {
    size_t own = 0, largest = 0;
    dlc_status status = make_shards(s, &own, &largest);
    if (status == DLC_OK)
        status = make_owned_ranges(s, args);
    if (status != DLC_OK)
        return status;
    if (!MAKE(s->owned_weights, own) || !MAKE(s->owned_velocity, own) ||
        !MAKE(s->scratch, largest * (size_t)s->nodes))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++) {
        const shard *one = &s->shards[b];
        size_t bytes = one->at.count * sizeof(float);
        memcpy(s->owned_weights + one->offset, s->weights + one->at.begin, bytes);
        memcpy(s->owned_velocity + one->offset, s->velocity + one->at.begin, bytes);
    }
    return DLC_OK;
}

static dlc_status make_all(ssp *s, const dlc_solver_args *args) {
    const dlc_settings *settings = args->settings;
    dlc_status status = make_groups(s, settings);
    if (status == DLC_OK)
        status = set_slice_borders(s, args);
    if (status == DLC_OK)
        status = list_members(s);
    if (status == DLC_OK)
        status = make_slices(s);
    if (status == DLC_OK && s->owner >= 0)
        status = make_owner(s, args);
    if (status == DLC_OK)
        status = trace_open(s, host->get_string(settings, "trace"));
    return status;
}

/* ---- Create and destroy ------------------------------------------------------ */

static dlc_status make_lock(ssp *s) {
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return host->fail(DLC_ERR_NOMEM, "the lock could not be created");
    if (pthread_cond_init(&s->changed, NULL) != 0) {
        (void)pthread_mutex_destroy(&s->lock);
        return host->fail(DLC_ERR_NOMEM, "the condition variable could not be created");
    }
    s->has_lock = 1;
    return DLC_OK;
}

static dlc_status fill_in(ssp *s, const dlc_solver_args *args) {
    take_arenas(s, args);
    dlc_status status = check_args(args);
    if (status == DLC_OK)
        status = take_settings(s, args);
    if (status == DLC_OK)
        status = param_ranges_make(host, args, NULL, NULL, &s->ranges);
    if (status == DLC_OK)
        status = take_ranks(s, args);
    s->has_job_velocity = 1;
    s->barrier_entered = s->barrier_announced = s->barrier_passed = s->applied =
        s->agree.ended = s->first - 1;
    for (int i = 0; i < MAX_CONTROL_WORDS; i++)
        s->agree.duplicate_at[i] = -1;
    if (status != DLC_OK || s->alone)
        return status;
    status = make_lock(s);
    if (status == DLC_OK)
        status = make_all(s, args);
    return status == DLC_OK ? comm_start(s) : status;
}

dlc_status ssp_create(const dlc_solver_args *args, dlc_solver **solver) {
    ssp *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status status = fill_in(made, args);
    if (status == DLC_OK)
        *solver = made;
    else
        ssp_destroy(made);
    return status;
}

static void free_slices(ssp *s) {
    size_t count = (size_t)s->buckets * (size_t)s->owners;
    for (size_t i = 0; s->slices && i < count; i++) {
        host->free(s->slices[i].clocks);
        host->free(s->slices[i].held_clocks);
        host->free(s->slices[i].incoming);
    }
    host->free(s->slices);
    host->free(s->pulled);
    host->free(s->pushed_steps);
    host->free(s->message);
    host->free(s->queued_bucket);
    host->free(s->taken_bucket);
    host->free(s->waited_for);
    host->free(s->agree.replied);
}

static void free_owner(ssp *s) {
    for (int32_t b = 0; s->shards && b < s->buckets; b++) {
        for (int32_t r = 0; s->shards[b].peers && r < s->ranks; r++)
            host->free(s->shards[b].peers[r].data);
        host->free(s->shards[b].peers);
    }
    host->free(s->shards);
    host->free(s->losses);
    host->free(s->owned_weights);
    host->free(s->owned_velocity);
    host->free(s->scratch);
    param_ranges_free(host, &s->owned_ranges);
}

void ssp_destroy(dlc_solver *solver) {
    if (!solver)
        return;
    comm_stop(solver);
    agree_close(solver);
    trace_close(solver);
    free_owner(solver);
    free_slices(solver);
    host->free(solver->group);
    host->free(solver->border);
    host->free(solver->member);
    host->free(solver->first_member);
    host->free((void *)solver->source);
    host->free(solver->loss_scratch);
    host->free(solver->answer_clocks);
    param_ranges_free(host, &solver->ranges);
    if (solver->has_lock) {
        (void)pthread_cond_destroy(&solver->changed);
        (void)pthread_mutex_destroy(&solver->lock);
    }
    host->free(solver);
}
