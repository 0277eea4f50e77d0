/* Sends bytes on each way, compares and times them. */
#include "comm/probe.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/tags.h"

enum { WORDS = DLC_PROBE_BYTES / 8, SMALL = 64, COPIES = 3, LARGE = 4 };

/* A way is slow if it takes longer than this many times what is expected, a pause, and
 * this many times a small message. Copies need no other rank to run at the same time,
 * but messages do, and small ones show how long that takes. */
typedef struct tolerance {
    double factor, pause, small;
} tolerance;

static const struct {
    const char *what, *hint;
    tolerance tolerance;
} ways[DLC_PROBE_WAYS] = {
    [DLC_PROBE_READ] = {"peer memory, read", "IOMMU and PCIe ACS", {3, 0, 0}},
    [DLC_PROBE_WRITE] = {"peer memory, written", "IOMMU and PCIe ACS", {3, 0, 0}},
    [DLC_PROBE_FORWARD] = {"messages", "which network adapter is used", {8, 20e-3, 8}},
    [DLC_PROBE_BACKWARD] = {"messages", "which network adapter is used", {8, 20e-3, 8}},
};

/* ---- Patterns ---------------------------------------------------------------- */

static uint64_t pattern(int32_t rank, uint64_t salt, uint64_t word) {
    uint64_t seed = ((uint64_t)rank + 1) << 32 | salt;
    return (word + seed) * UINT64_C(0x9e3779b97f4a7c15) + seed;
}

static char *probe_part(char *base, dlc_probe_part which) {
    return base + (size_t)which * DLC_PROBE_BYTES;
}

static dlc_status write_pattern(const dlc_probe_trial *trial, dlc_probe_part to,
                                uint64_t salt) {
    for (uint64_t i = 0; i < WORDS; i++)
        trial->scratch[i] = pattern(trial->rank, salt, i);
    return trial->ops->copy(trial->device, NULL, probe_part(trial->base, to),
                            trial->scratch, DLC_PROBE_BYTES);
}

dlc_status dlc_probe_prepare(const dlc_probe_trial *trial) {
    return write_pattern(trial, DLC_PROBE_OWN, 0);
}

static dlc_status compare_pattern(dlc_probe_trial *trial, dlc_probe_way way,
                                  dlc_probe_part in, int32_t rank, uint64_t salt) {
    char why[96];
    DLC_TRY(trial->ops->copy(trial->device, NULL, trial->scratch,
                             probe_part(trial->base, in), DLC_PROBE_BYTES));
    for (uint64_t i = 0; i < WORDS; i++) {
        uint64_t expected = pattern(rank, salt, i), found = trial->scratch[i];
        if (found == expected)
            continue;
        (void)snprintf(why, sizeof why,
                       "wrong bytes: %016llx instead of %016llx at byte %llu",
                       (unsigned long long)found, (unsigned long long)expected,
                       (unsigned long long)i * sizeof found);
        dlc_probe_unusable(trial, way, rank, trial->rank, why);
        return DLC_OK;
    }
    return DLC_OK;
}

dlc_status dlc_probe_check_written(dlc_probe_trial *trial) {
    return compare_pattern(trial, DLC_PROBE_WRITE, DLC_PROBE_WRITTEN, trial->previous,
                           trial->salt);
}

/* ---- Ways -------------------------------------------------------------------- */

static void keep_best_time(double *best, uint64_t since) {
    double seconds = fmax(dlc_since(since), 1e-9);
    *best = *best > 0 ? fmin(*best, seconds) : seconds;
}

/* A copy that needs no link. It also leaves in the received part what no other rank
 * sends. */
static dlc_status copy_locally(dlc_probe_trial *trial) {
    uint64_t since = dlc_now_ns();
    DLC_TRY(trial->ops->copy(trial->device, NULL,
                             probe_part(trial->base, DLC_PROBE_RECEIVED),
                             probe_part(trial->base, DLC_PROBE_OWN), DLC_PROBE_BYTES));
    keep_best_time(&trial->local, since);
    return DLC_OK;
}

static dlc_status copy_peer(dlc_probe_trial *trial, dlc_probe_way way) {
    char *mine = probe_part(trial->base, DLC_PROBE_RECEIVED);
    char *dst = mine, *src = probe_part(trial->next_base, DLC_PROBE_OWN);
    if (way == DLC_PROBE_WRITE) {
        src = mine;
        dst = probe_part(trial->next_base, DLC_PROBE_WRITTEN);
    }
    for (int i = 0; i < COPIES; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(trial->ops->copy(trial->device, NULL, dst, src, DLC_PROBE_BYTES));
        keep_best_time(&trial->best[way], since);
    }
    return DLC_OK;
}

static dlc_status wait_both(const dlc_p2p_channel *p2p, dlc_request *request[2]) {
    for (int left = 2; left > 0;) {
        int32_t which = -1;
        DLC_TRY(p2p->wait_any(p2p->context, request, 2, 1, &which));
        DLC_TRY(p2p->check(p2p->context));
        if (which < 0)
            continue;
        request[which] = NULL;
        left--;
    }
    return DLC_OK;
}

