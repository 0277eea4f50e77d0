/* Creates and destroys consistency model ssp: which rank owns which slices, and all
 * memory. */
#include "ssp.h"
#include <math.h>

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

dlc_status groups_of(const dlc_settings *settings, int32_t workers, int64_t *groups) {
    *groups = host->is_set(settings, "groups") ? host->get_int(settings, "groups")
                                               : workers;
    return *groups <= workers
               ? DLC_OK
               : host->fail(DLC_ERR_CONFIG,
                            "%s: groups = %d, but only %d ranks compute",
                            host->where(settings, "groups"), (int)*groups, workers);
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

/* An owner's slice of the trained elements of a bucket. */
static span slice_of(const ssp *s, int32_t bucket, int32_t owner) {
    return parts_of(s, bucket, s->border[owner], s->border[owner + 1],
                    s->border[s->owners]);
}

/* ---- Settings ---------------------------------------------------------------- */

static void take_arenas(ssp *s, const dlc_consistency_args *args) {
    s->ops = args->device_ops;
    s->device = args->device;
    s->queue = args->queue;
    s->exchange = args->exchange;
    s->updater = args->updater;
    s->buckets = args->exchange->buckets;
    s->weights = args->weights;
    s->gradients = args->gradients;
    s->slots = args->updater->slots;
    for (int32_t i = 0; i < s->slots; i++)
        s->slot[i] = args->slots[i];
    s->control_words = args->control_words;
    s->trained = args->count - args->control_words;
}

static dlc_status check_args(const dlc_consistency_args *args) {
    if (args->control_words > MAX_CONTROL_WORDS)
        return host->fail(DLC_ERR_INTERNAL, "%zu control words are too many for ssp",
                          args->control_words);
    return DLC_OK;
}

static dlc_status take_ranks(ssp *s, const dlc_consistency_args *args) {
    int32_t servers = (int32_t)host->get_int(args->settings, "servers");
    s->p2p = args->p2p;
    s->first = args->iteration;
    s->ranks = args->exchange->ranks;
    s->alone = s->ranks == 1;
    if (!s->alone && !s->p2p)
        return host->fail(DLC_ERR_INTERNAL, "ssp was given no p2p channel");
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
    int64_t groups = 0;
    dlc_status status = groups_of(settings, s->workers, &groups);
    if (status != DLC_OK)
        return status;
    if (!MAKE(s->group, s->workers))
        return DLC_ERR_NOMEM;
    /* Groups as equal as possible: group g begins at worker g * workers / groups. */
    for (int32_t w = 0; w < s->workers; w++)
        s->group[w] = (int32_t)((((int64_t)w + 1) * groups - 1) / s->workers);
    return DLC_OK;
}

static dlc_status set_shares(ssp *s, const int64_t *batch_split) {
    int64_t all = 0;
    if (!MAKE(s->shares, s->workers))
        return DLC_ERR_NOMEM;
    for (int32_t w = 0; batch_split && w < s->workers; w++)
        all += batch_split[w];
    for (int32_t w = 0; w < s->workers; w++)
        s->shares[w] = all ? (double)batch_split[w] / (double)all : 1.0 / s->workers;
    if (is_worker(s, s->me))
        s->share = s->shares[s->me];
    return DLC_OK;
}

/* A rank that computes fewer samples, because it is slower, also owns less. Dedicated
 * servers compute none and own equal slices. */
static dlc_status set_slice_borders(ssp *s, const int64_t *batch_split) {
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
        !MAKE(s->source, s->workers) || !MAKE(s->word_scratch, 2 * s->workers) ||
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
    dlc_status status = device_floats(s, s->trained, &s->pulled);
    if (status != DLC_OK)
        return status;
    if (!MAKE(s->slices, count) || !MAKE(s->message, s->buckets) ||
        !MAKE(s->queued_bucket, s->buckets) || !MAKE(s->taken_bucket, s->buckets) ||
        !MAKE(s->waited_for, s->workers) || !MAKE(s->agree.replied, s->ranks))
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
    if (!MAKE(s->shards, s->buckets) || !MAKE(s->given, s->workers))
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; b < s->buckets; b++) {
        shard *one = &s->shards[b];
        one->at = slice_of(s, b, s->owner);
        one->offset = *own;
        for (int i = 0; i < DLC_MAX_SLOTS; i++)
            one->slot_clock[i] = s->first - 1;
        *own += one->at.count;
        *largest = one->at.count > *largest ? one->at.count : *largest;
        if (!MAKE(one->peers, s->ranks))
            return DLC_ERR_NOMEM;
        for (int32_t r = 0; r < s->ranks; r++)
            one->peers[r].clock = s->first - 1;
    }
    return DLC_OK;
}

