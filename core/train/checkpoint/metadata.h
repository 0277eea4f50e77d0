/* The metadata of a checkpoint: what is needed to resume, and to understand it years
 * later. docs/checkpoints.md lists the keys. */
#ifndef DLC_TRAIN_METADATA_H
#define DLC_TRAIN_METADATA_H

#include "train/checkpoint/safetensors.h"
#include "train/session.h"

typedef struct dlc_metadata {
    dlc_safetensors_pair *pair; /* own, with the texts in it */
    size_t count;
    int failed;
} dlc_metadata;

/* Rank 0, of a session with a run folder. Free it also where this fails. */
dlc_status dlc_metadata_make(dlc_session *session, dlc_metadata *metadata);
void dlc_metadata_free(dlc_metadata *metadata);

/* A number of a file's metadata. The first fails (DLC_ERR_DATA) where there is none;
 * the others then give `otherwise`. */
dlc_status dlc_metadata_number(const dlc_safetensors *file, const char *key,
                               int64_t *number);
int64_t dlc_metadata_int(const dlc_safetensors *file, const char *key,
                         int64_t otherwise);
double dlc_metadata_float(const dlc_safetensors *file, const char *key,
                          double otherwise);

#endif
