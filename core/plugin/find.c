/* Finds features in a registry, explains failures, and loads plugins into this process
 * when they are used. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "config/suggest.h"
#include "plugin/check.h"
#include "plugin/object.h"
#include "plugin/registry.h"
#include "plugin/registry_internal.h"
#include "plugin/search.h"

const dlc_folder_entry *dlc_registry_folder(const dlc_registry *registry, size_t i) {
    return i < registry->folders ? &registry->folder[i] : NULL;
}

const dlc_plugin_entry *dlc_registry_plugin(const dlc_registry *registry, size_t i) {
    return i < registry->plugins ? &registry->plugin[i]->entry : NULL;
}

const dlc_feature_entry *dlc_registry_feature(const dlc_registry *registry,
                                              uint32_t kind, size_t i) {
    for (size_t p = 0; p < registry->plugins; p++) {
        const dlc_plugin_entry *plugin = &registry->plugin[p]->entry;
        for (size_t f = 0; f < plugin->features; f++) {
            const dlc_feature_entry *entry = &plugin->feature[f];
            if ((!kind || entry->kind == kind) && i-- == 0)
                return entry;
        }
    }
    return NULL;
}

const dlc_feature_entry *dlc_registry_usable(const dlc_registry *registry,
                                             dlc_kind kind, size_t i) {
    const dlc_feature_entry *entry;
    for (size_t n = 0; (entry = dlc_registry_feature(registry, kind, n)); n++)
        if (entry->state == DLC_ENTRY_USABLE && i-- == 0)
            return entry;
    return NULL;
}

/* ---- Explaining failures -------------------------------------------------------- */

/* A set of names, each listed once. */
typedef struct names {
    const char **name;
    size_t count;
} names;

static void names_add(names *set, const char *name) {
    for (size_t i = 0; i < set->count; i++)
        if (!strcmp(set->name[i], name))
            return;
    set->name[set->count++] = name;
}

static void names_list(const names *set, dlc_text *text) {
    for (size_t i = 0; i < set->count; i++)
        dlc_text_add(text, "%s%s", i ? ", " : "", set->name[i]);
    if (!set->count)
        dlc_text_add(text, "none");
}

static size_t count_features(const dlc_registry *registry) {
    size_t count = 0;
    for (size_t p = 0; p < registry->plugins; p++)
        count += registry->plugin[p]->entry.features;
    return count;
}

/* Mentions refused files, which may contain what was meant. */
static void add_refused_note(const dlc_registry *registry, dlc_text *text) {
    size_t refused = 0;
    for (size_t p = 0; p < registry->plugins; p++)
        refused += registry->plugin[p]->entry.state == DLC_ENTRY_REFUSED;
    if (refused)
        dlc_text_add(text, "; %zu plugin%s refused, see dlcore plugin list", refused,
                     refused == 1 ? " was" : "s were");
}

/* Mentions a feature of another kind with this name: [optimizer] type = sgd is read as
 * a layer. */
static void add_kind_note(const dlc_registry *registry, dlc_kind kind, const char *name,
                          dlc_text *text) {
    static const char *const places[] = {
        [DLC_KIND_DEVICE] = "`device` in [train]",
        [DLC_KIND_TRANSPORT] = "`type` in [transport]",
        [DLC_KIND_LAYER] = "`type` in a section of its own",
        [DLC_KIND_SOLVER] = "`type` in [solver]",
        [DLC_KIND_DATA] = "`source` in [data]",
        [DLC_KIND_CONSISTENCY] = "`type` in [consistency]",
        [DLC_KIND_DECODER] = "it needs no setting",
    };
    const dlc_feature_entry *feature;
    for (uint32_t other = DLC_KIND_DEVICE; other <= DLC_KIND_LAST; other++)
        for (size_t i = 0;
             (feature = dlc_registry_usable(registry, (dlc_kind)other, i)); i++) {
            if (other == (uint32_t)kind || strcmp(feature->name, name) != 0)
                continue;
            dlc_text_add(text, "; it is a %s: %s", dlc_kind_text((dlc_kind)other),
                         places[other]);
            return;
        }
}

