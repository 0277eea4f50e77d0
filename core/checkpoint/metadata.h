/* What a checkpoint says about its run, besides tensors: what is needed to resume from
 * it, and to understand it years later. docs/checkpoints.md lists the keys. Used by
 * save.c and resume.c. */
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

/* Appends the settings of a run as one net.ini without blocks and without --set:
 * settings that were given as `key = value`, defaults as `; key = value`.
 * dlc_text_status reports a failed allocation. */
void dlc_metadata_settings(const dlc_setup *setup, dlc_text *text);

/* Read a number from a file's metadata. If it is missing or malformed the first fails
 * with DLC_ERR_DATA, and the others return `otherwise`. */
dlc_status dlc_metadata_number(const dlc_safetensors *file, const char *key,
                               int64_t *number);
int64_t dlc_metadata_int(const dlc_safetensors *file, const char *key,
                         int64_t otherwise);
double dlc_metadata_float(const dlc_safetensors *file, const char *key,
                          double otherwise);

/* Rank 0: checks that the run can resume from the checkpoint, before any of it is
 * loaded: the same net, data and seed, and a solver that can continue from the saved
 * state. DLC_ERR_DATA if it cannot; every difference is logged as "before -> now".
 * Settings that may change, and have, are logged too. */
dlc_status dlc_compatibility_check(const dlc_session *session,
                                   const dlc_safetensors *file);

/* Has the file an average of the weights? A run with an average may resume without one:
 * it begins with the weights of the checkpoint. */
int dlc_compatibility_has_average(const dlc_safetensors *file);

#endif
