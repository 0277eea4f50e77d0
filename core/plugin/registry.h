/* The registry: every plugin found, what each offers, and why the others don't.
 *
 * Plugins are looked for in `dlcore/1` beside libdlcore, then in each folder of
 * DLCORE_PLUGIN_PATH (absolute paths, joined by ':'), never in the current
 * directory. A plugin that cannot be used is listed with its reason and harms
 * nothing.
 *
 * What is listed are facts: they come from a process that inspected the file (scan.h),
 * or were remembered (cache.h). Only a plugin that is used is loaded into this process.
 * That changes the registry, so all calls on one are made by one thread at a time.
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
    uint32_t kind;                    /* dlc_kind, or one that this host doesn't know */
    const char *name, *help, *device; /* as in dlc_feature; of one that is refused they
                                         may be any text, and help NULL */
    uint64_t caps;
    const struct dlc_plugin_entry *plugin;
    dlc_entry_state state;
    const char *reason; /* NULL where usable */
} dlc_feature_entry;

typedef struct dlc_plugin_entry {
    const char *path; /* of the file, symbolic links resolved */
    const char *name; /* its own, or the file's name where it could not be read; never
                         NULL */
    const char *version, *license; /* NULL where it could not be read */
    uint32_t abi_minor;
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

/* Finds everything, loads nothing. Fails only when memory runs out. */
dlc_status dlc_registry_open(dlc_registry **registry);

/* The same, with every file inspected anew, also those that are remembered. */
dlc_status dlc_registry_rescan(dlc_registry **registry);

/* The same for one file, without calling its load(); its folder is held to the
 * same rules. Also succeeds for a file that is refused: see its entry. */
dlc_status dlc_registry_inspect(const char *path, dlc_registry **registry);

/* Frees the registry; plugins stay loaded. NULL allowed. */
void dlc_registry_close(dlc_registry *registry);

/* The feature of this kind and name that works on `device`, loaded; one made for just
 * that device goes before one for any (device NULL). With `device` NULL the first. What
 * comes back stays valid until the process ends. DLC_ERR_PLUGIN with a sentence: what
 * there is of that kind and the nearest name, or the reason why it cannot be used here.
 */
dlc_status dlc_registry_find(const dlc_registry *registry, dlc_kind kind,
                             const char *name, const char *device,
                             const dlc_feature **feature);

/* The i-th usable feature of a kind; NULL behind the last. */
const dlc_feature_entry *dlc_registry_usable(const dlc_registry *registry,
                                             dlc_kind kind, size_t i);

/* Loads its plugin, if that isn't yet, and gives the feature itself, valid until the
 * process ends. DLC_ERR_PLUGIN with the reason where it isn't usable, or turns out not
 * to be: its plugin's entries say so from then on. */
dlc_status dlc_registry_use(const dlc_registry *registry,
                            const dlc_feature_entry *entry,
                            const dlc_feature **feature);

/* The same for the first usable one of a kind; of those that turn out not to be, the
 * next. */
dlc_status dlc_registry_use_first(const dlc_registry *registry, dlc_kind kind,
                                  const dlc_feature **feature);

/* The feature itself without the plugin's load(), so none of its calls may be made: for
 * its options, also where it isn't usable. DLC_ERR_PLUGIN where the feature is refused
 * or ignored. */
dlc_status dlc_registry_peek(const dlc_registry *registry,
                             const dlc_feature_entry *entry,
                             const dlc_feature **feature);

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
