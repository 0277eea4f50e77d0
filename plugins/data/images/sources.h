/* The two ways to say which images there are. */
#ifndef IMAGES_SOURCES_H
#define IMAGES_SOURCES_H

#include "../shared/classes.h"
#include "table.h"

/* Lists the images in the folders of `root`, which is open as `fd`: each folder is a
 * class, with everything below it. `known` has the classes, or is empty: then it
 * becomes the folders, sorted by their bytes. `endings` are those of image files, as
 * "jpg, png". DLC_ERR_DATA for a folder that is none of the classes, for an image
 * beside the folders, and for a folder that cannot be read. */
dlc_status folder_read(int fd, const char *root, const char *endings, classes *known,
                       table *images);

/* Reads a list of lines "path label", or, if images may be of `several` classes, "path
 * [label...]". *labels: the largest label + 1. DLC_ERR_DATA with the line for one that
 * is not like that. */
dlc_status list_read(const char *path, int several, table *images, int32_t *labels);

#endif
