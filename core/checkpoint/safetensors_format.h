/* What the reader, the writer and the checksum of safetensors files share. */
#ifndef DLC_CHECKPOINT_SAFETENSORS_FORMAT_H
#define DLC_CHECKPOINT_SAFETENSORS_FORMAT_H

#include <jansson.h>

#include "base/names.h"
#include "checkpoint/safetensors.h"

/* The file begins with the header's length: 8 bytes, little endian. */
#define LENGTH_BYTES 8
/* The largest header in bytes: far more than any net needs, little enough to allocate.
 */
#define HEADER_MAX (16 << 20)

#define METADATA_KEY "__metadata__"
/* XXH64 of the whole file, as DIGITS hex digits, with '0' in their place. */
#define CHECKSUM_KEY "dlcore.checksum"
#define DIGITS 16
#define NO_DIGITS "0000000000000000"
/* The text before the digits in the header. */
#define CHECKSUM_TEXT "\"" CHECKSUM_KEY "\":\""
/* A file with any key of this prefix must have a checksum, so that a file whose
 * CHECKSUM_KEY was damaged is not taken for one of another program. */
#define OWN_PREFIX "dlcore."
#define SEALED_KEY "dlcore.sealed"
#define SEALED_VALUE "xxh64"

/* The name of an element type in files: "F32"; NULL if they cannot have it. */
const char *dlc_safetensors_type_name(dlc_dtype dtype);

typedef struct dlc_safetensors_entry {
    dlc_safetensor tensor; /* first, so that its address is the entry's */
    const char *type;      /* "F32" */
    uint64_t begin, end;   /* in the data */
} dlc_safetensors_entry;

/* An open file. */
struct dlc_safetensors {
    char *path;
    json_t *root;     /* owns names and metadata */
    json_t *metadata; /* NULL: none */
    size_t count;
    dlc_safetensors_entry *entries;
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
