/* Grows a block of memory to twice its size and more. */
#include "growing.h"

#include <string.h>

dlc_status growing_add(growing *to, const void *bytes, size_t count) {
    enum { FIRST = 4096 };
    if (count > to->room - to->used) {
        size_t room = 2 * to->room + count + FIRST;
        char *grown = host->alloc(room);
        if (!grown)
            return DLC_ERR_NOMEM;
        if (to->used)
            memcpy(grown, to->bytes, to->used);
        host->free(to->bytes);
        to->bytes = grown;
        to->room = room;
    }
    if (bytes && count)
        memcpy(to->bytes + to->used, bytes, count);
    to->used += count;
    return DLC_OK;
}

void growing_free(growing *of) {
    host->free(of->bytes);
    *of = (growing){0};
}
