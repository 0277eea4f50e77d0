/* Plugins as JSON, for `dlcore plugin` and `dlcore doctor`. */
#ifndef DLC_TOOLS_PLUGIN_JSON_H
#define DLC_TOOLS_PLUGIN_JSON_H

#include "base/json.h"
#include "plugin/registry.h"

/* Selects features. */
typedef struct dlc_feature_choice {
    const char *name;   /* only of this name; NULL: any */
    const char *device; /* only those that work on it; NULL: any */
} dlc_feature_choice;

/* The device that a feature works on; NULL: any. */
const char *dlc_feature_device(const dlc_feature_entry *feature);

int dlc_feature_is_chosen(const dlc_feature_choice *choice,
                          const dlc_feature_entry *feature);

/* Writes "plugins": [...] with their features. */
void dlc_json_plugins(dlc_json *json, const dlc_registry *registry);
/* Writes one element of that, with the selected features (NULL: all) and their options;
 * opens the plugin to read them. */
void dlc_json_plugin(dlc_json *json, const dlc_registry *registry,
                     const dlc_plugin_entry *plugin, const dlc_feature_choice *choice);
/* Writes "options": [...] of several tables without common names; each may be NULL. */
void dlc_json_options(dlc_json *json, const dlc_option *const *tables, size_t ntables);
/* Writes "folders": [...]. */
void dlc_json_folders(dlc_json *json, const dlc_registry *registry);

/* Appends a feature's capability bits by name, "-" for none; unknown bits by number. */
void dlc_caps_text(const dlc_feature_entry *feature, dlc_text *text);

#endif
