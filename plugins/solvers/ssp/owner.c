/* The mail thread as an owner: it takes pushes in, applies them when the group that
 * they belong to is complete, and answers as soon as the rule allows. */
#include <string.h>

#include "ssp.h"

/* ---- Arithmetic: on this thread alone, which the device promises for so few elements
 * at a time; all its threads would get in the way of those that compute. ---------- */

enum { AT_ONCE = 16384 };

static size_t chunk(size_t n, size_t at) {
    return n - at < AT_ONCE ? n - at : AT_ONCE;
}

/* The sum of the first `count` of s->source, which it moves. */
static dlc_status sum(ssp *s, size_t n, int32_t count, float *to) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; status == DLC_OK && at < n; at += AT_ONCE) {
        status = s->ops->sum(s->device, NULL, chunk(n, at), s->source, count, to + at);
        for (int32_t i = 0; i < count; i++)
            s->source[i] += chunk(n, at);
    }
    return status;
}

/* y += a * x */
static dlc_status axpy(ssp *s, size_t n, float a, const float *x, float *y) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; status == DLC_OK && at < n; at += AT_ONCE)
        status = s->ops->axpy(s->device, NULL, chunk(n, at), a, x + at, y + at);
    return status;
}

static dlc_status momentum(ssp *s, size_t n, const dlc_momentum *how,
                           const float *gradient, float *velocity, float *weight) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; status == DLC_OK && at < n; at += AT_ONCE)
        status = s->ops->momentum(s->device, NULL, chunk(n, at), how, gradient + at,
                                  velocity + at, weight + at);
    return status;
}

/* ---- Applying ---------------------------------------------------------------- */

static dlc_status sum_nodes(ssp *s, const shard *one) {
    size_t n = one->at.count;
    dlc_status status = DLC_OK;
    for (int32_t i = 0; status == DLC_OK && i < s->nodes; i++) {
        int32_t count = s->first_member[i + 1] - s->first_member[i];
        for (int32_t k = 0; k < count; k++)
            s->source[k] = one->cell[s->member[s->first_member[i] + k]].from;
        status = sum(s, n, count, s->scratch + (size_t)i * n);
    }
    if (status != DLC_OK || s->nodes == 1)
        return status;
    for (int32_t i = 0; i < s->nodes; i++)
        s->source[i] = s->scratch + (size_t)i * n;
    return sum(s, n, s->nodes, s->scratch);
}

/* The same for what the workers gave last as their losses. */
static float pairwise(float *value, int32_t count) {
    for (int32_t step = 1; step < count; step *= 2)
        for (int32_t i = 0; i + step < count; i += 2 * step)
            value[i] += value[i + step];
    return value[0];
}

static float sum_losses(ssp *s) {
    float *of_node = s->addend, *value = s->addend + s->nodes;
    for (int32_t i = 0; i < s->nodes; i++) {
        int32_t first = s->first_member[i], count = s->first_member[i + 1] - first;
        for (int32_t k = 0; k < count; k++)
            value[k] = s->given[s->member[first + k]];
        of_node[i] = pairwise(value, count);
    }
    return pairwise(of_node, s->nodes);
}

static dlc_status step(ssp *s, int32_t bucket, int64_t clock) {
    const shard *one = &s->shards[bucket];
    dlc_momentum base = worker_step(s, clock);
    dlc_status status = DLC_OK;
    for (size_t i = s->own_pieces.first[bucket];
         status == DLC_OK && i < s->own_pieces.first[bucket + 1]; i++) {
        const stretch *piece = &s->own_pieces.at[i];
        size_t at = piece->begin - one->at.begin;
        dlc_momentum how = base;
        how.rate *= piece->rate;
        how.decay *= piece->decay;
        status = momentum(s, piece->count, &how, s->scratch + at,
                          s->moment + one->offset + at, s->master + one->offset + at);
    }
    return status;
}

/* The sum of the steps of a group: velocities, or what Nesterov makes of them, which
 * has its sign already. */
static dlc_status add_steps(ssp *s, const shard *one, int32_t group) {
    size_t n = one->at.count;
    int32_t count = 0;
    for (int32_t w = 0; w < s->workers; w++)
        if (s->group[w] == group)
            s->source[count++] = one->cell[w].from;
    float sign = s->nesterov ? 1 : -1, *master = s->master + one->offset;
    if (count == 1)
        return axpy(s, n, sign, s->source[0], master);
    dlc_status status = sum(s, n, count, s->scratch);
    return status == DLC_OK ? axpy(s, n, sign, s->scratch, master) : status;
}

