/* The engines that were chosen before, on disk: a file for each plan, named by what it
 * depends on, in ~/.cache/dlcore/cudnn (or under XDG_CACHE_HOME). It holds cuDNN's own
 * text of the plan, with the code that was compiled for it. Whatever is not whole, not
 * ours or not for this GPU, cuDNN and graph is as if it weren't there;
 * DLCORE_CUDNN_CACHE = no leaves the folder alone. */
#ifndef DLCORE_CUDNN_ENGINES_H
#define DLCORE_CUDNN_ENGINES_H

#include "cudnn.h"

/* The text kept under `key`, to be freed by host->free; NULL: there is none. */
char *engines_load(const char *key, size_t *bytes);
/* Keeps it, if it can; a reader sees all of it or nothing. */
void engines_store(const char *key, const char *text, size_t bytes);

#endif
