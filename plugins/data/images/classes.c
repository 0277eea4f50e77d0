/* Collects the names of classes. */
#include "classes.h"

#include <string.h>

#include "table.h"

static dlc_status grow(classes *list) {
    int32_t room = list->room ? 2 * list->room : 64;
    char **grown = host->alloc((size_t)room * sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    if (list->count)
        memcpy(grown, list->name, (size_t)list->count * sizeof *grown);
    host->free(list->name);
    list->name = grown;
    list->room = room;
    return DLC_OK;
}

dlc_status classes_add(classes *to, const char *name, size_t length) {
    if (to->count == to->room) {
        dlc_status status = grow(to);
        if (status != DLC_OK)
            return status;
    }
    char *copy = host->alloc(length + 1);
    if (!copy)
        return DLC_ERR_NOMEM;
    memcpy(copy, name, length);
    to->name[to->count++] = copy;
    return DLC_OK;
}

dlc_status classes_add_written(classes *to, const char *written, const char *where) {
    dlc_status status = DLC_OK;
    for (const char *at = written; status == DLC_OK && at;) {
        const char *end = strchrnul(at, ','), *next = *end ? end + 1 : NULL;
        while (*at == ' ')
            at++;
        while (end > at && end[-1] == ' ')
            end--;
        if (end <= at)
            return host->fail(DLC_ERR_CONFIG,
                              "%s: classes = %.200s: a class has no name", where,
                              written);
        status = classes_add(to, at, (size_t)(end - at));
        at = next;
    }
    return status;
}

int32_t classes_find(const classes *in, const char *name) {
    for (int32_t i = 0; i < in->count; i++)
        if (strcmp(in->name[i], name) == 0)
            return i;
    return -1;
}

void classes_free(classes *of) {
    for (int32_t i = 0; i < of->count; i++)
        host->free(of->name[i]);
    host->free(of->name);
    *of = (classes){0};
}
