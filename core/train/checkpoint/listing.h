/* The checkpoints that lie in a folder, by their names: NET-ITERATION.safetensors, with
 * at least eight digits. Who asks: the choice of a run's folder, resuming, retention.
 */
#ifndef DLC_TRAIN_LISTING_H
#define DLC_TRAIN_LISTING_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_checkpoint_file {
    char *path; /* own; the folder's path and the file's name */
    char *net;  /* own */
    int64_t iteration;
} dlc_checkpoint_file;

typedef struct dlc_checkpoints {
    dlc_checkpoint_file *file; /* own; by iteration, the newest last */
    size_t count;
} dlc_checkpoints;

/* The file name of a checkpoint in memory of its own; NULL where that ran out. */
char *dlc_checkpoint_path(const char *folder, const char *net, int64_t iteration);

/* Takes the name apart, without its folder: the length of the net's name, and the
 * iteration. Is it a checkpoint's? */
int dlc_checkpoint_name(const char *name, size_t *net_length, int64_t *iteration);

/* Those of `net`, or with NULL of any net. A folder that does not exist has none; one
 * that cannot be read is DLC_ERR_IO with the reason. Free with dlc_checkpoints_free,
 * which takes a zeroed one, too. */
dlc_status dlc_checkpoints_read(const char *folder, const char *net,
                                dlc_checkpoints *listing);
void dlc_checkpoints_free(dlc_checkpoints *listing);

#endif
