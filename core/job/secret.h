/* The secret shared by the processes of a job, and proofs of knowing it (HMAC). Called
 * by handshake.c and external_run.c. */
#ifndef DLC_JOB_SECRET_H
#define DLC_JOB_SECRET_H

#include <stddef.h>

#include "base/status.h"

#define DLC_SECRET_MIN 16 /* shorter ones can be guessed */
#define DLC_SECRET_MAX 1024
#define DLC_PROOF_BYTES 32
#define DLC_NONCE_BYTES 32

typedef struct dlc_secret {
    size_t length; /* 0: there is none */
    unsigned char bytes[DLC_SECRET_MAX];
} dlc_secret;

/* Reads DLCORE_SECRET, or the file that DLCORE_SECRET_FILE names, which no other user
 * may be able to read; a newline at its end is ignored. Length 0 if neither is set. */
dlc_status dlc_secret_read(dlc_secret *secret);
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

#endif
