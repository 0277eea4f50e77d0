/* What a rank does now, and whether it gets on with it: in memory that the rank
 * writes and the process that forked it reads, also when the rank is dead. The other
 * way round, the rank sees there that it is still looked after. */
#ifndef DLC_JOB_DOING_H
#define DLC_JOB_DOING_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct dlc_words {
    char phase[24];
    char name[64];
    uint64_t bytes;
    char exchanged[24]; /* the bucket in flight, beside what the phase says */
    uint64_t exchanged_bytes;
} dlc_words;

/* Ranks don't share cache lines: each writes its own all the time. */
typedef struct dlc_doing {
    _Alignas(64) dlc_words words;
    _Atomic uint64_t steps;  /* bumped when the words change */
    _Atomic uint64_t checks; /* bumped by dlc_job_check: who waits calls it often */
    _Atomic uint64_t looks;  /* bumped by the reader, who takes the pulse */
} dlc_doing;

/* " during forward conv1", " during exchange of bucket 3 (4096 bytes)", "" for
 * nothing. The rank may have died while it wrote: any bytes will do. */
#define DLC_DOING_TEXT 240
void dlc_words_text(const dlc_words *words, char text[DLC_DOING_TEXT]);

/* How a rank was at one moment; what its agent tells the hub twice a second. */
typedef struct dlc_pulse {
    int32_t pid;
    char state;  /* of its process, as /proc shows it: 'R', 'S', 'D', 'T' ...; '?' */
    char worked; /* it computed, or waited for a core or a disk, since the last one */
    char disk;   /* it waits for a disk now */
    char unused;
    uint64_t steps, checks;
    dlc_words words;
} dlc_pulse;

/* What must be known of the last pulse to take the next. Start with {0}. */
typedef struct dlc_pulse_last {
    uint64_t time;
    unsigned long long busy; /* of all threads, ns */
} dlc_pulse_last;

/* How often a parent looks at its rank, and agents and hub let each other hear. */
#define DLC_BEAT_NS 500000000u

/* Who computes without getting on (a huge layer) is warned about after the hang
 * timeout, and has so many of them before it counts as hung. */
#define DLC_PATIENCE_WITH_WORK 10

/* Takes the pulse of a process that shares `doing` with this one, or of this one. */
dlc_pulse dlc_pulse_take(pid_t pid, dlc_doing *doing, dlc_pulse_last *last);

#endif
