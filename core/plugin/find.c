/* Looks up plugins and features in a registry, and explains failures. */
#include "plugin/registry.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/text.h"
#include "plugin/registry_internal.h"

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
static dlc_status fail_unknown(const dlc_registry *registry, dlc_kind kind,
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
    dlc_status rc = set.name ? fail_unknown(registry, kind, name, device, &set, &text)
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
static const dlc_feature_entry *find_entry(const dlc_registry *registry, dlc_kind kind,
                                           const char *name, const char *device,
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
    while ((entry = find_entry(registry, kind, name, device, &broken))) {
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
