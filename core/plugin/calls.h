/* Which operations a feature of each kind must have. Called by check.c. */
#ifndef DLC_PLUGIN_CALLS_H
#define DLC_PLUGIN_CALLS_H

#include <dlcore/plugin.h>

/* The name of the first required operation that the feature's table lacks; NULL if
 * none. The kind must be known and ops not NULL. */
const char *dlc_calls_missing(const dlc_feature *feature);

#endif
