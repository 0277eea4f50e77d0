/* Which fields of the samples the fields of the graph are, in each data section. */
#ifndef DLC_SETUP_FIELDS_H
#define DLC_SETUP_FIELDS_H

#include "setup/setup.h"

/* The names of all fields of the data that is open, for the graph. */
void dlc_setup_field_names(const dlc_setup *setup, dlc_field_names *names);

/* Sets data->fields. A field that the samples do not have stays empty. */
void dlc_setup_bind_fields(const dlc_setup *setup, dlc_phase phase,
                           dlc_data_setup *data);

/* Binds the fields of the data that is open, and reports what is missing, or cannot be
 * mixed. Returns DLC_OK unless memory runs out. */
dlc_status dlc_setup_check_fields(dlc_setup *setup, dlc_problems *problems);

#endif
