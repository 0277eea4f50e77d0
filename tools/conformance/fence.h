/* Memory that ends where that of the process does, so that a plugin that goes beyond it
 * is killed. */
#ifndef DLC_TOOLS_CONFORMANCE_FENCE_H
#define DLC_TOOLS_CONFORMANCE_FENCE_H

#include "suite.h"

/* `most` bytes before `end`; it is freed when the check ends. */
typedef struct fenced {
    unsigned char *map;
    size_t bytes; /* whole pages */
    unsigned char *end;
} fenced;

/* Skips the check if memory runs out. */
fenced fence(suite_run *run, size_t most);
/* Lets nobody write to it from now on. */
void fence_lock(suite_run *run, const fenced *memory);

#endif
