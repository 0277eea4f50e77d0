/* The files that `dlcore predict` is given: named, listed in a file or on stdin, or all
 * of a folder. */
#ifndef DLC_TOOLS_PREDICT_INPUTS_H
#define DLC_TOOLS_PREDICT_INPUTS_H

#include <stddef.h>

#include "base/status.h"

/* Initialize with {0}. */
typedef struct dlc_inputs {
    char **path; /* own, with the texts */
    size_t count, room;
} dlc_inputs;

/* Adds what a word of the command line names: a file; all files of a folder and of
 * those in it, in the order of their names, that are image files or end in .npy; the
 * files listed in a file that ends in .txt, one per line; and for "-" those listed on
 * stdin. Empty lines are left out. `endings`: of image files, as in "jpg,png". */
dlc_status dlc_inputs_add(dlc_inputs *inputs, const char *endings, const char *word);

/* How many of them end in .npy. */
size_t dlc_inputs_arrays(const dlc_inputs *inputs);
void dlc_inputs_free(dlc_inputs *inputs);

#endif