/* Fails with what is available instead. `set` has room for all features. */
static dlc_status fail_unknown_feature(const dlc_registry *registry, dlc_kind kind,
                                       const char *name, const char *device, names *set,
                                       dlc_text *text) {
    const dlc_feature_entry *feature;
    const char *kind_text = dlc_kind_text(kind);
    for (size_t i = 0; (feature = dlc_registry_usable(registry, kind, i)); i++)
        if (!strcmp(feature->name, name) && feature->device)
            names_add(set, feature->device);
    if (set->count) {
        dlc_text_add(text, "%s \"%s\" doesn't work on device %s, only on: ", kind_text,
                     name, device);
        names_list(set, text);
        dlc_text_add(text, "; --device chooses one");
    } else {
        for (size_t i = 0; (feature = dlc_registry_usable(registry, kind, i)); i++)
            if (!device || !feature->device || !strcmp(device, feature->device))
                names_add(set, feature->name);
        dlc_text_add(text, "there is no %s \"%s\"", kind_text, name);
        if (device)
            dlc_text_add(text, " for device %s", device);
        dlc_suggest(text, name, set->name, set->count);
        add_kind_note(registry, kind, name, text);
        size_t length = text->length;
        int asked = length && text->bytes[length - 1] == '?';
        dlc_text_add(text, "%s there are: ", asked ? "" : ";");
        names_list(set, text);
    }
    add_refused_note(registry, text);
    DLC_TRY(dlc_text_status(text));
    return dlc_fail(DLC_ERR_PLUGIN, "%s", dlc_text_string(text));
}

static dlc_status fail_find(const dlc_registry *registry, dlc_kind kind,
                            const char *name, const char *device) {
    dlc_text text = {0};
    names set = {.name = dlc_alloc(count_features(registry), sizeof *set.name)};
    dlc_status rc = set.name ? fail_unknown_feature(registry, kind, name, device, &set,
                                                    &text)
                             : DLC_ERR_NOMEM;
    dlc_free(set.name);
    dlc_text_free(&text);
    return rc;
}

static int serves(const dlc_feature_entry *feature, const char *name,
                  const char *device) {
    return !strcmp(feature->name, name) &&
           (!device || !feature->device || !strcmp(feature->device, device));
}

/* The entry to use; *broken: an entry that would fit but is not usable. */
static const dlc_feature_entry *find_feature_entry(const dlc_registry *registry,
                                                   dlc_kind kind, const char *name,
                                                   const char *device,
                                                   const dlc_feature_entry **broken) {
    const dlc_feature_entry *general = NULL, *entry;
    *broken = NULL;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, kind, i)); i++) {
        if (!serves(entry, name, device))
            continue;
        if (entry->state != DLC_ENTRY_USABLE)
            *broken = *broken ? *broken : entry;
        else if (!device || entry->device)
            return entry;
        else if (!general)
            general = entry;
    }
    return general;
}

dlc_status dlc_registry_find(const dlc_registry *registry, dlc_kind kind,
                             const char *name, const char *device,
                             const dlc_feature **feature) {
    const dlc_feature_entry *entry, *broken;
    while ((entry = find_feature_entry(registry, kind, name, device, &broken))) {
        dlc_status rc = dlc_registry_use(registry, entry, feature);
        if (rc != DLC_ERR_PLUGIN) /* otherwise try another one */
            return rc;
    }
    if (broken)
        return dlc_fail(DLC_ERR_PLUGIN, "%s \"%s\" of plugin %s is %s: %s",
                        dlc_kind_text(kind), name, broken->plugin->name,
                        dlc_entry_state_text(broken->state),
                        broken->reason ? broken->reason : "its load() was not called");
    return fail_find(registry, kind, name, device);
}

/* ---- Using ------------------------------------------------------------------------
 */

static plugin_item *plugin_of_entry(const dlc_registry *registry,
                                    const dlc_feature_entry *entry) {
    size_t i = 0;
    while (&registry->plugin[i]->entry != entry->plugin)
        i++;
    return registry->plugin[i];
}

/* Opens the plugin in this process, unless it is open: the file must be the one that
 * was inspected, and still be trusted. */
