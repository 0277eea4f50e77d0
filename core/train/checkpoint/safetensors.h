/* Safetensors files: named tensors and a map of strings in one file.
 *
 * The format is the public one (8 bytes of header length, a JSON header, then the
 * tensors' bytes), so that other programs read what is written here. Two things
 * are stricter than it asks for: a file is written whole or not at all, and it
 * carries a checksum of itself in its metadata (key "dlcore.checksum"), so that a
 * damaged file is refused. Files by others have none and are taken as they are,
 * once every size and offset in them was found to fit.
 */
#ifndef DLC_TRAIN_SAFETENSORS_H
#define DLC_TRAIN_SAFETENSORS_H

#include <stddef.h>

#include <dlcore/tensor.h>

#include "base/status.h"

/* A tensor in a file; its bytes are in plain layout. `dtype` is 0 where the file
 * holds a type that is not one of dlc_dtype (I8, U64, ...). */
typedef struct dlc_safetensor {
    const char *name;
    dlc_dtype dtype;
    dlc_shape shape;
    /* For writing; NULL only where there are no elements, or `get` is set. */
    const void *data;
    /* Optional, for writing: called when it is the tensor's turn; what it gives need
     * not outlive the next call. So not all tensors have to be in memory at once. */
    dlc_status (*get)(void *context, const void **data);
    void *context;
} dlc_safetensor;

/* One pair of the metadata. The keys "dlcore.checksum" and "dlcore.sealed" are the
 * writer's own. */
typedef struct dlc_safetensors_pair {
    const char *key, *value;
} dlc_safetensors_pair;

/* Writes all of it to `path.part`, flushes it to the disk and renames it to
 * `path`: whatever goes wrong (DLC_ERR_IO, with the path and the system's reason),
 * the file that was there before stays as it was and no other is left behind.
 * Names and keys are UTF-8 and differ from each other. The same arguments give the
 * same bytes. */
dlc_status dlc_safetensors_write(const char *path, const dlc_safetensor *tensors,
                                 size_t count, const dlc_safetensors_pair *metadata,
                                 size_t metadata_count);

/* An open file; its header is in memory. */
typedef struct dlc_safetensors dlc_safetensors;

/* Checks the whole file, its checksum in pieces: the memory that this takes doesn't
 * depend on the size of the tensors. DLC_ERR_DATA if it isn't there or isn't what it
 * should be, DLC_ERR_IO if the system fails to read it. */
dlc_status dlc_safetensors_open(const char *path, dlc_safetensors **file);
/* The same in two steps: the header alone, which may say already that the file is of no
 * use, and then the checksum, for which all of the file is read. */
dlc_status dlc_safetensors_peek(const char *path, dlc_safetensors **file);
dlc_status dlc_safetensors_verify(dlc_safetensors *file);
void dlc_safetensors_close(dlc_safetensors *file); /* NULL allowed */

/* What comes from an open file is valid until it is closed. */
const char *dlc_safetensors_path(const dlc_safetensors *file);
int dlc_safetensors_has_checksum(const dlc_safetensors *file); /* ours, and intact */
size_t dlc_safetensors_count(const dlc_safetensors *file);
/* In the order of their bytes, without data; `index` is below the count. */
const dlc_safetensor *dlc_safetensors_at(const dlc_safetensors *file, size_t index);
/* NULL where the file has no such tensor; no error is set. */
const dlc_safetensor *dlc_safetensors_get(const dlc_safetensors *file,
                                          const char *name);

/* DLC_ERR_DATA, with the file, the name and what was found, where the tensor isn't
 * there or is of another type or shape. `shape` NULL: any (look at
 * dlc_safetensors_get for which). */
dlc_status dlc_safetensors_find(const dlc_safetensors *file, const char *name,
                                dlc_dtype dtype, const dlc_shape *shape);
/* The same, and its bytes, in memory that the caller gives back with dlc_free. */
dlc_status dlc_safetensors_read(const dlc_safetensors *file, const char *name,
                                dlc_dtype dtype, const dlc_shape *shape, void **data);

/* A value of the metadata, NULL where there is no such key. */
const char *dlc_safetensors_metadata(const dlc_safetensors *file, const char *key);

#endif
