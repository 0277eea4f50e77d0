/* The life of the solver: who owns what, and the memory for it. */
#include <math.h>
#include <string.h>

#include "ssp.h"

enum { LINE = 16 }; /* slices begin at a multiple of so many elements of the bucket */

dlc_status staleness_of(const dlc_settings *settings, int64_t *staleness) {
    double given = host->get_float(settings, "staleness");
    if (isinf(given)) {
        *staleness = INT64_MAX;
        return DLC_OK;
    }
    if (given != floor(given) || given > 0x1p31)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: staleness = %g is a number of iterations: 0, 1, 2, ... "
                          "or inf",
                          host->where(settings, "staleness"), given);
    *staleness = (int64_t)given;
    return DLC_OK;
}

/* Of what is trained of a bucket, from part `begin` of so many `parts` up to `end`. */
static span cut(const ssp *s, int32_t bucket, int64_t begin, int64_t end,
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
    return cut(s, bucket, 0, 1, 1);
}

span part_of(const ssp *s, int32_t bucket, int32_t worker) {
    return cut(s, bucket, worker, worker + 1, s->workers);
}

span slice_of(const ssp *s, int32_t bucket, int32_t owner) {
    return cut(s, bucket, s->border[owner], s->border[owner + 1], s->border[s->owners]);
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
    s->tail = args->tail;
    s->trained = args->count - args->tail;
}

static dlc_status take_settings(ssp *s, const dlc_solver_args *args) {
    const dlc_settings *settings = args->settings;
    s->momentum = host->get_float(settings, "momentum");
    s->nesterov = host->get_bool(settings, "nesterov");
    s->weight_decay = host->get_float(settings, "weight_decay");
    s->micro_batches = (int32_t)host->get_int(settings, "accumulation_steps");
    dlc_status status = staleness_of(settings, &s->staleness);
    if (status == DLC_OK)
        status = policy_make_for(host, args, &s->policy);
    return status;
}

static dlc_status check_args(const dlc_solver_args *args) {
    int scaled = DLC_HAS(args, loss_scale) ? args->loss_scale != NULL : 0;
    if (scaled || args->queue)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "solver ssp works on processors so far: weights on a GPU are "
                          "out of its reach; take [solver] type = sgd");
    if (args->tail < 1 || args->tail > WORDS)
        return host->fail(DLC_ERR_INTERNAL, "a tail of %zu words", args->tail);
    return DLC_OK;
}

static dlc_status take_ranks(ssp *s, const dlc_solver_args *args) {
    int32_t servers = (int32_t)host->get_int(args->settings, "servers");
    s->mail = DLC_HAS(args, mail) ? args->mail : NULL;
    s->first = DLC_HAS(args, iteration) ? args->iteration : 0;
    s->ranks = args->exchange->ranks;
    s->alone = s->ranks == 1;
    if (!s->alone && !s->mail)
        return host->fail(DLC_ERR_INTERNAL, "solver ssp was given no mail");
    s->ranks = s->alone ? 1 : s->mail->ranks;
    s->me = s->alone ? 0 : s->mail->rank;
    s->workers = s->ranks - servers;
    s->owners = servers ? servers : s->ranks;
    s->first_owner = servers ? s->workers : 0;
    s->owner = s->me >= s->first_owner ? s->me - s->first_owner : -1;
    if (s->workers < 1)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: servers = %d of %d ranks leave nobody to compute",
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
        return host->fail(DLC_ERR_CONFIG, "%s: groups = %d of %d ranks that compute",
                          host->where(settings, "groups"), (int)groups, s->workers);
    if (!MAKE(s->group, s->workers))
        return DLC_ERR_NOMEM;
    /* As even as may be: group g begins at w * g / groups. */
    for (int32_t w = 0; w < s->workers; w++)
        s->group[w] = (int32_t)((((int64_t)w + 1) * groups - 1) / s->workers);
    return DLC_OK;
}