static dlc_status open_plugin(plugin_item *item) {
    const dlc_plugin *plugin = NULL;
    struct stat now;
    size_t features = 0;
    if (item->plugin)
        return DLC_OK;
    DLC_TRY(dlc_path_trust(item->path, &now));
    if (!dlc_stat_same_bytes(
            &now, &item->info)) /* its name may differ: backups and perf create links */
        return dlc_fail(DLC_ERR_PLUGIN, "%s: was changed after it had been inspected",
                        item->path);
    DLC_TRY(dlc_object_open(item->path, &item->info, &plugin));
    DLC_TRY(dlc_plugin_check(item->path, plugin, &features));
    if (features != item->entry.features || strcmp(plugin->name, item->entry.name) != 0)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: contains a different plugin than when it was inspected",
                        item->path);
    item->plugin = plugin;
    return DLC_OK;
}

static const dlc_feature *loaded_feature(const plugin_item *item,
                                         const dlc_feature_entry *entry) {
    const dlc_feature *feature = item->plugin->features;
    for (const dlc_feature_entry *e = item->feature; e < entry; e++)
        feature = DLC_NEXT(feature);
    return feature;
}

dlc_status dlc_registry_peek(const dlc_registry *registry,
                             const dlc_feature_entry *entry,
                             const dlc_feature **feature) {
    plugin_item *item = plugin_of_entry(registry, entry);
    dlc_entry_state state;
    if (entry->state == DLC_ENTRY_REFUSED || entry->state == DLC_ENTRY_IGNORED)
        return dlc_fail(DLC_ERR_PLUGIN, "%s", entry->reason);
    DLC_TRY(open_plugin(item));
    const dlc_feature *found = loaded_feature(item, entry);
    DLC_TRY(dlc_feature_check(found, &state));
    if (strcmp(found->name, entry->name) != 0 || found->kind != entry->kind)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: contains a different plugin than when it was inspected",
                        item->path);
    *feature = found;
    return DLC_OK;
}

/* Marks a plugin that turned out not to be usable, with all its features. Drops the
 * cache if it was wrong: DLC_ERR_IO may not last. */
static dlc_status mark_unusable(plugin_item *item, dlc_status rc,
                                dlc_entry_state state) {
    if (rc == DLC_ERR_NOMEM)
        return rc;
    DLC_TRY(plugin_keep_reason(item, dlc_strdup(dlc_detail()), &item->entry.reason));
    item->entry.state = state;
    for (size_t i = 0; i < item->entry.features; i++)
        if (item->feature[i].state == DLC_ENTRY_USABLE) {
            item->feature[i].state = state;
            item->feature[i].reason = item->entry.reason;
        }
    if (rc != DLC_ERR_IO)
        dlc_cache_drop();
    return dlc_fail(DLC_ERR_PLUGIN, "%s", item->entry.reason);
}

dlc_status dlc_registry_use(const dlc_registry *registry,
                            const dlc_feature_entry *entry,
                            const dlc_feature **feature) {
    plugin_item *item = plugin_of_entry(registry, entry);
    const dlc_feature *found = NULL;
    if (entry->state != DLC_ENTRY_USABLE)
        return dlc_fail(DLC_ERR_PLUGIN, "%s",
                        entry->reason ? entry->reason : "its load() was not called");
    dlc_status rc = dlc_registry_peek(registry, entry, &found);
    if (rc == DLC_ERR_IO) /* the next call may find it */
        return rc;
    if (rc != DLC_OK)
        return mark_unusable(item, rc, DLC_ENTRY_REFUSED);
    if ((rc = dlc_object_load(item->plugin)) != DLC_OK)
        return mark_unusable(item, rc, DLC_ENTRY_UNAVAILABLE);
    *feature = found;
    return DLC_OK;
}

dlc_status dlc_registry_use_first(const dlc_registry *registry, dlc_kind kind,
                                  const dlc_feature **feature) {
    const dlc_feature_entry *entry;
    while ((entry = dlc_registry_usable(registry, kind, 0))) {
        dlc_status rc = dlc_registry_use(registry, entry, feature);
        if (rc != DLC_ERR_PLUGIN)
            return rc;
    }
    return dlc_fail(DLC_ERR_PLUGIN,
                    "no %s can be used here; `dlcore doctor` shows what "
                    "was found and why",
                    dlc_kind_text(kind));
}
