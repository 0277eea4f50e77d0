/* The communication thread as an owner (parameter server): receives pushes, applies
 * them when their group is complete, and answers as soon as the staleness bound allows.
 */
#include "ssp.h"

/* ---- Arithmetic -------------------------------------------------------------- */

/* Without a queue all calls are for at most AT_ONCE elements, which the device promises
 * to compute on the calling thread: its thread pool would take cores from the threads
 * that compute the net. */
enum { AT_ONCE = 16384 };

static size_t chunk(const ssp *s, size_t n, size_t at) {
    return s->own_queue || n - at < AT_ONCE ? n - at : AT_ONCE;
}

/* Sums the first `count` arrays of s->source, which are advanced. */
static dlc_status sum(ssp *s, size_t n, int32_t count, float *to) {
    dlc_status status = DLC_OK;
    for (size_t at = 0, part; status == DLC_OK && at < n; at += part) {
        part = chunk(s, n, at);
        status = s->ops->sum(s->device, s->own_queue, part, s->source, count, to + at);
        for (int32_t i = 0; i < count; i++)
            s->source[i] += part;
    }
    return status;
}

static dlc_status add(ssp *s, size_t n, const float *from, float *to) {
    dlc_status status = DLC_OK;
    for (size_t at = 0, part; status == DLC_OK && at < n; at += part) {
        part = chunk(s, n, at);
        status = s->ops->add(s->device, s->own_queue, part, from + at, to + at);
    }
    return status;
}

static dlc_status copy(ssp *s, size_t n, const float *from, float *to) {
    dlc_status status = DLC_OK;
    for (size_t at = 0, part; status == DLC_OK && at < n; at += part) {
        part = chunk(s, n, at);
        status = s->ops->copy(s->device, s->own_queue, to + at, from + at,
                              part * sizeof *to);
    }
    return status;
}

/* Applies the solver's rule to an owned slice; the gradient is in s->scratch. */
static dlc_status update(ssp *s, const shard *one, const dlc_rule_values *values) {
    size_t n = one->at.count;
    dlc_status status = DLC_OK;
    for (size_t at = 0, part; status == DLC_OK && at < n; at += part) {
        float *slots[DLC_MAX_SLOTS] = {NULL};
        part = chunk(s, n, at);
        for (int32_t i = 0; i < s->slots; i++)
            slots[i] = s->owned_slot[i] + one->offset + at;
        status = s->updater->update(s->updater->context, s->own_queue, values,
                                    one->at.begin + at, part, 1, s->scratch + at, slots,
                                    s->owned_weights + one->offset + at);
    }
    return status;
}

/* ---- Applying ---------------------------------------------------------------- */

static dlc_status sum_nodes(ssp *s, const shard *one) {
    size_t n = one->at.count;
    dlc_status status = DLC_OK;
    for (int32_t i = 0; status == DLC_OK && i < s->nodes; i++) {
        int32_t count = s->first_member[i + 1] - s->first_member[i];
        for (int32_t k = 0; k < count; k++)
            s->source[k] = one->peers[s->member[s->first_member[i] + k]].from;
        status = sum(s, n, count, s->scratch + (size_t)i * n);
    }
    if (status != DLC_OK || s->nodes == 1)
        return status;
    for (int32_t i = 0; i < s->nodes; i++)
        s->source[i] = s->scratch + (size_t)i * n;
    return sum(s, n, s->nodes, s->scratch);
}

/* Sums words in the order in which sum_nodes sums slices. */
static float pairwise(float *value, int32_t count) {
    for (int32_t step = 1; step < count; step *= 2)
        for (int32_t i = 0; i + step < count; i += 2 * step)
            value[i] += value[i + step];
    return value[0];
}

