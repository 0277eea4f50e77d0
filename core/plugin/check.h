/* Does a descriptor keep the promises of <dlcore/plugin.h>? A plugin is other
 * people's work: what it says is looked at before anything of it is used. */
#ifndef DLC_PLUGIN_CHECK_H
#define DLC_PLUGIN_CHECK_H

#include "plugin/registry.h"

#define DLC_FEATURES_MOST 1024u /* of a plugin */

/* The descriptor and the walk over its features; not each feature. `path` is for
 * the message. *features: how many there are. */
dlc_status dlc_plugin_check(const char *path, const dlc_plugin *plugin,
                            size_t *features);

/* One feature: DLC_OK, or DLC_ERR_PLUGIN with the reason; *state says what to call
 * it then. */
dlc_status dlc_feature_check(const dlc_feature *feature, dlc_entry_state *state);

#endif
