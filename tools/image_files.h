/* Image files as a data source of the command's own: unlabelled samples, one of each
 * file, which the core decodes. Used by `dlcore predict`. */
#ifndef DLC_TOOLS_IMAGE_FILES_H
#define DLC_TOOLS_IMAGE_FILES_H

#include <dlcore/data.h>

/* Opens files as images of 1 or 3 channels. The paths must stay valid until close;
 * a file is read when its sample is. */
dlc_status dlc_image_files_open(const char *const *path, size_t count, int32_t channels,
                                dlc_source **source);

/* The calls of such a source but `open`. It may be read by several threads at once. A
 * sample is named by its path. */
extern const dlc_data_ops dlc_image_files_ops;

#endif