/* An owner that gets fewer samples, since it is slower, owns less, too. Servers get
 * none, and are alike. */
static dlc_status share_out(ssp *s, const dlc_solver_args *args) {
    const int64_t *share = DLC_HAS(args, shares) ? args->shares : NULL;
    if (!MAKE(s->border, s->owners))
        return DLC_ERR_NOMEM;
    for (int32_t o = 0; o < s->owners; o++)
        s->border[o + 1] = s->border[o] + (share && !s->first_owner ? share[o] : 1);
    return DLC_OK;
}

/* The workers, node after node in the order of the nodes' first ranks. */
static dlc_status list_members(ssp *s) {
    const int32_t *node = s->mail->node;
    int32_t count = 0;
    if (!MAKE(s->member, s->workers) || !MAKE(s->first_member, s->workers) ||
        !MAKE(s->source, s->workers) || !MAKE(s->addend, 2 * s->workers) ||
        !MAKE(s->answer_in, s->workers))
        return DLC_ERR_NOMEM;
    for (int32_t w = 0; w < s->workers; w++) {
        int32_t before = 0;
        while (before < w && node[before] != node[w])
            before++;
        if (before < w)
            continue; /* its node is listed */
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

static dlc_status make_views(ssp *s) {
    size_t count = (size_t)s->buckets * (size_t)s->owners;
    s->letter_bytes = sizeof(letter) + (size_t)s->workers * sizeof(int64_t);
    if (!MAKE(s->views, count) || !MAKE(s->pulled, s->trained) ||
        !MAKE(s->outbox, s->nesterov ? s->trained : 0) || !MAKE(s->order, s->buckets) ||
        !MAKE(s->ordered, s->buckets) || !MAKE(s->taken_orders, s->buckets) ||
        !MAKE(s->waited_for, s->workers) || !MAKE(s->agree.replied, s->ranks))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++)
        for (int32_t o = 0; o < s->owners; o++) {
            view *one = view_at(s, b, o);
            one->at = slice_of(s, b, o);
            one->last = -1;
            if (!MAKE(one->in, s->workers) || !MAKE(one->have, s->workers) ||
                !(one->coming = host->alloc(s->letter_bytes)))
                return DLC_ERR_NOMEM;
            start_clocks(one->in, s->workers, s->first - 1);
            start_clocks(one->have, s->workers, s->first - 1);
        }
    return DLC_OK;
}

/* Returns how many elements its slices have, or -1. */
static dlc_status make_shards(ssp *s, size_t *own, size_t *largest) {
    if (!MAKE(s->shards, s->buckets) || !MAKE(s->given, s->workers))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++) {
        shard *one = &s->shards[b];
        one->at = slice_of(s, b, s->owner);
        one->offset = *own;
        one->velocity_clock = s->first - 1;
        *own += one->at.count;
        *largest = one->at.count > *largest ? one->at.count : *largest;
        if (!MAKE(one->cell, s->ranks))
            return DLC_ERR_NOMEM;
        for (int32_t r = 0; r < s->ranks; r++) {
            one->cell[r].clock = s->first - 1;
            if (r != s->me && !MAKE(one->cell[r].data, one->at.count))
                return DLC_ERR_NOMEM;
        }
    }
    return DLC_OK;
}

static dlc_status cut_own(ssp *s, const dlc_solver_args *args) {
    size_t *begin, *end;
    dlc_status status = DLC_ERR_NOMEM;
    MAKE(begin, s->buckets);
    MAKE(end, s->buckets);
    if (begin && end) {
        for (int32_t b = 0; b < s->buckets; b++) {
            begin[b] = s->shards[b].at.begin;
            end[b] = begin[b] + s->shards[b].at.count;
        }
        status = stretches_cut(host, args, begin, end, &s->own_pieces);
    }
    host->free(begin);
    host->free(end);
    return status;
}

