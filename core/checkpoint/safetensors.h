/* Safetensors files: named tensors and a map of strings in one file.
 *
 * The format is the public one (8 bytes of header length, a JSON header, then the
 * bytes of the tensors), so that other programs can read the files. Two things are
 * stricter than it requires: a file is written completely or not at all, and its
 * metadata holds a checksum of the whole file (key "dlcore.checksum"), so that a
 * damaged file is refused. Files of other programs have no checksum; they are accepted
 * if every size and offset in them is consistent.
 */
#ifndef DLC_CHECKPOINT_SAFETENSORS_H
#define DLC_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>

#include <dlcore/tensor.h>

#include "base/text.h"

/* A tensor in a file; its bytes are in plain layout. `dtype` is 0 where the file
 * holds a type that is not one of dlc_dtype (I8, U64, ...). */
typedef struct dlc_safetensor {
    const char *name;
    dlc_dtype dtype;
    dlc_shape shape;
    /* For writing; NULL only if there are no elements or `get` is set. */
    const void *data;
    /* Optional, for writing: gives the bytes from `at` on when they are written, as
     * many as there are at once. They must stay valid only until the next call, so that
     * neither all tensors nor a whole one have to be in memory. */
    dlc_status (*get)(void *context, size_t at, const void **data, size_t *bytes);
    void *context;
} dlc_safetensor;

/* One pair of the metadata. The keys "dlcore.checksum" and "dlcore.sealed" are reserved
 * for the writer. */
typedef struct dlc_safetensors_pair {
    const char *key, *value;
} dlc_safetensors_pair;

/* Writes everything to `path.part`, flushes it to disk and renames it to `path`. On
 * failure (DLC_ERR_IO, with the path and the system's reason) a file that existed
 * before is unchanged and no other file is left behind. Names and keys must be UTF-8
 * and unique. The same arguments give the same bytes. */
dlc_status dlc_safetensors_write(const char *path, const dlc_safetensor *tensors,
                                 size_t count, const dlc_safetensors_pair *metadata,
                                 size_t metadata_count);

/* An open file. Its header is in memory; tensors are read on request. */
typedef struct dlc_safetensors dlc_safetensors;

/* Opens and checks the whole file. The checksum is computed in chunks, so the memory
 * needed does not depend on the size of the tensors. DLC_ERR_DATA if the file does not
 * exist or is invalid, DLC_ERR_IO if the system fails to read it. */
dlc_status dlc_safetensors_open(const char *path, dlc_safetensors **file);
/* dlc_safetensors_open in two steps, for callers that can reject a file by its header:
 * dlc_safetensors_open_header checks the header only, dlc_safetensors_verify then reads
 * the whole file to check its checksum. */
dlc_status dlc_safetensors_open_header(const char *path, dlc_safetensors **file);
dlc_status dlc_safetensors_verify(dlc_safetensors *file);
void dlc_safetensors_close(dlc_safetensors *file); /* NULL allowed */

/* Everything that the calls below return is valid until the file is closed. */
const char *dlc_safetensors_path(const dlc_safetensors *file);
size_t dlc_safetensors_count(const dlc_safetensors *file);
/* In the order of their bytes, without data; `index` must be below the count. */
const dlc_safetensor *dlc_safetensors_at(const dlc_safetensors *file, size_t index);
/* NULL if the file has no such tensor; no error is set. */
const dlc_safetensor *dlc_safetensors_get(const dlc_safetensors *file,
                                          const char *name);

/* Checks that the file has a tensor of this name, type and shape. DLC_ERR_DATA, saying
 * what was found, if it is missing or has another type or shape. `shape` NULL: any
 * shape, which dlc_safetensors_get tells. */
dlc_status dlc_safetensors_find(const dlc_safetensors *file, const char *name,
                                dlc_dtype dtype, const dlc_shape *shape);
/* Reads a tensor into memory that the caller frees with dlc_free. Errors are those of
 * dlc_safetensors_find, and DLC_ERR_IO or DLC_ERR_NOMEM. */
dlc_status dlc_safetensors_read(const dlc_safetensors *file, const char *name,
                                dlc_dtype dtype, const dlc_shape *shape, void **data);

/* Is it of a type that dlc_safetensors_read_f32 reads: F32, F16, BF16 or F64? */
int dlc_safetensor_is_real(const dlc_safetensor *tensor);
/* Reads a tensor of the file (dlc_safetensors_at) as float32, into memory that the
 * caller frees with dlc_free. */
dlc_status dlc_safetensors_read_f32(const dlc_safetensors *file,
                                    const dlc_safetensor *tensor, float **values);
/* The name of its type in the file that it was read from: "F32". */
const char *dlc_safetensor_type(const dlc_safetensor *tensor);
/* Appends a shape as "[32, 3, 5, 5]". */
void dlc_safetensor_print_shape(dlc_text *text, const dlc_shape *shape);

/* A value of the metadata; NULL if there is no such key. */
const char *dlc_safetensors_metadata(const dlc_safetensors *file, const char *key);

#endif
