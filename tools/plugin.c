/* dlcore plugin: lists plugins, inspects one, checks one against the SDK, or creates a
 * new one. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "command.h"
#include "conformance/report.h"
#include "options.h"
#include "plugin_inspect.h"
#include "plugin_json.h"
#include "plugin_new.h"
#include "streams.h"

enum {
    KEY_JSON = 0x100,
    KEY_DIR,
    KEY_SET,
    KEY_ONLY,
    KEY_INPUTS,
    KEY_RESCAN,
    KEY_DEVICE,
    KEY_ALL,
    KEY_VERBOSE = 'v'
};

enum { SETS_MOST = 32 };

typedef struct plugin_command {
    const char *action; /* "list", "inspect", "check", "new" */
    const char *name;   /* inspect: of a plugin, a feature or a file; new: the kind */
    const char *second; /* new: the name */
    const char *folder; /* new */
    const char *only;   /* check */
    const char *device; /* inspect */
    const char *set[SETS_MOST]; /* check */
    size_t sets;
    const char *inputs[SETS_MOST]; /* check */
    size_t ninputs;
    int json, rescan, all, verbose;
} plugin_command;

static int is_action(const plugin_command *command, const char *action) {
    return strcmp(command->action, action) == 0;
}

static void check_new(const plugin_command *command, struct argp_state *state) {
    if (!command->second)
        argp_error(
            state,
            "new needs a kind (device, transport, layer, solver, consistency, data, decoder) "
            "and a name");
    else if (command->json)
        argp_error(state, "--json goes with list, inspect and check");
}