static dlc_status apply(ssp *s, int32_t bucket, const letter *push, int32_t group) {
    shard *one = &s->shards[bucket];
    dlc_status status = DLC_OK;
    if (!one->at.count)
        return DLC_OK;
    if (push->kind == PUSH_STEP)
        return add_steps(s, one, group);
    status = sum_nodes(s, one);
    if (status == DLC_OK && push->kind == PUSH_GRADIENT)
        return step(s, bucket, push->clock);
    if (status == DLC_OK)
        memcpy(s->moment + one->offset, s->scratch, one->at.count * sizeof(float));
    return status;
}

/* Is it one of those whose pushes are applied together with worker `from`'s? Steps are
 * applied group by group, all else for all workers at once. */
static int is_with(const ssp *s, const letter *push, int32_t from, int32_t worker) {
    return push->kind != PUSH_STEP || s->group[worker] == s->group[from];
}

static int is_complete(const ssp *s, const shard *one, int32_t from) {
    const letter *push = &one->cell[from].push;
    for (int32_t w = 0; w < s->workers; w++)
        if (is_with(s, push, from, w) &&
            (one->cell[w].state != CELL_FULL || one->cell[w].push.clock != push->clock))
            return 0;
    return 1;
}

static void note_applied(ssp *s, int32_t bucket, const letter *push, int32_t from) {
    shard *one = &s->shards[bucket];
    one->last = from;
    if (push->kind == PUSH_VELOCITY)
        one->velocity_clock = push->clock;
    for (int32_t w = 0; w < s->workers; w++) {
        cell *its = &one->cell[w];
        if (!is_with(s, push, from, w))
            continue;
        its->state = CELL_EMPTY;
        if (push->kind == PUSH_VELOCITY)
            continue;
        its->clock = push->clock;
        if (bucket == s->buckets - 1)
            s->given[w] = its->push.loss;
        trace_line(s, "update", bucket, w, push->clock, 0, NULL);
    }
}

/* A server's iterations end when all updates are in. */
static void note_served(ssp *s) {
    int64_t low = INT64_MAX;
    for (int32_t b = 0; b < s->buckets; b++) {
        const shard *one = &s->shards[b];
        for (int32_t w = 0; is_used(s, b, &one->at) && w < s->workers; w++)
            low = one->cell[w].clock < low ? one->cell[w].clock : low;
    }
    float loss = sum_losses(s);
    pthread_mutex_lock(&s->lock);
    s->loss = loss;
    s->served = low;
    views_unlock(s);
}

static dlc_status filled(ssp *s, int32_t bucket, int32_t from) {
    shard *one = &s->shards[bucket];
    one->cell[from].state = CELL_FULL;
    one->cell[from].parked = 1; /* unless it completes its group */
    if (!is_complete(s, one, from))
        return DLC_OK;
    one->cell[from].parked = 0;
    letter push = one->cell[from].push;
    dlc_status status = apply(s, bucket, &push, s->group[from]);
    if (status != DLC_OK)
        return status;
    note_applied(s, bucket, &push, from);
    if (!is_worker(s, s->me))
        note_served(s);
    return owner_answers(s, bucket);
}

/* ---- Answering --------------------------------------------------------------- */

static int is_own(const ssp *s, int32_t asker, int32_t worker) {
    return is_worker(s, asker) && s->group[asker] == s->group[worker];
}

/* Is all in that the asker waits for? */
static int is_due(const ssp *s, const shard *one, int32_t asker) {
    const cell *its = &one->cell[asker];
    if (its->sending)
        return 0;
    if (its->ask.kind == PUSH_VELOCITY || its->ask.kind == ASK_VELOCITY)
        return one->velocity_clock >= its->ask.clock;
    for (int32_t w = 0; w < s->workers; w++)
        if (one->cell[w].clock < (is_own(s, asker, w) ? its->ask.own : its->ask.others))
            return 0;
    return 1;
}

static void compose(ssp *s, int32_t bucket, int32_t asker, letter *answer,
                    int64_t *in) {
    const shard *one = &s->shards[bucket];
    *answer = (letter){.kind = ANSWER,
                       .bucket = bucket,
                       .clock = one->cell[asker].ask.clock,
                       .last = one->cell[asker].parked ? one->last : -1};
    if (bucket == s->buckets - 1)
        answer->loss = sum_losses(s);
    for (int32_t w = 0; w < s->workers; w++)
        in[w] = one->cell[w].clock;
}

