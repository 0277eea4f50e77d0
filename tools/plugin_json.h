/* Plugins as JSON: for `dlcore plugin` and `dlcore doctor`. */
#ifndef DLC_TOOLS_PLUGIN_JSON_H
#define DLC_TOOLS_PLUGIN_JSON_H

#include "base/json.h"
#include "plugin/registry.h"

/* "plugins": [...] with their features. */
void dlc_json_plugins(dlc_json *json, const dlc_registry *registry);
/* One element of that, with the features' options, for which it is opened here. */
void dlc_json_plugin(dlc_json *json, const dlc_registry *registry,
                     const dlc_plugin_entry *plugin);
/* "folders": [...] */
void dlc_json_folders(dlc_json *json, const dlc_registry *registry);

/* A feature's capability bits in words, "-" for none; bits without a name as a
 * number. */
void dlc_caps_text(const dlc_feature_entry *feature, dlc_text *text);

#endif
