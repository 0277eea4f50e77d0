/* The handshake by which the agent of an external rank joins a job, and the secret that
 * both sides prove to know: three messages of fixed size. The hub's side is called by
 * acceptor.c, the agent's by connect.c.
 *
 *     hub -> agent    challenge: a fresh nonce
 *     agent -> hub    hello: who it is, its own nonce, proof of the secret over both
 *     hub -> agent    welcome: the verdict, proof of the secret over everything
 *
 * Each proof names the side that made it and covers both nonces, the rank and the
 * number of ranks, so it can be neither replayed nor reflected. Without a secret (on
 * loopback only) the proofs are zeros, and both sides check the user of the other end.
 * What follows is not encrypted. */
#ifndef DLC_JOB_HANDSHAKE_H
#define DLC_JOB_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DLC_SECRET_MIN 16 /* shorter ones can be guessed */
#define DLC_SECRET_MAX 1024
#define DLC_PROOF_BYTES 32
#define DLC_NONCE_BYTES 32

typedef struct dlc_secret {
    size_t length; /* 0: there is none */
    unsigned char bytes[DLC_SECRET_MAX];
} dlc_secret;

/* The end of messages about a secret that is missing or wrong. */
#define DLC_SET_SECRET \
    "set DLCORE_SECRET or DLCORE_SECRET_FILE to the same secret for all ranks"

/* Makes a random secret of 256 bits, in hexadecimal. */
dlc_status dlc_secret_make(dlc_secret *secret);

/* Random bytes from the kernel, fit for cryptography. */
dlc_status dlc_random_bytes(void *bytes, size_t length);

/* HMAC-SHA256 over the parts, each preceded by its length, so that no two different
 * lists of parts give the same message. Without a secret, zeros. */
typedef struct dlc_part {
    const void *bytes;
    size_t length;
} dlc_part;
dlc_status dlc_secret_prove(const dlc_secret *secret, const dlc_part *parts,
                            size_t count, unsigned char proof[DLC_PROOF_BYTES]);
/* Compares two proofs in constant time. */
int dlc_proofs_equal(const unsigned char *a, const unsigned char *b);

/* ---- The messages */

#define DLC_PROTOCOL 2

typedef struct dlc_challenge {
    char magic[8];
    uint32_t protocol;
    uint32_t secured; /* the hub has a secret */
    unsigned char nonce[DLC_NONCE_BYTES];
} dlc_challenge;

typedef struct dlc_hello {
    char magic[8];
    uint32_t protocol;
    uint32_t rank, ranks;
    uint32_t pid; /* of the agent */
    char version[32];
    char host[64];
    unsigned char nonce[DLC_NONCE_BYTES];
    unsigned char proof[DLC_PROOF_BYTES]; /* last: it covers what is before it */
} dlc_hello;

typedef enum dlc_join_verdict {
    DLC_JOIN_WELCOME = 0,
    DLC_JOIN_SECRET = 1,  /* the secrets differ */
    DLC_JOIN_VERSION = 2, /* another version of dlcore */
    DLC_JOIN_RANKS = 3,   /* another number of ranks; `number`: the hub's */
    DLC_JOIN_TAKEN = 4,   /* the rank has joined already; `number`: its pid */
    DLC_JOIN_OVER = 5,    /* the job has ended; `number`: its exit code */
} dlc_join_verdict;

typedef struct dlc_welcome {
    char magic[8];
    uint32_t verdict;
    uint32_t number;
    char text[64]; /* the hub's version, or the host of the rank that came first */
    unsigned char proof[DLC_PROOF_BYTES]; /* last */
} dlc_welcome;

/* ---- The hub's side */

/* Fills in the whole challenge, with a fresh nonce. */
dlc_status dlc_challenge_make(const dlc_secret *secret, dlc_challenge *challenge);
/* Whether the sender knew the secret. */
int dlc_hello_is_valid(const dlc_secret *secret, const dlc_challenge *challenge,
                       const dlc_hello *hello);
/* Fills in magic and proof; verdict, number and text are the caller's. */
dlc_status dlc_welcome_make(const dlc_secret *secret, const dlc_challenge *challenge,
                            const dlc_hello *hello, dlc_welcome *welcome);

/* ---- The agent's side */

/* Fills in magic, protocol, nonce and proof; everything else is the caller's. */
dlc_status dlc_hello_make(const dlc_secret *secret, const dlc_challenge *challenge,
                          dlc_hello *hello);
/* Whether the sender knew the secret. */
int dlc_welcome_is_valid(const dlc_secret *secret, const dlc_challenge *challenge,
                         const dlc_hello *hello, const dlc_welcome *welcome);

/* Whether this is the beginning of a dlcore message. */
int dlc_magic_is_valid(const char magic[8]);

#endif
