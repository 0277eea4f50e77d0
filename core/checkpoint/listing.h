/* Lists the checkpoints in a folder, recognized by their names:
 * NET-ITERATION.safetensors, with at least eight digits. Used to choose a run's folder,
 * to resume, and for retention.
 */
#ifndef DLC_CHECKPOINT_LISTING_H
#define DLC_CHECKPOINT_LISTING_H

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

/* The path of a checkpoint; release it with dlc_free. NULL if memory runs out. */
char *dlc_checkpoint_path(const char *folder, const char *net, int64_t iteration);

/* Is it the file name (without folder) of a checkpoint? Then sets the length of the
 * net's name, and the iteration. */
int dlc_checkpoint_name(const char *name, size_t *net_length, int64_t *iteration);

/* Lists the checkpoints of `net`, or of any net if that is NULL. A folder that does not
 * exist has none; one that cannot be read is DLC_ERR_IO. Release the listing with
 * dlc_checkpoints_free, which also accepts a zeroed one. */
dlc_status dlc_checkpoints_read(const char *folder, const char *net,
                                dlc_checkpoints *listing);
void dlc_checkpoints_free(dlc_checkpoints *listing);

#endif
