/* Opens and closes the source of a data section. Used by the setup and by the commands
 * that read data. */
#ifndef DLC_SETUP_DATA_SOURCE_H
#define DLC_SETUP_DATA_SOURCE_H

#include "setup/setup.h"

/* Opens the source; does nothing if it is open. If its classes have names, labels are
 * numbered by `classes`, or by its own classes if that is NULL. On failure the source
 * may be open and must still be closed. */
dlc_status dlc_data_source_open(dlc_setup *setup, dlc_data_setup *data,
                                const dlc_data_info *classes);
/* The second half of it: asks data->source, which is open, what it has. */
dlc_status dlc_data_source_describe(dlc_setup *setup, dlc_data_setup *data);
/* Sets data->digest, a digest of some samples and labels that identifies the data set.
 * The source must be open, and no other thread may be reading it. */
dlc_status dlc_data_source_identify(dlc_data_setup *data);
/* Sets the arguments of a feed that the section decides. */
void dlc_data_source_feed(const dlc_data_setup *data, dlc_feed_args *args);
void dlc_data_source_close(dlc_data_setup *data); /* may be closed already */

#endif
