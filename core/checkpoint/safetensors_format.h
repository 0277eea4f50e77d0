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
typedef struct format_type {
    const char *text;
    size_t bytes;
    dlc_dtype dtype;
} format_type;

static const format_type format_types[] = {
    {"F32", 4, DLC_F32},
    {"BF16", 2, DLC_BF16},
    {"F16", 2, DLC_F16},
    {"F64", 8, DLC_F64},
    {"I32", 4, DLC_I32},
    {"I64", 8, DLC_I64},
    {"U8", 1, DLC_U8},
    {"BOOL", 1, (dlc_dtype)0},
    {"I8", 1, (dlc_dtype)0},
    {"I16", 2, (dlc_dtype)0},
    {"U16", 2, (dlc_dtype)0},
    {"U32", 4, (dlc_dtype)0},
    {"U64", 8, (dlc_dtype)0},
    {"F8_E5M2", 1, (dlc_dtype)0},
    {"F8_E4M3", 1, (dlc_dtype)0},
};

#define FORMAT_TYPES (sizeof format_types / sizeof format_types[0])

#endif
