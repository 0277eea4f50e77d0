/* Opening and closing the source of a data section. */
#ifndef DLC_TRAIN_DATA_SOURCE_H
#define DLC_TRAIN_DATA_SOURCE_H

#include "train/setup.h"

/* Does nothing where it is open. `classes` (may be NULL) are those that its labels are
 * to be numbered by, if its classes have names. On failure it may still be open. */
dlc_status dlc_data_source_open(const dlc_setup *setup, dlc_data_setup *data,
                                const dlc_data_info *classes);
/* A digest of some samples and their labels, to tell another data set by; of an open
 * source that nobody else reads. */
dlc_status dlc_data_source_identify(dlc_data_setup *data);
void dlc_data_source_close(dlc_data_setup *data); /* one that is closed is allowed */

#endif
