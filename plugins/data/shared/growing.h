/* Memory that grows, for lists of things of which there may be millions. */
#ifndef DATA_GROWING_H
#define DATA_GROWING_H

#include <dlcore/plugin.h>

extern const dlc_host *host; /* set by the plugin's load */

/* Start with {0}. */
typedef struct growing {
    char *bytes; /* owned */
    size_t used, room;
} growing;

/* Appends bytes; NULL: none, only room for them. */
dlc_status growing_add(growing *to, const void *bytes, size_t count);
void growing_free(growing *of);

#endif
