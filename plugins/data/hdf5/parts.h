/* The files of a source: one, those of a pattern, or those of a list. */
#ifndef HDF5_PARTS_H
#define HDF5_PARTS_H

#include "../shared/growing.h"
#include "layout.h"

/* A file, and the samples in it. */
typedef struct part_file {
    char *path; /* owned */
    data_file in;
    int64_t first, count;      /* samples; count 0: not known yet */
    layout at[DLC_FIELDS_MAX]; /* the dataset of each field */
} part_file;

/* Files in the order of their samples. Start with {0}. */
typedef struct parts {
    part_file *file; /* owned */
    int32_t count, room;
} parts;

/* Opens the files: `pattern` is a path, or a pattern of several, or a list: a file
 * whose name ends with .txt and whose lines are paths, from its folder on, as Caffe has
 * it. */
dlc_status parts_open(const char *pattern, parts *made);
void parts_close(parts *of);

/* The file that has a sample. */
const part_file *parts_find(const parts *in, int64_t sample);

#endif
