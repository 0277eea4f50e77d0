/* Plugins as JSON: for `dlcore plugin` and `dlcore doctor`. */
#ifndef DLC_TOOLS_PLUGIN_JSON_H
#define DLC_TOOLS_PLUGIN_JSON_H

#include "base/json.h"
#include "plugin/registry.h"

/* "plugins": [...] with their features and, if wanted, the features' options. */
void dlc_json_plugins(dlc_json *json, const dlc_registry *registry, int options);
/* One element of that. */
void dlc_json_plugin(dlc_json *json, const dlc_plugin_entry *plugin, int options);
/* "folders": [...] */
void dlc_json_folders(dlc_json *json, const dlc_registry *registry);

/* A feature's capability bits in words, "-" for none; bits without a name as a
 * number. */
void dlc_caps_text(const dlc_feature *feature, dlc_text *text);

#endif