/* Where some workers have not given their words yet, the others stand for them. */
static float sum_word(ssp *s, int word) {
    float *of_node = s->word_scratch, *value = s->word_scratch + s->nodes;
    for (int32_t i = 0; i < s->nodes; i++) {
        int32_t first = s->first_member[i], count = s->first_member[i + 1] - first;
        for (int32_t k = 0; k < count; k++)
            value[k] = s->given[s->member[first + k]].of[word];
        of_node[i] = pairwise(value, count);
    }
    float sum = pairwise(of_node, s->nodes);
    return s->heard < s->workers && s->heard_share > 0 ? (float)(sum / s->heard_share)
                                                       : sum;
}

static control_sums sum_words(ssp *s) {
    control_sums sums;
    for (int i = 0; i < CONTROL_SUMS; i++)
        sums.of[i] = sum_word(s, i);
    return sums;
}

static void note_words(ssp *s, int32_t worker, const peer_state *its) {
    if (its->clock < s->first) { /* its first push */
        s->heard++;
        s->heard_share += s->shares[worker];
    }
    s->given[worker] = its->push.sums;
}

static dlc_status step(ssp *s, int32_t bucket, int64_t clock) {
    dlc_rule_values values;
    dlc_status status = s->updater->values(s->updater->context, clock, &values);
    return status == DLC_OK ? update(s, &s->shards[bucket], &values) : status;
}

/* Adds the sum of a group's steps. */
static dlc_status add_steps(ssp *s, const shard *one, int32_t group) {
    size_t n = one->at.count;
    int32_t count = 0;
    for (int32_t w = 0; w < s->workers; w++)
        if (s->group[w] == group)
            s->source[count++] = one->peers[w].from;
    float *owned_weights = s->owned_weights + one->offset;
    if (count == 1)
        return add(s, n, s->source[0], owned_weights);
    dlc_status status = sum(s, n, count, s->scratch);
    return status == DLC_OK ? add(s, n, s->scratch, owned_weights) : status;
}

static dlc_status apply(ssp *s, int32_t bucket, const header *push, int32_t group) {
    shard *one = &s->shards[bucket];
    dlc_status status = DLC_OK;
    if (!one->at.count)
        return DLC_OK;
    if (push->kind == PUSH_STEP)
        return add_steps(s, one, group);
    status = sum_nodes(s, one);
    if (status == DLC_OK && push->kind == PUSH_GRADIENT)
        return step(s, bucket, push->clock);
    return status == DLC_OK ? copy(s, one->at.count, s->scratch,
                                   s->owned_slot[push->slot] + one->offset)
                            : status;
}

/* Is worker `worker`'s push applied together with worker `from`'s? Steps are applied
 * group by group, everything else for all workers at once. */
static int is_with(const ssp *s, const header *push, int32_t from, int32_t worker) {
    return push->kind != PUSH_STEP || s->group[worker] == s->group[from];
}

static int is_complete(const ssp *s, const shard *one, int32_t from) {
    const header *push = &one->peers[from].push;
    for (int32_t w = 0; w < s->workers; w++)
        if (is_with(s, push, from, w) && (one->peers[w].state != PEER_COMPLETE ||
                                          one->peers[w].push.clock != push->clock))
            return 0;
    return 1;
}

static void note_applied(ssp *s, int32_t bucket, const header *push, int32_t from) {
    shard *one = &s->shards[bucket];
    one->last = from;
    if (push->kind == PUSH_SLOT)
        one->slot_clock[push->slot] = push->clock;
    for (int32_t w = 0; w < s->workers; w++) {
        peer_state *its = &one->peers[w];
        if (!is_with(s, push, from, w))
            continue;
        its->state = PEER_IDLE;
        if (push->kind == PUSH_SLOT)
            continue;
        if (bucket == s->buckets - 1)
            note_words(s, w, its);
        its->clock = push->clock;
        trace_line(s, "update", bucket, w, push->clock, 0, NULL);
    }
}

/* A dedicated server's iteration ends when the updates of all workers are in. */
static void note_applied_clock(ssp *s) {
    int64_t low = INT64_MAX;
    for (int32_t b = 0; b < s->buckets; b++) {
        const shard *one = &s->shards[b];
        for (int32_t w = 0; is_used(s, b, &one->at) && w < s->workers; w++)
            low = one->peers[w].clock < low ? one->peers[w].clock : low;
    }
    control_sums sums = sum_words(s);
    pthread_mutex_lock(&s->lock);
    s->sums = sums;
    s->applied = low;
    slices_unlock(s);
}

