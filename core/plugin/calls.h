/* Which calls a feature of each kind must have. */
#ifndef DLC_PLUGIN_CALLS_H
#define DLC_PLUGIN_CALLS_H

#include <dlcore/plugin.h>

/* NULL where the feature's table of operations has all it must have, else the name
 * of the first call that it lacks. The kind is known and ops are not NULL. */
const char *dlc_calls_missing(const dlc_feature *feature);

#endif
