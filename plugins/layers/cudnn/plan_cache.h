/* The disk cache of cuDNN plans: one file per plan in ~/.cache/dlcore/cudnn (or under
 * XDG_CACHE_HOME), named by a hash of everything that the plan depends on. A file holds
 * cuDNN's own serialized plan, compiled code included. A file that is incomplete, has
 * another owner or is for another GPU, cuDNN or graph is ignored. DLCORE_CUDNN_CACHE=no
 * turns the cache off. Called by plan.c. */
#ifndef DLCORE_CUDNN_PLAN_CACHE_H
#define DLCORE_CUDNN_PLAN_CACHE_H

#include "cudnn.h"

/* The text that is stored under `key`, which the caller frees with host->free; NULL:
 * there is none. */
char *plan_cache_load(const char *key, size_t *bytes);
/* Stores a text, if possible. Readers see either all of it or nothing. */
void plan_cache_store(const char *key, const char *text, size_t bytes);

#endif