static dlc_status push_complete(ssp *s, int32_t bucket, int32_t from) {
    shard *one = &s->shards[bucket];
    one->peers[from].state = PEER_COMPLETE;
    one->peers[from].delayed = 1; /* unless this push completes its group */
    if (!is_complete(s, one, from))
        return DLC_OK;
    one->peers[from].delayed = 0;
    header push = one->peers[from].push;
    dlc_status status = apply(s, bucket, &push, s->group[from]);
    if (status != DLC_OK)
        return status;
    note_applied(s, bucket, &push, from);
    if (!is_worker(s, s->me))
        note_applied_clock(s);
    return owner_answer_all(s, bucket);
}

/* ---- Answering --------------------------------------------------------------- */

static int is_own(const ssp *s, int32_t peer, int32_t worker) {
    return is_worker(s, peer) && s->group[peer] == s->group[worker];
}

/* Are all updates in that the peer's answer must contain? */
static int is_ready(const ssp *s, const shard *one, int32_t peer) {
    const peer_state *its = &one->peers[peer];
    if (its->sending)
        return 0;
    if (is_about_slot(&its->request))
        return one->slot_clock[its->request.slot] >= its->request.clock;
    for (int32_t w = 0; w < s->workers; w++)
        if (one->peers[w].clock <
            (is_own(s, peer, w) ? its->request.own : its->request.others))
            return 0;
    return 1;
}

static void compose_answer(ssp *s, int32_t bucket, int32_t peer, header *answer,
                           int64_t *clocks) {
    const shard *one = &s->shards[bucket];
    *answer = (header){.kind = ANSWER,
                       .bucket = bucket,
                       .clock = one->peers[peer].request.clock,
                       .last = one->peers[peer].delayed ? one->last : -1};
    if (bucket == s->buckets - 1)
        answer->sums = sum_words(s);
    for (int32_t w = 0; w < s->workers; w++)
        clocks[w] = one->peers[w].clock;
}

/* Copies what a peer gets out of the way of later updates: to where it is sent from, or
 * for this rank itself to `pulled`. That is deferred while its training thread still
 * reads the previous answer. */
static dlc_status copy_answer(ssp *s, int32_t bucket, int32_t peer) {
    const shard *one = &s->shards[bucket];
    peer_state *its = &one->peers[peer];
    const float *arena = is_about_slot(&its->request) ? s->owned_slot[its->request.slot]
                                                      : s->owned_weights;
    float *to = peer == s->me ? s->pulled + one->at.begin : its->data;
    dlc_status status = DLC_OK;
    its->is_copied = 1;
    if (peer == s->me)
        status = slices_claim(s, slice_at(s, bucket, s->owner), &its->is_copied);
    return status == DLC_OK && its->is_copied
               ? copy(s, one->at.count, arena + one->offset, to)
               : status;
}

/* Answers this rank's own request. */
static dlc_status answer_self(ssp *s, int32_t bucket) {
    const peer_state *its = &s->shards[bucket].peers[s->me];
    header *reply = slice_at(s, bucket, s->owner)->incoming;
    compose_answer(s, bucket, s->me, reply, header_clocks(reply));
    trace_line(s, "answer", bucket, s->me, its->delayed, 0, header_clocks(reply));
    return slices_answer_received(s, bucket, s->owner);
}

