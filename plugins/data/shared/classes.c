/* Collects the names of classes, and makes fields of them. */
#include "classes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

dlc_status classes_add(classes *to, const char *name, size_t length) {
    char *copy = host->alloc(length + 1);
    if (!copy)
        return DLC_ERR_NOMEM;
    memcpy(copy, name, length);
    dlc_status status = growing_add(&to->list, &copy, sizeof copy);
    if (status != DLC_OK) {
        host->free(copy);
        return status;
    }
    to->name = (char **)(void *)to->list.bytes;
    to->count++;
    return DLC_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

dlc_status classes_distinct(const classes *of, dlc_status refused, const char *where) {
    char **name = host->alloc((size_t)of->count * sizeof *name + 1);
    dlc_status status = name ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; name && i < of->count; i++)
        name[i] = of->name[i];
    if (name)
        qsort(name, (size_t)of->count, sizeof *name, by_name);
    for (int32_t i = 1; status == DLC_OK && i < of->count; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            status = host->fail(refused, "%s: the class \"%.200s\" is there twice",
                                where, name[i]);
    host->free(name);
    return status;
}

/* Adds those of a setting such as "ant, bee", which stands at `where`. */
static dlc_status add_written(classes *to, const char *written, const char *where) {
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
    return status == DLC_OK ? classes_distinct(to, DLC_ERR_CONFIG, where) : status;
}

dlc_status classes_know(const dlc_data_args *args, classes *known) {
    const char *written = host->get_string(args->settings, "classes");
    dlc_status status = DLC_OK;
    if (written)
        return add_written(known, written, host->where(args->settings, "classes"));
    for (int32_t i = 0; status == DLC_OK && args->class_names && i < args->classes; i++)
        status = classes_add(known, args->class_names[i], strlen(args->class_names[i]));
    return status;
}

dlc_status classes_check(const classes *known, int32_t labels, const char *where) {
    if (known->count && labels > known->count)
        return host->fail(DLC_ERR_DATA,
                          "%s: it has a label %d, but there are %d names of classes",
                          where, (int)labels - 1, (int)known->count);
    return DLC_OK;
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
    growing_free(&of->list);
    *of = (classes){0};
}

void fields_make(int grey, const classes *known, int32_t labels, dlc_field field[2]) {
    field[0] = (dlc_field){.size = sizeof(dlc_field),
                           .role = DLC_ROLE_IMAGE,
                           .flags = DLC_FIELD_ENCODED,
                           .dtype = DLC_U8,
                           .name = "image",
                           .shape = {3, {grey ? 1 : 3, 0, 0}}};
    field[1] = (dlc_field){
        .size = sizeof(dlc_field),
        .role = DLC_ROLE_CLASS,
        .dtype = DLC_I32,
        .name = "label",
        .shape = {1, {1}},
        .classes = known->count ? known->count : labels,
        .class_names = known->count ? (const char *const *)known->name : NULL};
}

void label_give(dlc_sample *sample, int at, const int32_t *label) {
    if (sample->wanted & 1u << at) {
        sample->value[at].data = label;
        sample->value[at].bytes = sizeof *label;
    }
}

int name_ends_as(const char *name, const char *endings) {
    const char *ending = strrchr(name, '.');
    size_t length = ending ? strlen(++ending) : 0;
    for (const char *at = endings; length && *at;) {
        at += strspn(at, ", ");
        size_t own = strcspn(at, ", ");
        if (own == length && strncasecmp(at, ending, length) == 0)
            return 1;
        at += own;
    }
    return 0;
}
