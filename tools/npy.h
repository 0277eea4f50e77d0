/* NumPy's .npy files: arrays of samples, as a data source of the core's own, and the
 * header of a file that is written. Used by `dlcore predict` and `data convert`. */
#ifndef DLC_TOOLS_NPY_H
#define DLC_TOOLS_NPY_H

#include <dlcore/data.h>

#include "base/text.h"

/* Appends the header of an array of bytes, float32 or int32, little-endian, after which
 * its elements follow. */
void dlc_npy_header(dlc_text *text, dlc_dtype dtype, const dlc_shape *shape);

/* Opens files as one source of unlabelled samples, in their order. Each is an array of
 * bytes or float32, N x C x H x W or C x H x W, in C order, and all have samples of one
 * shape and type. DLC_ERR_DATA with the file and what is wrong. */
dlc_status dlc_npy_open(const char *const *path, size_t count, dlc_source **source);

/* The calls of such a source but `open`. It may be read by several threads at once. A
 * sample is named "x.npy", or "x.npy:12" where the file has several. */
extern const dlc_data_ops dlc_npy_ops;

#endif