/* Sends what copy_answer has copied. */
static dlc_status answer(ssp *s, int32_t bucket, int32_t peer) {
    const shard *one = &s->shards[bucket];
    peer_state *its = &one->peers[peer];
    header reply;
    its->is_copied = its->waits = 0;
    if (peer == s->me)
        return answer_self(s, bucket);
    compose_answer(s, bucket, peer, &reply, s->answer_clocks);
    trace_line(s, "answer", bucket, peer, its->delayed, 0, s->answer_clocks);
    dlc_status status = comm_send_header(s, peer, &reply, s->answer_clocks);
    if (status != DLC_OK || !one->at.count)
        return status;
    its->sending = 1;
    pending_op op = {.what = ANSWER_SENT, .peer = peer, .bucket = bucket};
    return comm_send_slice(s, peer, its->data, one->at.count, &op);
}

/* All answers are copied first, so that the queue is waited for only once. */
dlc_status owner_answer_all(ssp *s, int32_t bucket) {
    const shard *one = &s->shards[bucket];
    dlc_status status = DLC_OK;
    int answers = 0;
    for (int32_t r = 0; status == DLC_OK && r < s->ranks; r++) {
        if (!one->peers[r].waits)
            continue;
        if (is_ready(s, one, r))
            status = copy_answer(s, bucket, r);
        else
            one->peers[r].delayed = 1;
        answers += one->peers[r].is_copied;
    }
    if (status == DLC_OK && answers > 0)
        status = device_finish(s);
    for (int32_t r = 0; status == DLC_OK && r < s->ranks; r++)
        if (one->peers[r].is_copied)
            status = answer(s, bucket, r);
    return status;
}

static void note_request(ssp *s, const header *request, int32_t from) {
    peer_state *its = &s->shards[request->bucket].peers[from];
    its->request = *request;
    its->waits = 1;
    its->delayed = 0;
    if (request->kind == PUSH_GRADIENT || request->kind == PUSH_STEP)
        trace_line(s, "request", request->bucket, from, request->own, request->others,
                   NULL);
}

/* ---- Receiving --------------------------------------------------------------- */

/* The receive buffer also holds the previous answer to this peer, whose send may not be
 * complete yet. */
static dlc_status receive_push(ssp *s, int32_t bucket, int32_t from) {
    const shard *one = &s->shards[bucket];
    peer_state *its = &one->peers[from];
    if (its->sending) {
        its->state = PEER_BLOCKED;
        return DLC_OK;
    }
    its->state = PEER_RECEIVING;
    its->from = its->data;
    pending_op op = {.what = PUSH_RECEIVED, .peer = from, .bucket = bucket};
    return comm_recv_slice(s, from, its->data, one->at.count, &op);
}

/* The slice of a push has arrived; a push is also a request for weights. */
dlc_status owner_push_received(ssp *s, int32_t bucket, int32_t from) {
    note_request(s, &s->shards[bucket].peers[from].push, from);
    return push_complete(s, bucket, from);
}

static dlc_status take_request(ssp *s, const header *one, int32_t from) {
    note_request(s, one, from);
    return owner_answer_all(s, one->bucket);
}

dlc_status owner_header(ssp *s, const header *one, int32_t from) {
    peer_state *its = &s->shards[one->bucket].peers[from];
    if (its->waits || its->state != PEER_IDLE)
        return comm_fail(
            s, DLC_ERR_INTERNAL,
            "rank %d pushed bucket %d before it had received its last answer", from,
            one->bucket);
    if (one->kind > PUSH_SLOT)
        return take_request(s, one, from);
    its->push = *one;
    return s->shards[one->bucket].at.count ? receive_push(s, one->bucket, from)
                                           : owner_push_received(s, one->bucket, from);
}

dlc_status owner_own(ssp *s, const header *one, const float *from) {
    peer_state *its = &s->shards[one->bucket].peers[s->me];
    if (one->kind > PUSH_SLOT)
        return take_request(s, one, s->me);
    its->push = *one;
    its->from = from;
    return owner_push_received(s, one->bucket, s->me);
}

dlc_status owner_answer_sent(ssp *s, int32_t bucket, int32_t to) {
    peer_state *its = &s->shards[bucket].peers[to];
    its->sending = 0;
    if (its->state == PEER_BLOCKED)
        return receive_push(s, bucket, to);
    return its->waits ? owner_answer_all(s, bucket) : DLC_OK;
}
