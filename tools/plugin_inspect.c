/* Prints plugins, features, sections and their options: `dlcore plugin inspect`. */
#include "plugin_inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "config/config.h"
#include "config/suggest.h"
#include "options.h"
#include "plugin/child.h"
#include "plugin_json.h"
#include "plugin_sections.h"
#include "setup/device_indices.h"

const char *dlc_plugin_printable(const char *name, char *text, size_t bytes) {
    size_t i = 0;
    for (; i + 1 < bytes && name[i]; i++)
        text[i] = (char)((unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?'
                                                                          : name[i]);
    text[i] = '\0';
    return text;
}

/* ---- One plugin ---------------------------------------------------------------- */

static dlc_status print_options(const dlc_option *table) {
    dlc_text text = {0};
    const dlc_option *tables[] = {table};
    dlc_options_help(tables, 1, &text);
    dlc_status rc = dlc_text_status(&text);
    if (rc == DLC_OK)
        printf("%s", dlc_text_string(&text));
    dlc_text_free(&text);
    return rc;
}

/* The file was inspected safely in another process; its options are read here. */
static dlc_status print_options_of(const dlc_registry *registry,
                                   const dlc_feature_entry *entry) {
    const dlc_feature *feature = NULL;
    dlc_status rc = dlc_registry_peek(registry, entry, &feature);
    if (rc == DLC_ERR_NOMEM)
        return rc;
    if (rc != DLC_OK) {
        printf("  options cannot be read: %s\n", dlc_detail());
        return DLC_OK;
    }
    if (!feature->options || !feature->options->name) {
        puts("  no options");
        return DLC_OK;
    }
    puts("  options:");
    return print_options(feature->options);
}

static dlc_status print_feature(const dlc_registry *registry,
                                const dlc_feature_entry *entry) {
    char clean[64];
    dlc_text words = {0};
    dlc_caps_text(entry, &words);
    dlc_status rc = dlc_text_status(&words);
    printf("\n%s %s: %s\n", dlc_kind_text((dlc_kind)entry->kind),
           dlc_plugin_printable(entry->name, clean, sizeof clean),
           entry->help ? entry->help : "-");
    printf("  device        %s\n", entry->device ? entry->device : "any");
    printf("  capabilities  %s\n", dlc_text_string(&words));
    if (entry->endings)
        printf("  endings       %s\n", entry->endings);
    printf("  state         %s%s%s\n", dlc_entry_state_text(entry->state),
           entry->reason ? ": " : "", entry->reason ? entry->reason : "");
    dlc_text_free(&words);
    DLC_TRY(rc);
    if (entry->state == DLC_ENTRY_REFUSED || entry->state == DLC_ENTRY_IGNORED)
        return DLC_OK; /* its options may be the reason */
    return print_options_of(registry, entry);
}

static dlc_status print_plugin(const dlc_registry *registry,
                               const dlc_plugin_entry *plugin,
                               const dlc_feature_choice *choice) {
    printf("plugin     %s\n", plugin->name);
    printf("file       %s\n", plugin->path);
    if (plugin->version) {
        printf("version    %s\n", plugin->version);
        printf("license    %s\n", plugin->license);
        printf("interface  %d.%u\n", DLC_ABI_MAJOR, plugin->abi_minor);
    }
    printf("state      %s%s%s\n", dlc_entry_state_text(plugin->state),
           plugin->reason ? ": " : "", plugin->reason ? plugin->reason : "");
    for (size_t i = 0; i < plugin->features; i++)
        if (dlc_feature_is_chosen(choice, &plugin->feature[i]))
            DLC_TRY(print_feature(registry, &plugin->feature[i]));
    return DLC_OK;
}

/* ---- Which ones are meant ---------------------------------------------------------
 */

/* Which parts of the registry to show. */
typedef struct feature_view {
    const dlc_registry *registry;
    const char *section; /* of net.ini, or all of them; NULL: none */
    int no_plugins;
    const char *plugin; /* only plugins of this name; NULL: any */
    dlc_feature_choice choice;
} feature_view;

static int is_plugin_shown(const feature_view *view, const dlc_plugin_entry *plugin) {
    if (view->no_plugins || (view->plugin && strcmp(plugin->name, view->plugin) != 0))
        return 0;
    if (!view->choice.name && !view->choice.device)
        return 1; /* even without features: it was refused */
    for (size_t i = 0; i < plugin->features; i++)
        if (dlc_feature_is_chosen(&view->choice, &plugin->feature[i]))
            return 1;
    return 0;
}

static int shows_anything(const feature_view *view) {
    const dlc_plugin_entry *plugin;
    for (size_t i = 0; (plugin = dlc_registry_plugin(view->registry, i)); i++)
        if (is_plugin_shown(view, plugin))
            return 1;
    return 0;
}

/* Shows everything that was asked for; the first refused plugin gives the status. */
static dlc_status show(const feature_view *view, int as_json) {
    const dlc_plugin_entry *plugin;
    dlc_json json = {0};
    dlc_status rc = DLC_OK;
    const char *refused = NULL, *between = view->section ? "\n" : "";
    if (view->section && !as_json)
        DLC_TRY(dlc_sections_print(view->registry, view->section));
    dlc_json_object(&json, NULL);
    dlc_json_sections(&json, view->section);
    dlc_json_array(&json, "plugins");
    for (size_t i = 0; (plugin = dlc_registry_plugin(view->registry, i)); i++) {
        if (!is_plugin_shown(view, plugin))
            continue;
        if (plugin->state == DLC_ENTRY_REFUSED && !refused)
            refused = plugin->reason;
        if (as_json) {
            dlc_json_plugin(&json, view->registry, plugin, &view->choice);
            continue;
        }
        printf("%s", between);
        between = "\n";
        if ((rc = print_plugin(view->registry, plugin, &view->choice)) != DLC_OK)
            break;
    }
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    if (as_json)
        rc = dlc_tool_print_json(&json);
    else
        dlc_text_free(&json.text);
    if (rc == DLC_OK && refused)
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s", refused);
    return rc;
}

/* ---- Devices ----------------------------------------------------------------------
 */

/* The default device of a job on this machine; NULL if there is none. */
static dlc_status find_device(const dlc_registry *registry, const char **name) {
    const dlc_feature *device = NULL;
    DLC_TRY(dlc_find_accelerator(registry, &device));
    if (!device &&
        dlc_registry_use_first(registry, DLC_KIND_DEVICE, &device) == DLC_ERR_NOMEM)
        return DLC_ERR_NOMEM;
    *name = device ? device->name : NULL;
    return DLC_OK;
}

static int is_in(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return 1;
    return 0;
}

/* Fails if no feature works on the device, whose name may be misspelt. */
static dlc_status check_device(const feature_view *view, const char *device) {
    const dlc_feature_entry *entry;
    size_t count = 0, room = 0;
    while (dlc_registry_feature(view->registry, 0, room))
        room++;
    const char **names = dlc_alloc(room, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; (entry = dlc_registry_feature(view->registry, 0, i)); i++) {
        const char *name = dlc_feature_device(entry);
        if (name && !is_in(names, count, name))
            names[count++] = name;
    }
    dlc_text all = {0};
    for (size_t i = 0; i < count; i++)
        dlc_text_add(&all, "%s%s", i ? ", " : "", names[i]);
    dlc_status rc = dlc_text_status(&all);
    if (rc == DLC_OK && !is_in(names, count, device))
        rc = dlc_fail(DLC_ERR_PLUGIN, "--device=%s: unknown device; there %s %s",
                      device, count == 1 ? "is" : "are",
                      count ? dlc_text_string(&all) : "none");
    dlc_text_free(&all);
    dlc_free(names);
    return rc;
}

/* Names what is left out by default, below what is shown. */
static void print_left_out(const feature_view *view) {
    const dlc_feature_entry *entry;
    dlc_feature_choice any = {.name = view->choice.name};
    for (size_t i = 0; (entry = dlc_registry_feature(view->registry, 0, i)); i++) {
        const char *device = dlc_feature_device(entry);
        if (dlc_feature_is_chosen(&any, entry) &&
            !dlc_feature_is_chosen(&view->choice, entry))
            printf("\nNot shown: %s %s for %s, by plugin %s (%s); --device=%s or --all "
                   "shows it\n",
                   dlc_kind_text((dlc_kind)entry->kind), entry->name, device,
                   entry->plugin->name, dlc_entry_state_text(entry->state), device);
    }
}

/* Shows the features of one name: for the device that was asked for, or for the default
 * device, or, if that has none, for all devices. */
static dlc_status show_feature(const plugin_inspection *what, feature_view *view) {
    view->choice.name = what->name;
    view->choice.device = what->device;
    if (!what->device && !what->all)
        DLC_TRY(find_device(view->registry, &view->choice.device));
    if (!what->device && view->choice.device && !shows_anything(view))
        view->choice.device = NULL;
    if (!shows_anything(view))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "there is no \"%s\" for %s; --all shows the devices that have "
                        "one",
                        what->name, what->device);
    dlc_status rc = show(view, what->json);
    if (rc == DLC_OK && !what->json && !what->device && view->choice.device)
        print_left_out(view);
    return rc;
}

