/* The names of the classes that a net tells apart: those of the checkpoint that its
 * weights are from, or else of the data. Used by commands that show predictions. */
#ifndef DLC_TOOLS_CLASS_NAMES_H
#define DLC_TOOLS_CLASS_NAMES_H

#include "setup/setup.h"

typedef struct dlc_class_names {
    const char **name; /* own, with the texts */
    int32_t count;
    char *text;
} dlc_class_names;

/* Reads them for `classes` classes. A class without a name is named by its number.
 * `path`: of the weights; a source of the setup that is open is asked if that file says
 * nothing. */
dlc_status dlc_class_names_open(const dlc_setup *setup, const char *path,
                                int32_t classes, dlc_class_names *names);
void dlc_class_names_close(dlc_class_names *names); /* one of {0} is allowed */

/* Those that the checkpoint in this file was trained on; none if it does not say. */
dlc_status dlc_trained_classes(const char *path, dlc_class_names *names);

/* The channels of the images that the weights in this file were trained on; 0: it does
 * not say; -1: on samples without images. */
dlc_status dlc_trained_channels(const char *path, int32_t *channels);

#endif
