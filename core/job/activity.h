/* What a rank is doing, in memory shared with the process that forked it, and the
 * heartbeats that the parent derives from it. The parent can read the activity even of
 * a dead rank; the rank, in turn, sees there that its parent is still alive. Written by
 * rank/rank.c; read by hub, agent and rank/self_watchdog.c. */
#ifndef DLC_JOB_ACTIVITY_H
#define DLC_JOB_ACTIVITY_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct dlc_activity {
    char phase[24];
    char name[64];
    uint64_t bytes;
    char exchanged[24]; /* the bucket in flight, beside what the phase says */
    uint64_t exchanged_bytes;
    char transport[24]; /* by which a message is awaited; "": none is */
    int32_t awaited;    /* the rank at its other end; -1: not known */
} dlc_activity;

/* One per rank. Aligned, because each rank writes its own all the time. */
typedef struct dlc_shared_activity {
    _Alignas(64) dlc_activity current;
    _Atomic uint64_t steps;  /* incremented whenever `current` changes */
    _Atomic uint64_t checks; /* incremented by dlc_job_check: a waiting rank calls it */
    _Atomic uint64_t waits;  /* likewise, in the rank's main thread */
    _Atomic uint64_t parent_ticks; /* incremented by the parent with each heartbeat */
} dlc_shared_activity;

/* " during forward conv1", " during update and exchange of bucket 3 (4096 bytes) over
 * A with rank 1", "" for no activity. The rank may have died while writing it, so any
 * bytes are accepted. */
#define DLC_ACTIVITY_TEXT 320
void dlc_activity_text(const dlc_activity *activity, char text[DLC_ACTIVITY_TEXT]);

/* Increments one of these counters. Lost increments do not matter: readers only look
 * whether the value changes. */
static inline void dlc_activity_count(_Atomic uint64_t *counter) {
    uint64_t count = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, count + 1, memory_order_relaxed);
}

/* The state of a rank at one moment; agents send it to the hub twice a second. */
typedef struct dlc_heartbeat {
    int32_t pid;
    char state; /* of its process, as /proc shows it: 'R', 'S', 'D', 'T' ...; '?' */
    char busy;  /* has computed, or waited for a CPU or a disk, since the last one */
    char disk_wait; /* is waiting for a disk now */
    char unused;
    uint64_t steps, checks, waits;
    dlc_activity activity;
} dlc_heartbeat;

/* What has to be kept from one heartbeat to take the next. Start with {0}. */
typedef struct dlc_heartbeat_last {
    uint64_t time;
    unsigned long long busy; /* of all threads, ns */
} dlc_heartbeat_last;

/* The interval at which a parent looks at its rank, and agents and hub send heartbeats.
 */
#define DLC_HEARTBEAT_NS 500000000u

/* A rank that computes without progress (a huge layer) is warned about after the hang
 * timeout, and counts as hung after this many of them. */
#define DLC_COMPUTING_TIMEOUTS 10

/* Takes the heartbeat of process `pid`, which shares `activity` with this one or is
 * this one. Reads /proc; never fails. */
dlc_heartbeat dlc_heartbeat_take(pid_t pid, dlc_shared_activity *activity,
                                 dlc_heartbeat_last *last);

#endif
