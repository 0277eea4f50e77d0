/* The hub's door: who connects is let in only with a right hello (and, where there is
 * no secret, as a process of the same user), and nobody at the
 * door, whatever he sends or doesn't, holds up the job inside.
 *
 * Nothing here blocks. At most DLC_GATE_PENDING connections wait at once, for 5 s at
 * most, and from each only as many bytes are read as a hello has. When there are more,
 * the oldest goes.
 */
#ifndef DLC_JOB_GATE_H
#define DLC_JOB_GATE_H

#include <poll.h>

#include "job/handshake.h"

#define DLC_GATE_PENDING 64
#define DLC_GATE_PATIENCE_NS 5000000000u

typedef struct dlc_pending {
    int fd; /* -1: free */
    uint64_t since;
    dlc_challenge challenge;
    dlc_hello hello;
    size_t got;
} dlc_pending;

/* Asked once a hello is known to be right: the verdict, and what goes with it. */
typedef dlc_join_verdict (*dlc_gate_judge)(void *context, const dlc_hello *hello,
                                           dlc_welcome *welcome);
/* Who was let in; `fd` is the callee's. */
typedef void (*dlc_gate_enter)(void *context, const dlc_hello *hello, int fd);

typedef struct dlc_gate {
    int listener; /* -1: closed */
    const dlc_secret *secret;
    dlc_gate_judge judge;
    dlc_gate_enter enter;
    void *context;
    int warned; /* of a wrong secret; once is enough */
    dlc_pending pending[DLC_GATE_PENDING];
} dlc_gate;

#define DLC_GATE_POLLED (1 + DLC_GATE_PENDING)

/* Takes the listener over. `secret` must live as long as the gate. */
void dlc_gate_open(dlc_gate *gate, int listener, const dlc_secret *secret);
void dlc_gate_close(dlc_gate *gate);

/* What to wait for, DLC_GATE_POLLED entries. */
void dlc_gate_poll_set(const dlc_gate *gate, struct pollfd *polled);
/* What came. Call it at least every second while the gate is open. */
void dlc_gate_turn(dlc_gate *gate, const struct pollfd *polled);

#endif
