/* An index of names: finds a name among many in constant time. */
#ifndef DLC_BASE_NAMES_H
#define DLC_BASE_NAMES_H

#include <stddef.h>

#include "base/status.h"

typedef struct dlc_name_slot dlc_name_slot;

/* Start with {0}; release with dlc_names_free. The names are the caller's and must stay
 * where they are. */
typedef struct dlc_names {
    dlc_name_slot *slot; /* own; a hash table whose size is a power of two */
    size_t room, count;
} dlc_names;

/* Adds a name with its position in an array of the caller's, for instance. Of several
 * equal names the first is found. */
dlc_status dlc_names_add(dlc_names *names, const char *name, size_t at);
/* The position of a name; -1: it is not there. */
ptrdiff_t dlc_names_find(const dlc_names *names, const char *name);
/* The same for the first `length` bytes of `name`. */
ptrdiff_t dlc_names_find_part(const dlc_names *names, const char *name, size_t length);
void dlc_names_free(dlc_names *names);

#endif
