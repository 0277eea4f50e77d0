/* The secret that the processes of a job share, and proofs of knowing it. */
#ifndef DLC_JOB_SECRET_H
#define DLC_JOB_SECRET_H

#include <stddef.h>

#include "base/status.h"

#define DLC_SECRET_LEAST 16 /* shorter ones can be guessed */
#define DLC_SECRET_MOST 1024
#define DLC_PROOF_BYTES 32
#define DLC_NONCE_BYTES 32

typedef struct dlc_secret {
    size_t length; /* 0: there is none */
    unsigned char bytes[DLC_SECRET_MOST];
} dlc_secret;

/* From DLCORE_SECRET, or the file that DLCORE_SECRET_FILE names, which nobody else
 * may be able to read; its last newline doesn't count. Neither is set: length 0. */
dlc_status dlc_secret_read(dlc_secret *secret);
/* Letters and digits, 256 bits of chance. */
dlc_status dlc_secret_make(dlc_secret *secret);

dlc_status dlc_random_bytes(void *bytes, size_t length);

/* HMAC-SHA256 over the parts, each with its length before it, so that no two lists of
 * parts look alike. Without a secret, zeros. */
typedef struct dlc_part {
    const void *bytes;
    size_t length;
} dlc_part;
dlc_status dlc_secret_prove(const dlc_secret *secret, const dlc_part *parts,
                            size_t count, unsigned char proof[DLC_PROOF_BYTES]);
/* Takes the same time wherever they differ. */
int dlc_proofs_equal(const unsigned char *a, const unsigned char *b);

#endif
