/* The names of tensors in files of weights: renaming, and PyTorch's. Used by weights.c.
 */
#ifndef DLC_CHECKPOINT_WEIGHTS_NAME_H
#define DLC_CHECKPOINT_WEIGHTS_NAME_H

#include "base/status.h"

/* Checks a rule "FROM=TO" (dlc_weights.map). DLC_ERR_CONFIG with what is wrong. */
dlc_status dlc_weights_check_map(const char *map);

/* Renames *name, which is the caller's to dlc_free, if it matches FROM. Returns whether
 * it does; *name is NULL if memory ran out. */
int dlc_weights_rename(const char *map, char **name);

/* Is it PyTorch's count of the batches that a batch norm has seen? No net needs it. */
int dlc_weights_is_counter(const char *name);

/* What `batch_norm` calls the parameter that PyTorch gives this name; a copy of other
 * names. Release it with dlc_free; NULL if memory runs out. */
char *dlc_weights_batch_norm_name(const char *name);

#endif
