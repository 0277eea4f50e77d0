/* A hash table of names, with open addressing. */
#include "base/names.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"

struct dlc_name_slot {
    const char *name; /* NULL: free */
    size_t length;
    size_t at;
    uint64_t hash;
};

/* FNV-1a. Somebody who chooses names so that they collide slows down his own run. */
static uint64_t hash_of(const char *name, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* The slot of a name, or the free one where it belongs. */
static dlc_name_slot *hash_slot(const dlc_names *names, const char *name, size_t length,
                                uint64_t hash) {
    for (size_t i = hash & (names->room - 1);; i = (i + 1) & (names->room - 1)) {
        dlc_name_slot *slot = &names->slot[i];
        if (!slot->name || (slot->hash == hash && slot->length == length &&
                            memcmp(slot->name, name, length) == 0))
            return slot;
    }
}

/* At most half of the slots are taken, so that searches are short. */
static dlc_status grow(dlc_names *names) {
    enum { FIRST = 16 };
    dlc_names larger = {.room = names->room ? 2 * names->room : FIRST,
                        .count = names->count};
    larger.slot = dlc_alloc(larger.room, sizeof *larger.slot);
    if (!larger.slot)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < names->room; i++) {
        const dlc_name_slot *old = &names->slot[i];
        if (old->name)
            *hash_slot(&larger, old->name, old->length, old->hash) = *old;
    }
    dlc_free(names->slot);
    *names = larger;
    return DLC_OK;
}

dlc_status dlc_names_add(dlc_names *names, const char *name, size_t at) {
    size_t length = strlen(name);
    uint64_t hash = hash_of(name, length);
    if (2 * names->count >= names->room)
        DLC_TRY(grow(names));
    dlc_name_slot *slot = hash_slot(names, name, length, hash);
    if (slot->name)
        return DLC_OK;
    *slot = (dlc_name_slot){.name = name, .length = length, .at = at, .hash = hash};
    names->count++;
    return DLC_OK;
}

ptrdiff_t dlc_names_find_part(const dlc_names *names, const char *name, size_t length) {
    if (!names->count)
        return -1;
    const dlc_name_slot *slot = hash_slot(names, name, length, hash_of(name, length));
    return slot->name ? (ptrdiff_t)slot->at : -1;
}

ptrdiff_t dlc_names_find(const dlc_names *names, const char *name) {
    return dlc_names_find_part(names, name, strlen(name));
}

void dlc_names_free(dlc_names *names) {
    dlc_free(names->slot);
    *names = (dlc_names){0};
}
