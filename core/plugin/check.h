/* Checks that a plugin's descriptor keeps the rules of <dlcore/plugin.h>, before
 * anything else of it is used. Called by scan.c and use.c. */
#ifndef DLC_PLUGIN_CHECK_H
#define DLC_PLUGIN_CHECK_H

#include "plugin/entry.h"

#define DLC_FEATURES_MAX 1024u /* the most features of a plugin */

/* Checks the descriptor and the table of features, but not each feature. `path` is for
 * messages. *features is the number of features. */
dlc_status dlc_plugin_check(const char *path, const dlc_plugin *plugin,
                            size_t *features);

/* Checks one feature. DLC_ERR_PLUGIN with the reason; *state is the state of its entry
 * then. */
dlc_status dlc_feature_check(const dlc_feature *feature, dlc_entry_state *state);

#endif
