/* Constants of the safetensors format that the reader and the writer share. */
#ifndef DLC_CHECKPOINT_SAFETENSORS_FORMAT_H
#define DLC_CHECKPOINT_SAFETENSORS_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/tensor.h>

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

/* An element type; `dtype` is 0 where the SDK has no such type. */
typedef struct dlc_format_type {
    char text[8];
    size_t bytes;
    dlc_dtype dtype;
} dlc_format_type;

/* The type with this text, or this type of the SDK; NULL if there is none. */
const dlc_format_type *dlc_format_type_find(const char *text);
const dlc_format_type *dlc_format_type_of(dlc_dtype dtype);

#endif