/* Makes room for the pushes and answers of the other ranks. */
static dlc_status make_buffers(ssp *s, size_t own) {
    dlc_status status = DLC_OK;
    for (int32_t r = 0; status == DLC_OK && r < s->ranks; r++) {
        float *data = NULL;
        if (r != s->me)
            status = device_floats(s, own, &data);
        for (int32_t b = 0; data && b < s->buckets; b++)
            s->shards[b].peers[r].data = data + s->shards[b].offset;
    }
    return status;
}

static dlc_status copy_to_owner(ssp *s, const shard *one, const float *arena,
                                float *owned) {
    return s->ops->copy(s->device, s->queue, owned + one->offset, arena + one->at.begin,
                        one->at.count * sizeof *owned);
}

static dlc_status copy_owned(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++) {
        status = copy_to_owner(s, &s->shards[b], s->weights, s->owned_weights);
        for (int32_t i = 0; status == DLC_OK && i < s->slots; i++)
            status = copy_to_owner(s, &s->shards[b], s->slot[i], s->owned_slot[i]);
    }
    return status == DLC_OK && s->queue
               ? s->ops->queues->queue_sync(s->device, s->queue)
               : status;
}

static dlc_status make_owner(ssp *s) {
    size_t own = 0, largest = 0;
    dlc_status status = make_shards(s, &own, &largest);
    if (status == DLC_OK)
        status = make_buffers(s, own);
    if (status == DLC_OK)
        status = device_floats(s, own, &s->owned_weights);
    if (status == DLC_OK)
        status = device_floats(s, largest * (size_t)s->nodes, &s->scratch);
    for (int32_t i = 0; status == DLC_OK && i < s->slots; i++)
        status = device_floats(s, own, &s->owned_slot[i]);
    return status == DLC_OK ? copy_owned(s) : status;
}

static dlc_status make_all(ssp *s, const dlc_consistency_args *args) {
    const dlc_settings *settings = args->settings;
    dlc_status status = make_groups(s, settings);
    if (status == DLC_OK)
        status = set_shares(s, args->batch_split);
    if (status == DLC_OK)
        status = set_slice_borders(s, args->batch_split);
    if (status == DLC_OK)
        status = list_members(s);
    if (status == DLC_OK)
        status = make_slices(s);
    if (status == DLC_OK && s->owner >= 0)
        status = make_owner(s);
    if (status == DLC_OK)
        status = steps_alloc(s, s->staleness);
    if (status == DLC_OK)
        status = trace_open(s, args);
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

static dlc_status fill_in(ssp *s, const dlc_consistency_args *args) {
    take_arenas(s, args);
    dlc_status status = check_args(args);
    if (status == DLC_OK)
        status = staleness_of(args->settings, &s->staleness);
    if (status == DLC_OK)
        status = take_ranks(s, args);
    s->barrier_entered = s->barrier_announced = s->barrier_passed = s->applied =
        s->agree.ended = s->first - 1;
    for (int i = 0; i < MAX_CONTROL_WORDS; i++)
        s->agree.duplicate_at[i] = s->agree.effective_at[i] = -1;
    if (status != DLC_OK || s->alone)
        return status;
    status = make_lock(s);
    if (status == DLC_OK)
        status = make_all(s, args);
    if (status == DLC_OK)
        status = device_open(s);
    return status == DLC_OK ? comm_start(s) : status;
}

dlc_status ssp_create(const dlc_consistency_args *args, dlc_consistency **model) {
    ssp *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status status = fill_in(made, args);
    if (status == DLC_OK)
        *model = made;
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
    host->free(s->message);
    host->free(s->queued_bucket);
    host->free(s->taken_bucket);
    host->free(s->waited_for);
    host->free(s->agree.replied);
}

static void free_owner(ssp *s) {
    for (int32_t b = 0; s->shards && b < s->buckets; b++)
        host->free(s->shards[b].peers);
    host->free(s->shards);
    host->free(s->given);
}

void ssp_destroy(dlc_consistency *model) {
    if (!model)
        return;
    comm_stop(model);
    agree_close(model);
    trace_close(model);
    device_close(model);
    free_owner(model);
    free_slices(model);
    host->free(model->group);
    host->free(model->shares);
    host->free(model->border);
    host->free(model->member);
    host->free(model->first_member);
    host->free((void *)model->source);
    host->free(model->word_scratch);
    host->free(model->answer_clocks);
    if (model->has_lock) {
        (void)pthread_cond_destroy(&model->changed);
        (void)pthread_mutex_destroy(&model->lock);
    }
    host->free(model);
}