static dlc_status pass_message(const dlc_probe_trial *trial, dlc_probe_way way,
                               size_t bytes) {
    const dlc_p2p_channel *p2p = trial->p2p;
    int forward = way == DLC_PROBE_FORWARD;
    int32_t from = forward ? trial->previous_position : trial->next_position;
    int32_t to = forward ? trial->next_position : trial->previous_position;
    dlc_tag tag = dlc_tag_of(DLC_TAG_PROBE, way);
    dlc_request *request[2] = {NULL, NULL};
    DLC_TRY(p2p->recv(p2p->context, from, tag,
                      probe_part(trial->base, DLC_PROBE_RECEIVED), bytes, &request[0]));
    DLC_TRY(p2p->send(p2p->context, to, tag, probe_part(trial->base, DLC_PROBE_OWN),
                      bytes, &request[1]));
    return wait_both(p2p, request);
}

/* After the first small message, which may have to connect first, both ranks begin at
 * about the same time. Large ones are sent several times if any are timed. */
static dlc_status pass_messages(dlc_probe_trial *trial, dlc_probe_way way) {
    int count = trial->is_timed ? LARGE : 1;
    DLC_TRY(pass_message(trial, way, SMALL));
    uint64_t since = dlc_now_ns();
    DLC_TRY(pass_message(trial, way, SMALL));
    trial->small = fmax(trial->small, dlc_since(since));
    since = dlc_now_ns();
    for (int i = 0; i < count; i++)
        DLC_TRY(pass_message(trial, way, DLC_PROBE_BYTES));
    keep_best_time(&trial->best[way], since);
    return DLC_OK;
}

dlc_status dlc_probe_try(dlc_probe_trial *trial, dlc_probe_way way) {
    int32_t from = way == DLC_PROBE_FORWARD ? trial->previous : trial->next;
    if (way <= DLC_PROBE_WRITE && !trial->next_base)
        return DLC_OK;
    if (way == DLC_PROBE_BACKWARD && trial->next == trial->previous)
        return DLC_OK;
    if (way == DLC_PROBE_WRITE) {
        DLC_TRY(write_pattern(trial, DLC_PROBE_RECEIVED, trial->salt));
        return copy_peer(trial, way);
    }
    DLC_TRY(copy_locally(trial));
    DLC_TRY(way == DLC_PROBE_READ ? copy_peer(trial, way) : pass_messages(trial, way));
    return compare_pattern(trial, way, DLC_PROBE_RECEIVED, from, 0);
}

/* ---- Findings ---------------------------------------------------------------- */

/* Between which ranks bytes go that this rank times. */
static void name_pair(const dlc_probe_trial *trial, dlc_probe_way way,
                      dlc_probe_finding *f) {
    f->from = way == DLC_PROBE_FORWARD ? trial->previous : trial->next;
    f->to = trial->rank;
    if (way == DLC_PROBE_WRITE) {
        f->from = trial->rank;
        f->to = trial->next;
    }
}

static int is_unusable(const dlc_probe_finding *f) {
    return f->from >= 0 && !(f->slowdown > 0);
}

void dlc_probe_unusable(dlc_probe_trial *trial, dlc_probe_way way, int32_t from,
                        int32_t to, const char *why) {
    dlc_probe_finding *f = &trial->finding;
    if (is_unusable(f))
        return;
    *f = (dlc_probe_finding){.from = from, .to = to};
    (void)snprintf(f->text, sizeof f->text,
                   "%s, from rank %d to rank %d: %s (look at: %s)", ways[way].what,
                   f->from, f->to, why, ways[way].hint);
}

/* The bytes that a way's time is that of. */
static double way_bytes(int way) {
    return DLC_PROBE_BYTES * (way <= DLC_PROBE_WRITE ? 1.0 : LARGE);
}

static double expected_seconds(const dlc_probe_trial *trial, int way) {
    double latency = way <= DLC_PROBE_WRITE ? 0 : LARGE * trial->latency;
    return latency + trial->local + way_bytes(way) / trial->bandwidth[way];
}

void dlc_probe_judge(dlc_probe_trial *trial) {
    dlc_probe_finding *f = &trial->finding;
    if (is_unusable(f))
        return;
    *f = (dlc_probe_finding){.from = -1, .to = -1};
    for (int way = 0; way < DLC_PROBE_WAYS; way++) {
        double expected = expected_seconds(trial, way);
        double took = trial->best[way], slowdown = took / expected;
        const tolerance *most = &ways[way].tolerance;
        if (!(trial->bandwidth[way] > 0) ||
            took <=
                most->factor * expected + most->pause + most->small * trial->small ||
            slowdown <= f->slowdown)
            continue;
        name_pair(trial, (dlc_probe_way)way, f);
        f->slowdown = slowdown;
        (void)snprintf(f->text, sizeof f->text,
                       "%s, from rank %d to rank %d: %.3g GB/s, expected %.3g GB/s "
                       "(look at: %s)",
                       ways[way].what, f->from, f->to, way_bytes(way) / took * 1e-9,
                       way_bytes(way) / expected * 1e-9, ways[way].hint);
    }
}
