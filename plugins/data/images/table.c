/* Grows the table of images: a few blocks of memory, whatever the number of images. */
#include "table.h"

static dlc_status add(table *to, const char *path, size_t length, entry added) {
    added.path = to->paths.used;
    dlc_status status = growing_add(&to->paths, path, length);
    if (status == DLC_OK)
        status = growing_add(&to->paths, "", 1);
    if (status == DLC_OK)
        status = growing_add(&to->entries, &added, sizeof added);
    return status;
}

dlc_status table_add(table *to, const char *path, size_t length, int32_t label) {
    return add(to, path, length, (entry){.label = label});
}

dlc_status table_add_label(table *to, int32_t label) {
    if (to->labels.used / sizeof label == INT32_MAX)
        return host->fail(DLC_ERR_DATA, "there are too many labels");
    return growing_add(&to->labels, &label, sizeof label);
}

dlc_status table_add_several(table *to, const char *path, size_t length,
                             int32_t count) {
    int32_t all = (int32_t)(to->labels.used / sizeof(int32_t));
    return add(to, path, length, (entry){.label = all - count, .count = count});
}

void table_free(table *of) {
    growing_free(&of->paths);
    growing_free(&of->entries);
    growing_free(&of->labels);
}