static void check_arguments(const plugin_command *command, struct argp_state *state) {
    if (!command->action)
        argp_error(state, "missing action: list, inspect NAME, check FILE or new KIND "
                          "NAME");
    else if (is_action(command, "new"))
        check_new(command, state);
    else if (command->folder)
        argp_error(state, "--dir goes with new");
    else if (command->rescan && !is_action(command, "list"))
        argp_error(state, "--rescan goes with list");
    else if (command->verbose && !is_action(command, "check"))
        argp_error(state, "-v goes with check");
    else if ((command->sets || command->ninputs || command->only) &&
             !is_action(command, "check"))
        argp_error(state, "--set, --inputs and --only go with check");
    else if ((command->device || command->all) && !is_action(command, "inspect"))
        argp_error(state, "--device and --all go with inspect");
    else if (command->device && command->all)
        argp_error(state, "--all means every device; leave out --device or --all");
    else if (is_action(command, "check") && !command->name)
        argp_error(state, "check needs a file");
    else if (is_action(command, "list") && command->name)
        argp_error(state, "list takes no name; did you mean inspect?");
    else if (is_action(command, "inspect") && !command->name && !command->all)
        argp_error(state,
                   "inspect needs the name of a plugin, a feature or a section of "
                   "net.ini, or a file; or --all");
    else if (!is_action(command, "list") && !is_action(command, "inspect") &&
             !is_action(command, "check"))
        argp_error(state,
                   "unknown action '%s'; the actions are list, inspect, check and new",
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
    case KEY_DEVICE:
        command->device = argument;
        return 0;
    case KEY_ALL:
        command->all = 1;
        return 0;
    case KEY_VERBOSE:
        command->verbose = 1;
        return 0;
    case KEY_DIR:
        command->folder = argument;
        return 0;
    case KEY_ONLY:
        command->only = argument;
        return 0;
    case KEY_SET:
        if (command->sets == SETS_MOST)
            argp_error(state, "--set is given more than %d times", SETS_MOST);
        else
            command->set[command->sets++] = argument;
        return 0;
    case KEY_INPUTS:
        if (command->ninputs == SETS_MOST)
            argp_error(state, "--inputs is given more than %d times", SETS_MOST);
        else
            command->inputs[command->ninputs++] = argument;
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
     "list: inspect every file again, and ignore the cache", 0},
    {"device", KEY_DEVICE, "NAME", 0,
     "inspect: only what works on this device (default: the one dlcore train uses)", 0},
    {"all", KEY_ALL, NULL, 0, "inspect: for all devices; without a name, everything",
     0},
    {"set", KEY_SET, "KEY=VALUE", 0, "check: a setting of the file's feature", 0},
    {"inputs", KEY_INPUTS, "SHAPES", 0,
     "check: inputs to try layers with, beside the usual ones, as in "
     "4x3x8x8,4x8:int32",
     0},
    {"only", KEY_ONLY, "NAME", 0, "check: only checks whose name starts with NAME", 0},
    {"verbose", KEY_VERBOSE, NULL, 0, "check: show what the plugin logs", 0},
    {"dir", KEY_DIR, "DIR", 0, "new: the folder to make (default: ./KIND-NAME)", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list\ninspect NAME|FILE.so|SECTION\ncheck FILE.so\nnew KIND NAME",
    .doc =
        "list shows all plugins that were found, with the reason if one cannot be used. "
        "inspect shows a plugin's file, its features and their options, or the keys "
        "that dlcore itself reads from a section of net.ini (net, data, data.test, "
        "solver, consistency, train, parallel, transport, layer, block, transforms; "
        "sections: all of them). check tests a file against the SDK's headers, each check in a process of its own. "
        "new makes a folder that builds, tests and packages a new plugin. Kinds: "
        "device, transport, layer, solver, consistency, data, decoder."
        "\vdlcore looks for plugins beside libdlcore, in dlcore/0, then in each folder "
        "of DLCORE_PLUGIN_PATH. They are inspected in a process of their own: one that "
        "crashes or hangs there is left out. The result is cached in ~/.cache/dlcore "
        "until the file changes, or for an hour where something else may be to blame. "
        "Inspecting a FILE calls none of its functions."};

/* ---- list ---------------------------------------------------------------------- */

/* `why`: what a usable feature does, or why it cannot be used. */
static void print_row(const char *kind, const char *name, const char *device,
                      const dlc_plugin_entry *plugin, dlc_entry_state state,
                      const char *why) {
    char clean[64], clean_device[64], clean_why[1024];
    printf("%-11s %-26s %-8s %-14s %-8s %s%s%s\n", kind,
           dlc_plugin_printable(name, clean, sizeof clean),
           dlc_plugin_printable(device, clean_device, sizeof clean_device),
           plugin->name, plugin->version ? plugin->version : "-",
           dlc_entry_state_text(state), why && *why ? ": " : "",
           dlc_plugin_printable(why ? why : "", clean_why, sizeof clean_why));
}

static void print_feature(const dlc_feature_entry *entry) {
    print_row(dlc_kind_text((dlc_kind)entry->kind), entry->name,
              entry->device ? entry->device : "any", entry->plugin, entry->state,
              entry->reason ? entry->reason : entry->help);
}

static int is_known_kind(const dlc_feature_entry *feature) {
    return feature->kind >= DLC_KIND_DEVICE && feature->kind <= DLC_KIND_LAST;
}

static void print_list(const dlc_registry *registry) {
    const dlc_feature_entry *entry;
    const dlc_plugin_entry *plugin;
    printf("%-11s %-26s %-8s %-14s %-8s %s\n", "KIND", "NAME", "DEVICE", "PLUGIN",
           "VERSION", "STATE");
    for (int kind = DLC_KIND_DEVICE; kind <= DLC_KIND_LAST; kind++)
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

static dlc_status check(const plugin_command *command) {
    plugin_check what = {.file = command->name,
                         .sets = command->set,
                         .nsets = command->sets,
                         .inputs = command->inputs,
                         .ninputs = command->ninputs,
                         .only = command->only,
                         .verbose = command->verbose,
                         .json = command->json};
    return dlc_plugin_check_file(&what);
}

static dlc_status inspect(const plugin_command *command) {
    plugin_inspection what = {.name = command->name,
                              .device = command->device,
                              .all = command->all,
                              .json = command->json};
    return dlc_plugin_inspect(&what);
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
    dlc_status status = command.json ? dlc_tool_reserve_stdout() : DLC_OK;
    return dlc_tool_end(status == DLC_OK ? run(&command) : status);
}
