/* The registry: every plugin found, what each offers, and why the others don't.
 *
 * Plugins are looked for in `dlcore/1` beside libdlcore, then in each folder of
 * DLCORE_PLUGIN_PATH (absolute paths, joined by ':'), never in the current
 * directory. A plugin that cannot be used is listed with its reason and harms
 * nothing. Open and close on one thread; everything else only reads.
 */
#ifndef DLC_PLUGIN_REGISTRY_H
#define DLC_PLUGIN_REGISTRY_H

#include <dlcore/plugin.h>

typedef struct dlc_registry dlc_registry;

typedef enum dlc_entry_state {
    DLC_ENTRY_USABLE = 1,
    DLC_ENTRY_UNAVAILABLE = 2, /* sound, but its load() says: not on this machine */
    DLC_ENTRY_REFUSED = 3,     /* unsafe, broken, or built for another host */
    DLC_ENTRY_SHADOWED = 4,    /* an earlier one of the same name is used */
    DLC_ENTRY_IGNORED = 5,     /* a feature of a kind that this host doesn't know */
    DLC_ENTRY_UNTRIED = 6,     /* load() was not called (dlc_registry_inspect) */
} dlc_entry_state;

typedef struct dlc_feature_entry {
    const dlc_feature *feature; /* all fields of version 1.0 are there */
    const struct dlc_plugin_entry *plugin;
    dlc_entry_state state;
    const char *reason; /* NULL where usable */
} dlc_feature_entry;

typedef struct dlc_plugin_entry {
    const char *path;         /* of the file, symbolic links resolved */
    const char *name;         /* its own, or the file's name where it could not
                                 be read; never NULL */
    const dlc_plugin *plugin; /* NULL where it could not be read */
    dlc_entry_state state;
    const char *reason; /* NULL where usable */
    size_t features;
    const dlc_feature_entry *feature;
} dlc_plugin_entry;

/* A folder that was searched. */
typedef struct dlc_folder_entry {
    const char *path;   /* as given; "" for an empty entry */
    const char *reason; /* why nothing was taken from it; NULL if it was read */
    int is_default;     /* the one beside libdlcore; may be absent */
} dlc_folder_entry;

/* Finds and loads everything. Fails only when memory runs out. */
dlc_status dlc_registry_open(dlc_registry **registry);

/* The same for one file, without calling its load(); its folder is held to the
 * same rules. Also succeeds for a file that is refused: see its entry. */
dlc_status dlc_registry_inspect(const char *path, dlc_registry **registry);

/* Frees the registry; plugins stay loaded. NULL allowed. */
void dlc_registry_close(dlc_registry *registry);

/* The feature of this kind and name that works on `device`; one made for just that
 * device goes before one for any (device NULL). With `device` NULL the first.
 * DLC_ERR_PLUGIN with a sentence: what there is of that kind and the nearest name,
 * or the reason why it cannot be used here. */
dlc_status dlc_registry_find(const dlc_registry *registry, dlc_kind kind,
                             const char *name, const char *device,
                             const dlc_feature **feature);

/* The i-th usable feature of a kind, NULL behind the last. */
const dlc_feature *dlc_registry_choose(const dlc_registry *registry, dlc_kind kind,
                                       size_t i);

/* Everything found, usable or not, in the order of the search; NULL behind the
 * last. `kind` 0: all features. */
const dlc_folder_entry *dlc_registry_folder(const dlc_registry *registry, size_t i);
const dlc_plugin_entry *dlc_registry_plugin(const dlc_registry *registry, size_t i);
const dlc_feature_entry *dlc_registry_feature(const dlc_registry *registry,
                                              dlc_kind kind, size_t i);

/* "device", "transport", ...; "unknown" for another number. */
const char *dlc_kind_text(dlc_kind kind);
/* "usable", "unavailable", "refused", ... */
const char *dlc_entry_state_text(dlc_entry_state state);

#endif
