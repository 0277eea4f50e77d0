/* Fields of samples that are rows of arrays. The options say which array is which
 * field, in the same way for each source of arrays; numbers become those of the
 * field's type as they are read. */
#ifndef DATA_FIELDS_H
#define DATA_FIELDS_H

#include "array.h"
#include "classes.h"

extern const dlc_host *host; /* set by the plugin's load */

/* Rows of the option table. The defaults are names that need not exist, and are left
 * out where another option has the same name. */
#define ARRAY_OPTIONS(image_name, label_name, what) \
    ARRAY_FIELD_OPTIONS(image_name, label_name, what), \
        DLC_STRING("classes", NULL, \
                   "names of the classes in the order of their labels, joined by " \
                   "commas; default: those of the training data")
#define ARRAY_FIELD_OPTIONS(image_name, label_name, what) \
    DLC_STRING("image", image_name, what " of the images; uint8, or float"), \
        DLC_STRING("label", label_name, what " of the classes, a number from 0 each"), \
        DLC_STRING("labels", NULL, \
                   what " with a 1 or 0 for each class, where a sample may be of " \
                        "several"), \
        DLC_STRING("vector", NULL, \
                   what " of numbers, such as those of a regression; several are " \
                        "joined by commas"), \
        DLC_STRING("mask", NULL, what " with the class of each pixel"), \
        DLC_STRING("tokens", NULL, what " with the numbers of words"), \
        DLC_STRING("boxes", NULL, \
                   what \
                   " of the boxes around objects: class, x0, y0, x1, y1 each, in " \
                   "pixels; class -1: no box"), \
        DLC_CHOICE("layout", "chw", "chw|hwc", \
                   "the order of an image's dimensions: channels first, or last")

/* How a source finds and reads its arrays. */
typedef struct array_reader {
    /* Finds the array of a field; *found is 0 if there is none with this name. */
    dlc_status (*find)(dlc_source *source, int32_t field, const char *name, array *made,
                       int *found);
    /* Reads rows first .. first + count - 1 of the array of a field, as stored. Any
     * thread. */
    dlc_status (*read)(dlc_source *source, int32_t field, int64_t first, int64_t count,
                       void *to);
    /* Where samples have different numbers of boxes, and the array the largest: how
     * many a sample has. NULL: all have as many. */
    int64_t (*boxes)(dlc_source *source, int32_t field, int64_t sample);
} array_reader;

/* The fields of a source. Start with {0}. */
typedef struct fields {
    const array_reader *reader;
    dlc_source *source;
    const char *path; /* of the file, for messages; the source's */
    int32_t first;    /* how many fields of a sample are before these */
    int keeps_names;  /* fields are called like their arrays, and not like the option */
    dlc_field field[DLC_FIELDS_MAX]; /* the role is set before the array is found */
    array of[DLC_FIELDS_MAX];
    char *name[DLC_FIELDS_MAX];     /* owned; of the arrays */
    char title[DLC_FIELDS_MAX][64]; /* of the fields */
    int32_t count;
    int64_t samples;
    int is_channels_last;
    classes known;
} fields;

/* Does an option ask for an array? */
int fields_are_asked(const dlc_settings *settings);
/* Makes the fields that the options ask for. Classes that have no names are counted, by
 * reading all labels. The source must be able to read. `known` may be set before. */
dlc_status fields_open(const dlc_data_args *args, fields *made);
void fields_close(fields *of);

/* Reads a sample: dlc_data_ops.read_sample. */
dlc_status fields_read(const fields *of, dlc_sample *sample);

#endif
