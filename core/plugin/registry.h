/* The registry of all plugins found: what each offers, or why it cannot be used. Called
 * by core/train and the tools.
 *
 * Plugins are searched in `dlcore/0` beside libdlcore, then in each folder of
 * DLCORE_PLUGIN_PATH (absolute paths, joined by ':'), never in the current directory. A
 * plugin that cannot be used is listed with the reason and does no harm.
 *
 * The entries are facts: they come from a process that inspected the file (scan.h), or
 * from the cache (cache.h). Only a plugin that is used is loaded into this process.
 * Loading changes the registry, so all calls on one must come from one thread at a
 * time.
 */
#ifndef DLC_PLUGIN_REGISTRY_H
#define DLC_PLUGIN_REGISTRY_H

#include "plugin/entry.h"

typedef struct dlc_registry dlc_registry;

/* Finds all plugins without loading any into this process. Fails only if memory runs
 * out. */
dlc_status dlc_registry_open(dlc_registry **registry);

/* Like dlc_registry_open, but inspects every file again, also those in the cache. */
dlc_status dlc_registry_rescan(dlc_registry **registry);

/* Opens a registry of one file, without calling its load(); the rules for its folder
 * apply. Also succeeds if the file is refused: see its entry. */
dlc_status dlc_registry_inspect(const char *path, dlc_registry **registry);

/* Frees the registry; plugins stay loaded. NULL allowed. */
void dlc_registry_close(dlc_registry *registry);

/* Finds and loads the feature of this kind and name that works on `device`; one made
 * for that device takes precedence over one for any (device NULL). With `device` NULL,
 * the first one. *feature is valid until the process ends. DLC_ERR_PLUGIN with a
 * sentence: the available ones and the nearest name, or why it cannot be used here. */
dlc_status dlc_registry_find(const dlc_registry *registry, dlc_kind kind,
                             const char *name, const char *device,
                             const dlc_feature **feature);

/* The i-th usable feature of a kind; NULL beyond the last. */
const dlc_feature_entry *dlc_registry_usable(const dlc_registry *registry,
                                             dlc_kind kind, size_t i);

/* Loads the plugin of an entry, unless it is loaded, and returns the feature, valid
 * until the process ends. DLC_ERR_PLUGIN with the reason if it is not usable, or turns
 * out not to be: then its plugin's entries change. DLC_ERR_IO if it cannot be loaded
 * now, for lack of descriptors or the like. */
dlc_status dlc_registry_use(const dlc_registry *registry,
                            const dlc_feature_entry *entry,
                            const dlc_feature **feature);

/* Uses the first usable feature of a kind, skipping those that turn out not to be. */
dlc_status dlc_registry_use_first(const dlc_registry *registry, dlc_kind kind,
                                  const dlc_feature **feature);

/* Returns the feature without calling the plugin's load(), so none of its operations
 * may be called: for its options, also if it is not usable. DLC_ERR_PLUGIN if the
 * feature is refused or ignored. */
dlc_status dlc_registry_peek(const dlc_registry *registry,
                             const dlc_feature_entry *entry,
                             const dlc_feature **feature);

/* All entries, usable or not, in the order of the search; NULL beyond the last. `kind`
 * 0: all kinds. */
const dlc_folder_entry *dlc_registry_folder(const dlc_registry *registry, size_t i);
const dlc_plugin_entry *dlc_registry_plugin(const dlc_registry *registry, size_t i);
const dlc_feature_entry *dlc_registry_feature(const dlc_registry *registry,
                                              uint32_t kind, size_t i);

#endif
