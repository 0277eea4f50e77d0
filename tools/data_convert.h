/* The parts of `dlcore data convert`: a sample as the file that goes into a shard
 * (data_convert_sample.c), and the shards (data_convert.c). */
#ifndef DLC_TOOLS_DATA_CONVERT_H
#define DLC_TOOLS_DATA_CONVERT_H

#include <pthread.h>

#include "data_commands.h"

/* What the files of the samples are like. */
typedef struct convert_format {
    int resize; /* the shorter side, where it is longer; 0: no size changes */
    int quality;
    dlc_transforms *list; /* own; resizes */
} convert_format;

/* The memory of one thread. Start with {0}. */
typedef struct convert_worker {
    dlc_read_sample read;
    dlc_transform_scratch scratch;
    uint8_t *pixels[2];
    size_t room[2];
} convert_worker;

/* A sample as it is written. */
typedef struct convert_file {
    unsigned char *bytes; /* own */
    uint64_t count;
    const char *format; /* the decoder's name */
    int32_t label;
    dlc_status status; /* DLC_ERR_DATA: it cannot be read, as `detail` says */
    char detail[512];
} convert_file;

/* Reads a sample and makes its file: the bytes of the source's file where nothing
 * changes; otherwise a compressed one of a picture that was compressed, and a lossless
 * one of other pixels. `lock` is held while the source is read; NULL: it need not be.
 */
dlc_status convert_sample(const data_command *command, const convert_format *format,
                          int64_t index, pthread_mutex_t *lock, convert_worker *worker,
                          convert_file *file);
void convert_worker_free(convert_worker *worker);

#endif
