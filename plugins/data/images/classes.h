/* The names of classes, in the order of their labels. */
#ifndef IMAGES_CLASSES_H
#define IMAGES_CLASSES_H

#include <dlcore/data.h>

typedef struct classes {
    char **name; /* owned, as are the names */
    int32_t count, room;
} classes;

dlc_status classes_add(classes *to, const char *name, size_t length);
/* Adds those of a setting such as "ant, bee", which stands at `where`. */
dlc_status classes_add_written(classes *to, const char *written, const char *where);
/* The label of a class; -1: it is none of them. */
int32_t classes_find(const classes *in, const char *name);
void classes_free(classes *of);

#endif