/* ---- Names ---------------------------------------------------------------------- */

/* "; did you mean ...?", of all names that exist. */
static dlc_status add_nearest(const dlc_registry *registry, const char *name,
                              dlc_text *text) {
    const dlc_feature_entry *feature;
    const dlc_plugin_entry *plugin;
    size_t room = 0, count = 0;
    while (dlc_section_nth(room))
        room++;
    for (size_t i = 0; dlc_registry_plugin(registry, i); i++)
        room++;
    for (size_t i = 0; dlc_registry_feature(registry, 0, i); i++)
        room++;
    const char **names = dlc_alloc(room, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    for (; dlc_section_nth(count); count++)
        names[count] = dlc_section_nth(count);
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++)
        names[count++] = plugin->name;
    for (size_t i = 0; (feature = dlc_registry_feature(registry, 0, i)); i++)
        names[count++] = feature->name;
    dlc_suggest(text, name, names, count);
    dlc_free(names);
    return dlc_text_status(text);
}

static dlc_status fail_unknown(const dlc_registry *registry, const char *name) {
    dlc_text keys = {0}, nearest = {0};
    dlc_status rc = dlc_sections_find_key(registry, name, &keys);
    if (rc == DLC_OK && !keys.length)
        rc = add_nearest(registry, name, &nearest);
    if (rc == DLC_OK && keys.length)
        rc = dlc_fail(
            DLC_ERR_PLUGIN,
            "\"%s\" is not a plugin or section but a key of %s: inspect these", name,
            dlc_text_string(&keys));
    else if (rc == DLC_OK)
        rc = dlc_fail(
            DLC_ERR_PLUGIN,
            "there is no plugin, feature or section of net.ini named \"%s\"%s; see "
            "dlcore plugin list",
            name, dlc_text_string(&nearest));
    dlc_text_free(&nearest);
    dlc_text_free(&keys);
    return rc;
}

