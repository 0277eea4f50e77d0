/* dlcore plugin: what plugins there are, everything about one, whether it keeps the
 * SDK's promises, and how to begin one. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "command.h"
#include "config/config.h"
#include "conformance/report.h"
#include "options.h"
#include "plugin_json.h"
#include "plugin_new.h"

enum { KEY_JSON = 0x100, KEY_DIR, KEY_SET, KEY_ONLY, KEY_RESCAN };

enum { SETS_MOST = 32 };

typedef struct plugin_command {
    const char *action; /* "list", "inspect", "check", "new" */
    const char *name;   /* inspect: of a plugin, a feature or a file; new: the kind */
    const char *second; /* new: the name */
    const char *folder; /* new */
    const char *only;   /* check */
    const char *set[SETS_MOST]; /* check */
    size_t sets;
    int json, rescan;
} plugin_command;

static int is_action(const plugin_command *command, const char *action) {
    return strcmp(command->action, action) == 0;
}

static void check_new(const plugin_command *command, struct argp_state *state) {
    if (!command->second)
        argp_error(state, "new what? Give a kind (device, transport, layer, solver, "
                          "data) and a name");
    else if (command->json)
        argp_error(state, "--json goes with list and inspect");
}

static void check_arguments(const plugin_command *command, struct argp_state *state) {
    if (!command->action)
        argp_error(state, "what to do? Say list; inspect and a name; check and a file; "
                          "or new, a kind and a name");
    else if (is_action(command, "new"))
        check_new(command, state);
    else if (command->folder)
        argp_error(state, "--dir goes with new");
    else if (command->rescan && !is_action(command, "list"))
        argp_error(state, "--rescan goes with list");
    else if ((command->sets || command->only) && !is_action(command, "check"))
        argp_error(state, "--set and --only go with check");
    else if (is_action(command, "check") && !command->name)
        argp_error(state, "check which? Give a file");
    else if (is_action(command, "list") && command->name)
        argp_error(state, "list takes no name; did you mean inspect?");
    else if (is_action(command, "inspect") && !command->name)
        argp_error(state, "inspect which? Give the name of a plugin or of what it "
                          "offers, or a file");
    else if (!is_action(command, "list") && !is_action(command, "inspect") &&
             !is_action(command, "check"))
        argp_error(state, "there is no '%s', only list, inspect, check and new",
                   command->action);
    else if (command->second)
        argp_error(state, "'%s' is one argument too many", command->second);
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    plugin_command *command = state->input;
    switch (key) {
    case KEY_JSON:
        command->json = 1;
        return 0;
    case KEY_RESCAN:
        command->rescan = 1;
        return 0;
    case KEY_DIR:
        command->folder = argument;
        return 0;
    case KEY_ONLY:
        command->only = argument;
        return 0;
    case KEY_SET:
        if (command->sets == SETS_MOST)
            argp_error(state, "more than %d times --set", SETS_MOST);
        else
            command->set[command->sets++] = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (!command->action)
            command->action = argument;
        else if (!command->name)
            command->name = argument;
        else if (!command->second)
            command->second = argument;
        else
            argp_error(state, "'%s' is one argument too many", argument);
        return 0;
    case ARGP_KEY_END:
        check_arguments(command, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"json", KEY_JSON, NULL, 0,
     "list, inspect, check: print one JSON document on stdout", 0},
    {"rescan", KEY_RESCAN, NULL, 0,
     "list: inspect every file anew, also those that are remembered", 0},
    {"set", KEY_SET, "KEY=VALUE", 0, "check: a setting of what the file offers", 0},
    {"only", KEY_ONLY, "NAME", 0, "check: checks whose name begins so", 0},
    {"dir", KEY_DIR, "DIR", 0, "new: the folder to make (default: ./KIND-NAME)", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list\ninspect NAME|FILE.so\ncheck FILE.so\nnew KIND NAME",
    .doc =
        "Lists all plugins that were found, with the reason for each that cannot be "
        "used; shows everything about one: its file, its features, their options; "
        "checks whether a file keeps the promises of the SDK's headers, each check in a "
        "process of its own; or "
        "makes a folder that builds, tests and packages a new one. Kinds: device, "
        "transport, layer, solver, data."
        "\vPlugins are looked for beside libdlcore, in dlcore/1, then in each folder "
        "of DLCORE_PLUGIN_PATH. They are inspected in a process of their own: one that "
        "crashes there, or does not come back, is left out. What is found is remembered "
        "in ~/.cache/dlcore until the file changes. Inspecting a FILE calls none of its "
        "functions."};

/* ---- list ---------------------------------------------------------------------- */

/* A refused name may be anything: keep it off the terminal's controls. */
static const char *printable(const char *name, char *text, size_t bytes) {
    size_t i = 0;
    for (; i + 1 < bytes && name[i]; i++)
        text[i] = (char)((unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?'
                                                                          : name[i]);
    text[i] = '\0';
    return text;
}

static void print_row(const char *kind, const char *name, const char *device,
                      const dlc_plugin_entry *plugin, dlc_entry_state state,
                      const char *reason) {
    char clean[64], clean_device[64];
    printf("%-10s %-18s %-8s %-14s %-8s %s%s%s\n", kind,
           printable(name, clean, sizeof clean),
           printable(device, clean_device, sizeof clean_device), plugin->name,
           plugin->version ? plugin->version : "-", dlc_entry_state_text(state),
           reason ? ": " : "", reason ? reason : "");
}

static void print_feature(const dlc_feature_entry *entry) {
    print_row(dlc_kind_text((dlc_kind)entry->kind), entry->name,
              entry->device ? entry->device : "any", entry->plugin, entry->state,
              entry->reason);
}

static int is_known_kind(const dlc_feature_entry *feature) {
    return feature->kind >= DLC_KIND_DEVICE && feature->kind <= DLC_KIND_DATA;
}

static void print_list(const dlc_registry *registry) {
    const dlc_feature_entry *entry;
    const dlc_plugin_entry *plugin;
    printf("%-10s %-18s %-8s %-14s %-8s %s\n", "KIND", "NAME", "DEVICE", "PLUGIN",
           "VERSION", "STATE");
    for (int kind = DLC_KIND_DEVICE; kind <= DLC_KIND_DATA; kind++)
        for (size_t i = 0; (entry = dlc_registry_feature(registry, kind, i)); i++)
            print_feature(entry);
    for (size_t i = 0; (entry = dlc_registry_feature(registry, 0, i)); i++)
        if (!is_known_kind(entry))
            print_feature(entry);
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++)
        if (!plugin->features)
            print_row("-", "-", "-", plugin, plugin->state, plugin->reason);
}

static void warn_of_folders(const dlc_registry *registry) {
    const dlc_folder_entry *folder;
    for (size_t i = 0; (folder = dlc_registry_folder(registry, i)); i++)
        if (folder->reason)
            dlc_warn("%s", folder->reason);
}

static dlc_status list(const plugin_command *command) {
    dlc_registry *registry;
    DLC_TRY(command->rescan ? dlc_registry_rescan(&registry)
                            : dlc_registry_open(&registry));
    dlc_status rc = DLC_OK;
    if (command->json) {
        dlc_json json = {0};
        dlc_json_object(&json, NULL);
        dlc_json_folders(&json, registry);
        dlc_json_plugins(&json, registry);
        dlc_json_end_object(&json);
        rc = dlc_tool_print_json(&json);
    } else {
        warn_of_folders(registry);
        print_list(registry);
    }
    dlc_registry_close(registry);
    return rc;
}

/* ---- inspect ----------------------------------------------------------------- */

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

/* The file has been inspected where it does no harm: for its options it is opened here.
 */
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

static dlc_status print_whole_feature(const dlc_registry *registry,
                                      const dlc_feature_entry *entry) {
    char clean[64];
    dlc_text words = {0};
    dlc_caps_text(entry, &words);
    printf("\n%s %s: %s\n", dlc_kind_text((dlc_kind)entry->kind),
           printable(entry->name, clean, sizeof clean),
           entry->help ? entry->help : "-");
    printf("  device        %s\n", entry->device ? entry->device : "any");
    printf("  capabilities  %s\n", dlc_text_string(&words));
    printf("  state         %s%s%s\n", dlc_entry_state_text(entry->state),
           entry->reason ? ": " : "", entry->reason ? entry->reason : "");
    dlc_text_free(&words);
    if (entry->state == DLC_ENTRY_REFUSED || entry->state == DLC_ENTRY_IGNORED)
        return DLC_OK; /* its options may be what is wrong with it */
    return print_options_of(registry, entry);
}

static dlc_status print_plugin(const dlc_registry *registry,
                               const dlc_plugin_entry *plugin) {
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
        DLC_TRY(print_whole_feature(registry, &plugin->feature[i]));
    return DLC_OK;
}

static int offers(const dlc_plugin_entry *plugin, const char *name) {
    for (size_t i = 0; i < plugin->features; i++)
        if (!strcmp(plugin->feature[i].name, name))
            return 1;
    return 0;
}

/* Plugins of that name; if there is none, those that offer something of that name. */
static int is_wanted(const dlc_plugin_entry *plugin, const char *name, int by_feature) {
    return by_feature ? offers(plugin, name) : !strcmp(plugin->name, name);
}

static dlc_status fail_unknown(const dlc_registry *registry, const char *name) {
    const dlc_plugin_entry *plugin;
    size_t count = 0;
    while (dlc_registry_plugin(registry, count))
        count++;
    const char **names = dlc_alloc(count, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++)
        names[i] = plugin->name;
    const char *nearest = dlc_nearest(name, names, count);
    dlc_status rc = dlc_fail(
        DLC_ERR_PLUGIN,
        "there is no plugin \"%s\" and none that offers it%s%s%s; see dlcore "
        "plugin list",
        name, nearest ? "; did you mean \"" : "", nearest ? nearest : "",
        nearest ? "\"?" : "");
    dlc_free(names);
    return rc;
}

/* Shows all plugins that are meant; the first that is refused gives the status. */
static dlc_status show(const dlc_registry *registry, const plugin_command *command,
                       const char *name, int by_feature) {
    const dlc_plugin_entry *plugin;
    dlc_json json = {0};
    dlc_status rc = DLC_OK;
    const char *refused = NULL;
    dlc_json_object(&json, NULL);
    dlc_json_array(&json, "plugins");
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++) {
        if (name && !is_wanted(plugin, name, by_feature))
            continue;
        if (plugin->state == DLC_ENTRY_REFUSED && !refused)
            refused = plugin->reason;
        if (command->json)
            dlc_json_plugin(&json, registry, plugin);
        else if ((rc = print_plugin(registry, plugin)) != DLC_OK)
            break;
    }
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    if (command->json)
        rc = dlc_tool_print_json(&json);
    else
        dlc_text_free(&json.text);
    if (rc == DLC_OK && refused)
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s", refused);
    return rc;
}

static dlc_status inspect_name(const plugin_command *command) {
    const dlc_plugin_entry *plugin;
    dlc_registry *registry;
    int named = 0, offered = 0;
    DLC_TRY(dlc_registry_open(&registry));
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++) {
        named |= is_wanted(plugin, command->name, 0);
        offered |= is_wanted(plugin, command->name, 1);
    }
    dlc_status rc = named || offered ? show(registry, command, command->name, !named)
                                     : fail_unknown(registry, command->name);
    dlc_registry_close(registry);
    return rc;
}

static dlc_status inspect(const plugin_command *command) {
    size_t length = strlen(command->name);
    if (!strchr(command->name, '/') &&
        (length < 3 || strcmp(command->name + length - 3, ".so") != 0))
        return inspect_name(command);
    dlc_registry *registry;
    DLC_TRY(dlc_registry_inspect(command->name, &registry));
    dlc_status rc = show(registry, command, NULL, 0);
    dlc_registry_close(registry);
    return rc;
}

static dlc_status check(const plugin_command *command) {
    plugin_check what = {.file = command->name,
                         .sets = command->set,
                         .nsets = command->sets,
                         .only = command->only,
                         .json = command->json};
    return dlc_plugin_check_file(&what);
}

static dlc_status run(const plugin_command *command) {
    if (is_action(command, "check"))
        return check(command);
    if (is_action(command, "new"))
        return dlc_plugin_new(command->name, command->second, command->folder);
    return is_action(command, "list") ? list(command) : inspect(command);
}

int dlc_command_plugin(int argc, char **argv) {
    plugin_command command = {0};
    dlc_tool_parse(&argp, argc, argv, &command);
    return dlc_tool_end(run(&command));
}
