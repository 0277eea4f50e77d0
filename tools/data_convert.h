/* The parts of `dlcore data convert`: a sample as the files that go into a shard
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

/* Does the size of an image change? */
int convert_is_resized(const convert_format *format, int64_t height, int64_t width);

/* The memory of one thread. Start with {0}. */
typedef struct convert_worker {
    dlc_read_sample read;
    dlc_transform_scratch scratch;
    uint8_t *pixels[2];
    size_t room[2];
} convert_worker;

/* One field of a sample, as it is written. */
typedef struct convert_file {
    unsigned char *bytes; /* own */
    uint64_t count;
    char ending[64]; /* of its name: "png", "cls", "mask.npy" */
} convert_file;

/* A sample as it is written. Start with {0}. */
typedef struct convert_files {
    convert_file file[DLC_FIELDS_MAX]; /* one of each field */
    int32_t files;
    dlc_status status; /* DLC_ERR_DATA: it cannot be read, as `detail` says */
    char detail[512];
} convert_files;

/* How a field becomes a file. */
typedef enum convert_form {
    CONVERT_PICTURE, /* the bytes of the source's file where nothing changes; otherwise
                        a compressed one of a picture that was compressed, and a
                        lossless one of other pixels */
    CONVERT_CLASS,   /* the number, as text */
    CONVERT_ARRAY,   /* .npy */
    CONVERT_NOT      /* shards cannot hold it */
} convert_form;
convert_form convert_form_of(const dlc_samples *samples, int32_t field);

/* Reads a sample and makes its files. `lock` is held while the source is read; NULL: it
 * need not be. */
dlc_status convert_sample(const data_command *command, const convert_format *format,
                          int64_t index, pthread_mutex_t *lock, convert_worker *worker,
                          convert_files *made);
void convert_files_free(convert_files *files);
void convert_worker_free(convert_worker *worker);

#endif
