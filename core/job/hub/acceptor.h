/* Accepts the agents of external ranks at the hub's listening socket, and protects the
 * job from everybody else who connects. A connection is admitted only with a valid
 * hello (without a secret, only from a process of the same user); nothing that a client
 * sends or fails to send can hold up the job. Owned by external_run.c, driven by the
 * hub.
 *
 * Nothing here blocks. At most DLC_ACCEPTOR_PENDING connections wait at once, each for
 * at most 5 s, and no more bytes are read from one than a hello has. When there are
 * more, the oldest is dropped.
 */
#ifndef DLC_JOB_ACCEPTOR_H
#define DLC_JOB_ACCEPTOR_H

#include <poll.h>

#include "job/hub/handshake.h"

#define DLC_ACCEPTOR_PENDING 64
#define DLC_ACCEPTOR_TIMEOUT_NS 5000000000u

/* A connection that has not finished its handshake. */
typedef struct dlc_pending {
    int fd; /* -1: free */
    uint64_t since;
    dlc_challenge challenge;
    dlc_hello hello;
    size_t got; /* bytes of the hello */
} dlc_pending;

/* Decides about a client whose hello is valid: returns the verdict and may fill in
 * `number` and `text` of the reply. */
typedef dlc_join_verdict (*dlc_acceptor_verify)(void *context, const dlc_hello *hello,
                                                dlc_welcome *welcome);
/* Takes over an admitted connection; `fd` is the callee's. */
typedef void (*dlc_acceptor_admit)(void *context, const dlc_hello *hello, int fd);

typedef struct dlc_acceptor {
    int listener; /* -1: closed */
    const dlc_secret *secret;
    dlc_acceptor_verify verify; /* this and the next two: set by the hub */
    dlc_acceptor_admit admit;
    void *context;
    int warned;       /* a wrong secret is warned about once */
    int out_of_files; /* a connection could not be accepted, or cost another one */
    dlc_pending pending[DLC_ACCEPTOR_PENDING];
} dlc_acceptor;

#define DLC_ACCEPTOR_POLLED (1 + DLC_ACCEPTOR_PENDING)

/* Takes ownership of `listener` (-1: none). `secret` must outlive the acceptor. */
void dlc_acceptor_open(dlc_acceptor *acceptor, int listener, const dlc_secret *secret);
/* Drops all pending connections, too. May be called again. */
void dlc_acceptor_close(dlc_acceptor *acceptor);

/* Fills in what to poll for, DLC_ACCEPTOR_POLLED entries. */
void dlc_acceptor_poll_set(const dlc_acceptor *acceptor, struct pollfd *polled);
/* Handles what poll() reported, and timeouts: call it at least once a second while the
 * acceptor is open. */
void dlc_acceptor_handle_events(dlc_acceptor *acceptor, const struct pollfd *polled);

#endif
