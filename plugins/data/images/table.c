/* Grows the table of images: two blocks of memory, whatever the number of images. */
#include "table.h"

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