static dlc_status make_owner(ssp *s, const dlc_solver_args *args) {
    size_t own = 0, largest = 0;
    dlc_status status = make_shards(s, &own, &largest);
    if (status == DLC_OK)
        status = cut_own(s, args);
    if (status != DLC_OK)
        return status;
    if (!MAKE(s->master, own) || !MAKE(s->moment, own) ||
        !MAKE(s->scratch, largest * (size_t)s->nodes))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++) {
        const shard *one = &s->shards[b];
        size_t bytes = one->at.count * sizeof(float);
        memcpy(s->master + one->offset, s->weights + one->at.begin, bytes);
        memcpy(s->moment + one->offset, s->velocity + one->at.begin, bytes);
    }
    return DLC_OK;
}

static dlc_status make_all(ssp *s, const dlc_solver_args *args) {
    const dlc_settings *settings = args->settings;
    dlc_status status = make_groups(s, settings);
    if (status == DLC_OK)
        status = share_out(s, args);
    if (status == DLC_OK)
        status = list_members(s);
    if (status == DLC_OK)
        status = make_views(s);
    if (status == DLC_OK && s->owner >= 0)
        status = make_owner(s, args);
    if (status == DLC_OK)
        status = trace_open(s, host->get_string(settings, "trace"));
    return status;
}

/* ---- Life -------------------------------------------------------------------- */

static dlc_status make_lock(ssp *s) {
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return host->fail(DLC_ERR_NOMEM, "no lock is to be had");
    if (pthread_cond_init(&s->moved, NULL) != 0) {
        (void)pthread_mutex_destroy(&s->lock);
        return host->fail(DLC_ERR_NOMEM, "no condition variable is to be had");
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
        status = stretches_cut(host, args, NULL, NULL, &s->pieces);
    if (status == DLC_OK)
        status = take_ranks(s, args);
    s->whole = 1;
    s->arrived = s->told = s->left = s->served = s->agree.ended = s->first - 1;
    for (int i = 0; i < WORDS; i++)
        s->agree.echo[i] = -1;
    if (status != DLC_OK || s->alone)
        return status;
    status = make_lock(s);
    if (status == DLC_OK)
        status = make_all(s, args);
    return status == DLC_OK ? post_start(s) : status;
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

static void free_views(ssp *s) {
    size_t count = (size_t)s->buckets * (size_t)s->owners;
    for (size_t i = 0; s->views && i < count; i++) {
        host->free(s->views[i].in);
        host->free(s->views[i].have);
        host->free(s->views[i].coming);
    }
    host->free(s->views);
    host->free(s->pulled);
    host->free(s->outbox);
    host->free(s->order);
    host->free(s->ordered);
    host->free(s->taken_orders);
    host->free(s->waited_for);
    host->free(s->agree.replied);
}

static void free_owner(ssp *s) {
    for (int32_t b = 0; s->shards && b < s->buckets; b++) {
        for (int32_t r = 0; s->shards[b].cell && r < s->ranks; r++)
            host->free(s->shards[b].cell[r].data);
        host->free(s->shards[b].cell);
    }
    host->free(s->shards);
    host->free(s->given);
    host->free(s->master);
    host->free(s->moment);
    host->free(s->scratch);
    stretches_free(host, &s->own_pieces);
}

void ssp_destroy(dlc_solver *solver) {
    if (!solver)
        return;
    post_stop(solver);
    agree_close(solver);
    trace_close(solver);
    free_owner(solver);
    free_views(solver);
    host->free(solver->group);
    host->free(solver->border);
    host->free(solver->member);
    host->free(solver->first_member);
    host->free((void *)solver->source);
    host->free(solver->addend);
    host->free(solver->answer_in);
    stretches_free(host, &solver->pieces);
    if (solver->has_lock) {
        (void)pthread_cond_destroy(&solver->moved);
        (void)pthread_mutex_destroy(&solver->lock);
    }
    host->free(solver);
}
