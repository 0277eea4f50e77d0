/* Plugins as JSON: for `dlcore plugin` and `dlcore doctor`. */
#ifndef DLC_TOOLS_PLUGIN_JSON_H
#define DLC_TOOLS_PLUGIN_JSON_H

#include "base/json.h"
#include "plugin/registry.h"

/* Some of the features that there are. */
typedef struct dlc_feature_choice {
    const char *name;   /* those of this name alone; NULL: of any */
    const char *device; /* those that work on this device; NULL: on any */
} dlc_feature_choice;

/* The device that it works on; NULL: any. */
const char *dlc_feature_device(const dlc_feature_entry *feature);

int dlc_feature_is_chosen(const dlc_feature_choice *choice,
                          const dlc_feature_entry *feature);

/* "plugins": [...] with their features. */
void dlc_json_plugins(dlc_json *json, const dlc_registry *registry);
/* One element of that, with the features that are chosen (NULL: all) and their options,
 * for which it is opened here. */
void dlc_json_plugin(dlc_json *json, const dlc_registry *registry,
                     const dlc_plugin_entry *plugin, const dlc_feature_choice *choice);
/* "options": [...] of tables that have no name in common; each may be NULL. */
void dlc_json_options(dlc_json *json, const dlc_option *const *tables, size_t ntables);
/* "folders": [...] */
void dlc_json_folders(dlc_json *json, const dlc_registry *registry);

/* A feature's capability bits by name, "-" for none; those that a newer header has by
 * their number. */
void dlc_caps_text(const dlc_feature_entry *feature, dlc_text *text);

#endif
