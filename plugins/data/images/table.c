/* Grows the table of images: two blocks of memory, whatever the number of images. */
#include "table.h"

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

dlc_status table_add(table *to, const char *path, size_t length, int32_t label) {
    entry added = {.path = to->paths.used, .label = label};
    dlc_status status = growing_add(&to->paths, path, length);
    if (status == DLC_OK)
        status = growing_add(&to->paths, "", 1);
    if (status == DLC_OK)
        status = growing_add(&to->entries, &added, sizeof added);
    return status;
}

void table_free(table *of) {
    growing_free(&of->paths);
    growing_free(&of->entries);
}