static int is_offered(const dlc_registry *registry, const char *name) {
    const dlc_feature_entry *feature;
    for (size_t i = 0; (feature = dlc_registry_feature(registry, 0, i)); i++)
        if (!strcmp(feature->name, name))
            return 1;
    return 0;
}

static int is_plugin(const dlc_registry *registry, const char *name) {
    const dlc_plugin_entry *plugin;
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++)
        if (!strcmp(plugin->name, name))
            return 1;
    return 0;
}

static dlc_status inspect_plugin(const plugin_inspection *what, feature_view *view) {
    view->plugin = what->name;
    view->choice.device = what->device;
    if (!shows_anything(view))
        return dlc_fail(DLC_ERR_PLUGIN, "plugin %s has nothing that works on %s",
                        what->name, what->device);
    return show(view, what->json);
}

static dlc_status inspect_found(const plugin_inspection *what, feature_view *view) {
    if (what->device)
        DLC_TRY(check_device(view, what->device));
    if (!what->name) {
        view->section = DLC_ALL_SECTIONS;
        return show(view, what->json);
    }
    int named = is_plugin(view->registry, what->name);
    int offered = is_offered(view->registry, what->name);
    if (dlc_section_is_known(what->name)) {
        view->section = what->name;
        view->no_plugins = !named && !offered;
    }
    if (named)
        return inspect_plugin(what, view);
    if (offered)
        return show_feature(what, view);
    return view->section ? show(view, what->json)
                         : fail_unknown(view->registry, what->name);
}

static dlc_status inspect_name(const plugin_inspection *what) {
    dlc_registry *registry;
    DLC_TRY(dlc_registry_open(&registry));
    feature_view view = {.registry = registry};
    dlc_status rc = inspect_found(what, &view);
    dlc_registry_close(registry);
    return rc;
}

#define OPEN_SECONDS 5.0

/* What is shown of a file, and how. */
typedef struct file_view {
    const feature_view *view;
    int as_json;
} file_view;

static dlc_status show_file(void *context) {
    const file_view *file = context;
    return show(file->view, file->as_json);
}

/* The options are read from the file itself, so it is opened in another process: not
 * even its destructors run in this one. */
static dlc_status inspect_file(const plugin_inspection *what) {
    dlc_registry *registry;
    DLC_TRY(dlc_registry_inspect(what->name, &registry));
    feature_view view = {.registry = registry, .choice = {.device = what->device}};
    file_view file = {&view, what->json};
    dlc_status rc = what->device ? check_device(&view, what->device) : DLC_OK;
    if (rc == DLC_OK)
        rc = dlc_probe_shown("opening the file to read its options", OPEN_SECONDS,
                             show_file, &file);
    dlc_registry_close(registry);
    return rc;
}

dlc_status dlc_plugin_inspect(const plugin_inspection *what) {
    size_t length = what->name ? strlen(what->name) : 0;
    if (!what->name || (!strchr(what->name, '/') &&
                        (length < 3 || strcmp(what->name + length - 3, ".so") != 0)))
        return inspect_name(what);
    return inspect_file(what);
}
