/* The metadata of a checkpoint: what is needed to resume from it, and to understand it
 * years later. docs/checkpoints.md lists the keys. Used by save.c and resume.c. */
#ifndef DLC_CHECKPOINT_METADATA_H
#define DLC_CHECKPOINT_METADATA_H

#include "checkpoint/safetensors.h"
#include "session/session.h"

typedef struct dlc_metadata {
    dlc_safetensors_pair *pair; /* own, with the texts in it */
    size_t count;
    int failed;
} dlc_metadata;

/* Gathers the metadata, on rank 0 of a session with a run folder. The caller frees it,
 * also on failure. */
dlc_status dlc_metadata_make(dlc_session *session, dlc_metadata *metadata);
void dlc_metadata_free(dlc_metadata *metadata);

/* Read a number from a file's metadata. If it is missing or malformed the first fails
 * with DLC_ERR_DATA, and the others return `otherwise`. */
dlc_status dlc_metadata_number(const dlc_safetensors *file, const char *key,
                               int64_t *number);
int64_t dlc_metadata_int(const dlc_safetensors *file, const char *key,
                         int64_t otherwise);
double dlc_metadata_float(const dlc_safetensors *file, const char *key,
                          double otherwise);

#endif
