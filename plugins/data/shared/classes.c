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
    host->free(to->sorted);
    to->sorted = NULL;
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
        status = add_written(known, written, host->where(args->settings, "classes"));
    for (int32_t i = 0;
         status == DLC_OK && !written && args->class_names && i < args->classes; i++)
        status = classes_add(known, args->class_names[i], strlen(args->class_names[i]));
    return status == DLC_OK ? classes_sort(known) : status;
}

dlc_status classes_check(const classes *known, int32_t labels, int64_t samples,
                         const char *where) {
    const int32_t plausible = 1 << 20; /* of any number of samples */
    if (known->count && labels > known->count)
        return host->fail(DLC_ERR_DATA,
                          "%s: it has a label %d, but there are %d names of classes",
                          where, (int)labels - 1, (int)known->count);
    if (!known->count && labels > plausible && labels > samples)
        return host->fail(DLC_ERR_DATA,
                          "%s: it has a label %d, but only %lld samples; labels are "
                          "numbers from 0 to the number of classes - 1",
                          where, (int)labels - 1, (long long)samples);
    return DLC_OK;
}

int label_parse(const char *text, size_t length, int32_t *label) {
    while (length && strchr(" \t\r\n", text[length - 1]) && text[length - 1])
        length--;
    while (length && strchr(" \t\r\n", *text) && *text)
        text++, length--;
    int is_nan = length == 3 && strncasecmp(text, "nan", 3) == 0;
    size_t begin = length && *text == '-', at = begin;
    int64_t number = 0;
    for (; at < length && text[at] >= '0' && text[at] <= '9' && number <= LABEL_MOST;
         at++)
        number = 10 * number + (text[at] - '0');
    int has_digits = at > begin;
    if (has_digits && at < length && text[at] == '.')
        for (at++; at < length && text[at] == '0';)
            at++;
    if (!is_nan && (!has_digits || at < length || number > LABEL_MOST ||
                    (begin && number != -DLC_LABEL_NONE)))
        return 0;
    *label = is_nan || begin ? DLC_LABEL_NONE : (int32_t)number;
    return 1;
}

struct class_place {
    const char *name;
    int32_t label;
};

static int by_place(const void *a, const void *b) {
    const class_place *one = a, *other = b;
    int order = strcmp(one->name, other->name);
    return order ? order : one->label < other->label ? -1 : 1;
}

dlc_status classes_sort(classes *of) {
    host->free(of->sorted);
    of->sorted = host->alloc((size_t)of->count * sizeof *of->sorted + 1);
    if (!of->sorted)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < of->count; i++)
        of->sorted[i] = (class_place){of->name[i], i};
    qsort(of->sorted, (size_t)of->count, sizeof *of->sorted, by_place);
    return DLC_OK;
}

static int32_t find_unsorted(const classes *in, const char *name) {
    for (int32_t i = 0; i < in->count; i++)
        if (strcmp(in->name[i], name) == 0)
            return i;
    return -1;
}

/* The first one of the name. */
int32_t classes_find(const classes *in, const char *name) {
    int32_t begin = 0, end = in->count;
    if (!in->sorted)
        return find_unsorted(in, name);
    while (begin < end) {
        int32_t middle = begin + (end - begin) / 2;
        if (strcmp(in->sorted[middle].name, name) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    int is_there = begin < in->count && strcmp(in->sorted[begin].name, name) == 0;
    return is_there ? in->sorted[begin].label : -1;
}

void classes_free(classes *of) {
    for (int32_t i = 0; i < of->count; i++)
        host->free(of->name[i]);
    growing_free(&of->list);
    host->free(of->sorted);
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

const char *endings_of(const dlc_data_args *args) {
    const char *written = host->get_string(args->settings, "endings");
    return written ? written : args->image_endings;
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
