/* Checks that a plugin's descriptor keeps the rules of <dlcore/plugin.h>, before
 * anything else of it is used. Called by scan.c and find.c. */
#ifndef DLC_PLUGIN_CHECK_H
#define DLC_PLUGIN_CHECK_H

#include <dlcore/plugin.h>

#include "plugin/entry.h"

/* Checks the descriptor and the table of features, but not each feature. `path` is for
 * messages. *features is the number of features. */
dlc_status dlc_plugin_check(const char *path, const dlc_plugin *plugin,
                            size_t *features);

/* Checks one feature. DLC_ERR_PLUGIN with the reason; *state is the state of its entry
 * then. */
dlc_status dlc_feature_check(const dlc_feature *feature, dlc_entry_state *state);

/* The name of the first required operation that the feature's table lacks; NULL if
 * none. The kind must be known and ops not NULL. */
const char *dlc_calls_missing(const dlc_feature *feature);

/* DLC_OFFERS_ bits: the optional calls that the feature has, which lacks no required
 * one. */
uint32_t dlc_calls_offered(const dlc_feature *feature);

#endif
