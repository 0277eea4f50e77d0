/* The names of classes, in the order of their labels, and the fields that sources of
 * image files have. */
#ifndef DATA_CLASSES_H
#define DATA_CLASSES_H

#include <dlcore/data.h>

#include "growing.h"

typedef struct class_place class_place;

typedef struct classes {
    char **name; /* in `list`; owned, as are the names */
    int32_t count;
    growing list;
    class_place *sorted; /* own; by name; NULL: not sorted yet */
} classes;

dlc_status classes_add(classes *to, const char *name, size_t length);
/* Fails with `refused` if two have the same name. `where` says where the names are. */
dlc_status classes_distinct(const classes *of, dlc_status refused, const char *where);
/* Adds the classes as far as they are known before the samples are: those of the
 * setting `classes`, such as "ant, bee", or of the training data. */
dlc_status classes_know(const dlc_data_args *args, classes *known);
/* Fails if there are names, but fewer than labels; or, without names, far more labels
 * than samples, for which much memory would be needed: one of them must be a mistake.
 * `where` says which file has them. */
dlc_status classes_check(const classes *known, int32_t labels, int64_t samples,
                         const char *where);
enum { LABEL_MOST = 100000000 };
/* Reads the number of a class, which is a whole one from 0, written as "3" or, as
 * pandas writes numbers beside missing ones, "3.0"; "-1" and "nan" are DLC_LABEL_NONE.
 * Blanks around it are left out. 0: it is none, or too large. */
int label_parse(const char *text, size_t length, int32_t *label);

/* Sorts the names for classes_find, once all are there: there may be many. classes_know
 * has done so. */
dlc_status classes_sort(classes *of);
/* The label of a class; -1: it is none of them. */
int32_t classes_find(const classes *in, const char *name);
void classes_free(classes *of);

/* The fields of a source of image files: the image, grey or not, and its class. */
void fields_make(int grey, const classes *known, int32_t labels, dlc_field field[2]);
/* Gives the class of a sample, its field `at`, if it is wanted. *label outlives the
 * read. */
void label_give(dlc_sample *sample, int at, const int32_t *label);

/* Options that these sources have alike. */
#define OPTION_ENDINGS(where) \
    DLC_STRING("endings", NULL, \
               "how the names of image files end" where \
               "; default: jpg,jpeg,png,webp and what installed decoders add")
#define OPTION_GREY \
    DLC_BOOL("grey", "false", "images have one channel, the brightness, and not three")

/* How the names of image files end: as `endings` says, or as the core does. */
const char *endings_of(const dlc_data_args *args);

/* Is what follows the last dot of a name one of some endings, such as "jpg, png"? */
int name_ends_as(const char *name, const char *endings);

#endif
