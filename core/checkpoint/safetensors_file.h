/* An open safetensors file, for the files that read one: safetensors_read.c and
 * safetensors_checksum.c. */
#ifndef DLC_CHECKPOINT_SAFETENSORS_FILE_H
#define DLC_CHECKPOINT_SAFETENSORS_FILE_H

#include <jansson.h>

#include "base/names.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_format.h"

typedef struct entry {
    dlc_safetensor tensor;
    const dlc_format_type *type;
    uint64_t begin, end; /* in the data */
} entry;

struct dlc_safetensors {
    char *path;
    json_t *root;     /* owns names and metadata */
    json_t *metadata; /* NULL: none */
    size_t count;
    entry *entries;
    const char **names; /* of the entries, for the nearest one */
    dlc_names index;    /* the same names: their places in `entries` */
    char *header;       /* as in the file */
    uint64_t header_length;
    uint64_t data_bytes;
    int fd; /* tensors are read from it on request */
};

/* Reads exactly `bytes`. DLC_ERR_DATA if the file ends before, DLC_ERR_IO if the system
 * fails to read it. */
dlc_status dlc_safetensors_read_at(const dlc_safetensors *file, uint64_t begin,
                                   void *into, uint64_t bytes);

#endif
