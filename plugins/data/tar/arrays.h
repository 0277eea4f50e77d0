/* Arrays in shards: the files KEY.NAME.npy of all samples are one array NAME, with a
 * row for each sample, which an option makes a field of that name. All rows have one
 * shape, but for those of boxes, of which samples have different numbers. */
#ifndef TAR_ARRAYS_H
#define TAR_ARRAYS_H

#include "../shared/fields.h"
#include "archive.h"

#define ARRAY_ENDING ".npy"

/* Start with {0}, and all.path. */
typedef struct arrays {
    fields all;
    growing names, parts;           /* until they are opened */
    growing column[DLC_FIELDS_MAX]; /* of a field: where the files of samples are */
    const data_file *shard;         /* the source's; in which they are */
    int64_t samples;
} arrays;

/* Is an ending, such as ".mask.npy", that of an array? */
int is_array(const char *ending);
/* Adds the file of array `name` of a sample; samples come in their order. */
dlc_status arrays_add(arrays *to, const char *name, size_t length, const member *file,
                      int32_t shard, int64_t sample);
/* Makes fields of the arrays that the options ask for, which all samples must have. */
dlc_status arrays_open(arrays *of, const dlc_data_args *args, const data_file *shard,
                       int64_t samples);
void arrays_free(arrays *of);

#endif
