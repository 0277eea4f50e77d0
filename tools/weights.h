/* The options of commands that load weights: --weights, --weights-skip, --weights-map.
 */
#ifndef DLC_TOOLS_WEIGHTS_H
#define DLC_TOOLS_WEIGHTS_H

#include <argp.h>

#include "checkpoint/weights.h"

/* Words of the command line, in their order. Initialize with {0}. */
typedef struct dlc_tool_words {
    const char **list; /* own; the words are argv's */
    size_t count;
} dlc_tool_words;

dlc_status dlc_tool_words_add(dlc_tool_words *words, const char *word);

/* Initialize with {0}; release with dlc_tool_weights_free. */
typedef struct dlc_tool_weights {
    dlc_tool_words file, skip, map;
    dlc_tool_words made; /* own words: paths of checkpoints and rules of files */
} dlc_tool_weights;

/* A parser for argp.children, whose input is a dlc_tool_weights. */
extern const struct argp dlc_tool_weights_argp;

/* Replaces a run folder by its newest checkpoint, and refuses files that are not
 * safetensors but are known. To be called once, before the weights are used. */
dlc_status dlc_tool_weights_find(dlc_tool_weights *weights);

/* What they ask for; valid as long as `weights` is. */
dlc_weights dlc_tool_weights_of(const dlc_tool_weights *weights);
void dlc_tool_weights_free(dlc_tool_weights *weights);

#endif
