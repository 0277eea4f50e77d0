/* Boxes around the objects of an image, as sources give them and as nets read them:
 * rows of DLC_ROLE_BOXES. How transforms move them is in transform_boxes.c. Used by the
 * loader, and by commands that go through samples. */
#ifndef DLC_DATA_BOXES_H
#define DLC_DATA_BOXES_H

#include <dlcore/data.h>

#include "base/status.h"

/* Checks the boxes of a sample, whose image has this size. DLC_ERR_DATA with the row of
 * a box whose class is none, that is empty, or that is outside the image. One that
 * reaches beyond it is clipped, by transforms. */
dlc_status dlc_boxes_check(const dlc_field *field, const dlc_value *value,
                           int64_t height, int64_t width);

/* Makes rows first .. end - 1 unused. */
void dlc_boxes_clear(float *rows, int64_t first, int64_t end);

#endif
