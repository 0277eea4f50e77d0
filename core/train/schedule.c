/* See schedule.h. */
#include "train/schedule.h"

#include <math.h>

#include "base/log.h"
#include "comm/pace.h"

/* Multiplications and additions in the time in which a device moves a byte: processors
 * and boards are seldom far from it. */
enum { OPERATIONS_A_BYTE = 10 };

/* How long backward takes, about: each part of each layer as long as its operations do,
 * or the bytes that it moves. The slowest rank's, so that all ranks choose alike. */
static dlc_status guess_backward(const dlc_session *session, double *seconds) {
    dlc_comm *comm = session->connection.comm;
    double memory, sum = 0;
    DLC_TRY(dlc_pace_memory(comm, session->device_ops, session->device, &memory));
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        for (int part = DLC_NET_BACKWARD_DATA; part < DLC_NET_PARTS; part++) {
            double operations = 2.0 * (double)row.work[part].multiply_adds;
            sum += fmax(operations / OPERATIONS_A_BYTE, (double)row.work[part].bytes);
        }
    }
    *seconds = sum / memory;
    return dlc_pace_slowest(comm, seconds);
}

/* Is there more to exchange than backward can hide? Gradients come in its course, not
 * at its beginning, and the guess is a guess: half of it counts. */
static dlc_status find_late(const dlc_session *session, const dlc_pace *pace,
                            int *late) {
    double backward = 0;
    DLC_TRY(guess_backward(session, &backward));
    size_t bytes = dlc_net_arenas(session->net)->count * sizeof(float);
    *late = (double)bytes / pace->bandwidth > backward / 2;
    return DLC_OK;
}

/* What [transport] says: "yes", "no", or "auto". */
static int is_said(const dlc_session *session, const char *name, const char *text) {
    return dlc_settings_is(session->setup->transport_settings, name, text);
}

int dlc_schedule_is_one_pass(const dlc_session *session) {
    return session->needs.shards && !is_said(session, "shard_optimizer", "no") &&
           dlc_comm_can_update(session->connection.comm);
}

/* One pass over memory moves less than any other way. */
static int choose_shards(const dlc_session *session, const dlc_pace *pace) {
    const dlc_comm *comm = session->connection.comm;
    if (!session->needs.shards || !dlc_comm_has_shards(comm))
        return 0;
    if (!is_said(session, "shard_optimizer", "auto"))
        return is_said(session, "shard_optimizer", "yes");
    return dlc_schedule_is_one_pass(session) ||
           dlc_pace_shards(pace, dlc_comm_ranks(comm));
}

static dlc_status choose_late(const dlc_session *session, const dlc_pace *pace,
                              int *late) {
    if (!session->needs.late || session->pipeline)
        return DLC_OK;
    if (is_said(session, "overlap_forward", "auto"))
        return find_late(session, pace, late);
    *late = is_said(session, "overlap_forward", "yes");
    return DLC_OK;
}

/* Of the arena, the part of a bucket where the link, or another rank, is waited for. */
enum { PARTS = 8 };

static size_t arena_bytes(const dlc_session *session) {
    return dlc_net_arenas(session->net)->count * sizeof(float);
}

/* [transport] bucket_bytes; 0: nothing was said. */
static size_t given_bucket(const dlc_session *session) {
    return (size_t)dlc_settings_get_int(session->setup->transport_settings, "bucket_bytes");
}

/* Where forward goes ahead, the link is what all wait for, and stands still between two
 * buckets until the threads that sum them get a turn. Some large ones cost least of
 * that; eight let what the next forward needs first overtake the rest. */
static size_t choose_bucket(const dlc_session *session, const dlc_pace *pace,
                            int late) {
    size_t given = given_bucket(session), bytes = arena_bytes(session);
    if (given)
        return given;
    size_t best = dlc_pace_bucket(pace, bytes);
    return late && best < bytes / PARTS ? bytes / PARTS : best;
}

static void announce(const dlc_pace *pace, const dlc_schedule *schedule) {
    const char *how = schedule->shards ? "each rank updates a shard of the weights"
                      : schedule->late ? "forward goes ahead of what it does not need"
                                       : "each rank updates all weights";
    dlc_info("exchange: %.1f us, then %.2f GB/s: buckets of %.2f MB; %s",
             pace->latency * 1e6, pace->bandwidth / 1e9, (double)schedule->bucket / 1e6,
             how);
}

/* A solver that passes gradients on by itself: each rank goes on as soon as it may,
 * with buckets small enough to be under way while backward makes the next, and large
 * enough that their bytes take longer than waking who waits for them. */
static dlc_schedule of_mail(const dlc_session *session) {
    enum { LEAST = 1 << 20, MOST = 4 << 20 };
    size_t part = arena_bytes(session) / PARTS, bucket = given_bucket(session);
    if (bucket == 0)
        bucket = part < LEAST ? LEAST : part > MOST ? MOST : part;
    int late = session->needs.late && !session->loss_scale.base;
    if (session->rank == 0)
        dlc_info("ranks need not be in the same iteration; buckets of %.2f MB%s",
                 (double)bucket / 1e6,
                 late ? "; forward goes ahead of what it does not need" : "");
    return (dlc_schedule){.bucket = bucket, .late = late};
}

dlc_status dlc_schedule_make(const dlc_session *session, dlc_schedule *schedule) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    dlc_comm *comm = session->connection.comm;
    dlc_schedule made = {.bucket = SIZE_MAX};
    dlc_pace pace;

    *schedule = made; /* alone there is nothing to overlap: one pass over memory */
    if (dlc_comm_ranks(comm) == 1)
        return DLC_OK;
    if (session->asynchronous) {
        *schedule = of_mail(session);
        return DLC_OK;
    }
    DLC_TRY(dlc_pace_measure(comm, session->device_ops, session->device,
                             arenas->gradients, arenas->count, &pace));
    /* Gradients that may overflow are looked at whole, before any update. */
    int whole = session->loss_scale.base != NULL;
    made.shards = !whole && choose_shards(session, &pace);
    if (!whole && !made.shards)
        DLC_TRY(choose_late(session, &pace, &made.late));
    made.bucket = choose_bucket(session, &pace, made.late);
    if (session->rank == 0)
        announce(&pace, &made);
    *schedule = made;
    return DLC_OK;
}