/* To this rank itself; not while its train thread reads what came before. */
static dlc_status answer_self(ssp *s, int32_t bucket, const float *from) {
    view *mine = view_at(s, bucket, s->owner);
    cell *its = &s->shards[bucket].cell[s->me];
    if (!views_claim(s, mine))
        return DLC_OK;
    compose(s, bucket, s->me, mine->coming, letter_in(mine->coming));
    its->asks = 0;
    memcpy(s->pulled + mine->at.begin, from, mine->at.count * sizeof *from);
    trace_line(s, "answer", bucket, s->me, its->parked, 0, letter_in(mine->coming));
    return views_arrived(s, bucket, s->owner);
}

static dlc_status answer(ssp *s, int32_t bucket, int32_t asker) {
    const shard *one = &s->shards[bucket];
    cell *its = &one->cell[asker];
    int velocity = its->ask.kind == PUSH_VELOCITY || its->ask.kind == ASK_VELOCITY;
    const float *from = (velocity ? s->moment : s->master) + one->offset;
    letter reply;
    if (asker == s->me)
        return answer_self(s, bucket, from);
    compose(s, bucket, asker, &reply, s->answer_in);
    its->asks = 0;
    trace_line(s, "answer", bucket, asker, its->parked, 0, s->answer_in);
    dlc_status status = post_letter(s, asker, &reply, s->answer_in);
    if (status != DLC_OK || !one->at.count)
        return status;
    memcpy(its->data, from, one->at.count * sizeof *from);
    its->sending = 1;
    errand then = {.what = SENT_ANSWER, .peer = asker, .bucket = bucket};
    return post_slice(s, asker, its->data, one->at.count, &then);
}

dlc_status owner_answers(ssp *s, int32_t bucket) {
    const shard *one = &s->shards[bucket];
    dlc_status status = DLC_OK;
    for (int32_t r = 0; status == DLC_OK && r < s->ranks; r++) {
        if (!one->cell[r].asks)
            continue;
        if (is_due(s, one, r))
            status = answer(s, bucket, r);
        else
            one->cell[r].parked = 1;
    }
    return status;
}

static void note_ask(ssp *s, const letter *ask, int32_t from) {
    cell *its = &s->shards[ask->bucket].cell[from];
    its->ask = *ask;
    its->asks = 1;
    its->parked = 0;
    if (ask->kind == PUSH_GRADIENT || ask->kind == PUSH_STEP)
        trace_line(s, "ask", ask->bucket, from, ask->own, ask->others, NULL);
}

/* ---- Taking in --------------------------------------------------------------- */

/* The room for the push is that of the answer before it, which may not be known to
 * have left. */
static dlc_status let_come(ssp *s, int32_t bucket, int32_t from) {
    const shard *one = &s->shards[bucket];
    cell *its = &one->cell[from];
    if (its->sending) {
        its->state = CELL_BLOCKED;
        return DLC_OK;
    }
    its->state = CELL_COMING;
    its->from = its->data;
    errand then = {.what = GOT_PUSH, .peer = from, .bucket = bucket};
    return post_expect(s, from, its->data, one->at.count, &then);
}

/* The push is there; it asks, too. */
dlc_status owner_pushed(ssp *s, int32_t bucket, int32_t from) {
    note_ask(s, &s->shards[bucket].cell[from].push, from);
    return filled(s, bucket, from);
}

static dlc_status take_ask(ssp *s, const letter *one, int32_t from) {
    note_ask(s, one, from);
    return owner_answers(s, one->bucket);
}

dlc_status owner_letter(ssp *s, const letter *one, int32_t from) {
    cell *its = &s->shards[one->bucket].cell[from];
    if (its->asks || its->state != CELL_EMPTY)
        return post_fail(s, DLC_ERR_INTERNAL,
                         "rank %d pushed bucket %d before it had an answer", from,
                         one->bucket);
    if (one->kind > PUSH_VELOCITY)
        return take_ask(s, one, from);
    its->push = *one;
    return s->shards[one->bucket].at.count ? let_come(s, one->bucket, from)
                                           : owner_pushed(s, one->bucket, from);
}

dlc_status owner_own(ssp *s, const letter *one, const float *from) {
    cell *its = &s->shards[one->bucket].cell[s->me];
    if (one->kind > PUSH_VELOCITY)
        return take_ask(s, one, s->me);
    its->push = *one;
    its->from = from;
    return owner_pushed(s, one->bucket, s->me);
}

dlc_status owner_sent(ssp *s, int32_t bucket, int32_t to) {
    cell *its = &s->shards[bucket].cell[to];
    its->sending = 0;
    if (its->state == CELL_BLOCKED)
        return let_come(s, bucket, to);
    return its->asks ? owner_answers(s, bucket) : DLC_OK;
}
