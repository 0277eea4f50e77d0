/* dlcore doctor: shows what works on this machine, what does not, and why. */
#include <stdio.h>
#include <string.h>

#include <dlcore/device.h>

#include "base/log.h"
#include "command.h"
#include "doctor_transports.h"
#include "machine.h"
#include "options.h"
#include "plugin/answers.h"
#include "plugin/child.h"
#include "plugin/device_objects.h"
#include "plugin_json.h"
#include "streams.h"

enum { KEY_JSON = 0x100 };

static error_t parse(int key, char *argument, struct argp_state *state) {
    (void)argument;
    if (key == ARGP_KEY_ARG)
        argp_error(state, "doctor takes no arguments: '%s'", argument);
    if (key != KEY_JSON)
        return ARGP_ERR_UNKNOWN;
    *(int *)state->input = 1;
    return 0;
}

static const struct argp_option options[] = {
    {"json", KEY_JSON, NULL, 0, "print one JSON document on stdout", 0}, {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc =
        "Shows what works on this machine, what does not, and why."
        "\vThe exit code is 0 if a net can be trained here: a device, a transport, layers, a "
        "solver and a data source are usable; otherwise it is 3."};

/* ---- Devices ----------------------------------------------------------------- */

/* Loads the usable devices; those that cannot be loaded no longer are. */
static dlc_status load_devices(const dlc_registry *registry) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++)
        if (entry->state == DLC_ENTRY_USABLE &&
            dlc_registry_use(registry, entry, &feature) == DLC_ERR_NOMEM)
            return DLC_ERR_NOMEM;
    return DLC_OK;
}

/* The next usable device from *at on, which is loaded; moves *at past it. */
static const dlc_feature *next_device(const dlc_registry *registry, size_t *at) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    while (!feature &&
           (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, (*at)++)))
        if (entry->state == DLC_ENTRY_USABLE)
            (void)dlc_registry_use(registry, entry, &feature);
    return feature;
}

/* Describes all devices of a feature, for a probe. */
static dlc_status describe_all(void *context) {
    const dlc_feature *feature = context;
    dlc_device_info info;
    int32_t count = 0;
    DLC_TRY(dlc_answer_devices(feature, &count));
    for (int32_t i = 0; i < count; i++)
        (void)dlc_device_describe(feature->ops, i, &info);
    return DLC_OK;
}

/* Drivers may take long to start. */
#define DESCRIBE_SECONDS 60.0

/* Counts the devices of a feature. Otherwise the detail sentence says what is wrong. */
static dlc_status count_devices(const dlc_feature *feature, int32_t *count) {
    int32_t found = 0;
    DLC_TRY(dlc_answer_devices(feature, &found));
    if (found < 1)
        return dlc_fail(DLC_ERR_UNAVAILABLE, "there is none");
    dlc_feature copy = *feature;
    DLC_TRY(dlc_probe("describe()", DESCRIBE_SECONDS, describe_all, &copy));
    *count = found;
    return DLC_OK;
}

/* What was found, collected before anything is printed. */
typedef struct findings {
    const dlc_registry *registry;
    int32_t devices;
    doctor_transports transports;
} findings;

static dlc_status find_out(const dlc_registry *registry, findings *found) {
    const dlc_feature *feature;
    *found = (findings){.registry = registry};
    DLC_TRY(load_devices(registry));
    for (size_t i = 0; (feature = next_device(registry, &i));) {
        int32_t count = 0;
        dlc_status status = count_devices(feature, &count);
        if (status == DLC_ERR_NOMEM)
            return status;
        if (status != DLC_OK)
            continue;
        found->devices += count;
        DLC_TRY(doctor_transports_ask(&found->transports, registry, feature, count));
    }
    return DLC_OK;
}

static void print_device(const char *name, int32_t index, const dlc_device_info *info) {
    printf("  ok  %s %d: %s, %.1f GB, %d compute units", name, index, info->name,
           (double)info->memory_bytes / 1e9, info->compute_units);
    if (info->address[0])
        printf(", at %s", info->address);
    if (info->numa >= 0)
        printf(", NUMA node %d", info->numa);
    if (info->software[0])
        printf(" (%s)", info->software);
    putchar('\n');
}

static void print_devices(const dlc_registry *registry) {
    const dlc_feature *feature;
    dlc_device_info info;
    for (size_t i = 0; (feature = next_device(registry, &i));) {
        int32_t count = 0;
        if (count_devices(feature, &count) != DLC_OK)
            printf("  --  %s: %s\n", feature->name, dlc_detail());
        for (int32_t d = 0; d < count; d++) {
            if (dlc_device_describe(feature->ops, d, &info) == DLC_OK)
                print_device(feature->name, d, &info);
            else
                printf("  !!  %s %d: %s\n", feature->name, d, dlc_detail());
        }
    }
}

static void json_device(dlc_json *json, const dlc_feature *feature, int32_t index) {
    dlc_device_info info;
    dlc_status rc = dlc_device_describe(feature->ops, index, &info);
    dlc_json_object(json, NULL);
    dlc_json_string(json, "device", feature->name);
    dlc_json_int(json, "index", index);
    dlc_json_string(json, "problem", rc == DLC_OK ? NULL : dlc_detail());
    if (rc == DLC_OK) {
        dlc_json_string(json, "name", info.name);
        dlc_json_int(json, "memory", (int64_t)info.memory_bytes);
        dlc_json_int(json, "compute_units", info.compute_units);
        dlc_json_string(json, "address", info.address);
        dlc_json_string(json, "software", info.software);
        dlc_json_int(json, "numa", info.numa);
    }
    dlc_json_end_object(json);
}

static void json_devices(dlc_json *json, const dlc_registry *registry) {
    const dlc_feature *feature;
    dlc_json_array(json, "devices");
    for (size_t i = 0; (feature = next_device(registry, &i));) {
        int32_t count = 0;
        if (count_devices(feature, &count) == DLC_OK)
            for (int32_t d = 0; d < count; d++)
                json_device(json, feature, d);
    }
    dlc_json_end_array(json);
}

/* ---- Plugins ----------------------------------------------------------------- */

static const char *mark(dlc_entry_state state) {
    if (state == DLC_ENTRY_USABLE)
        return "ok";
    return state == DLC_ENTRY_REFUSED ? "!!" : "--";
}

static void print_folders(const dlc_registry *registry) {
    const dlc_folder_entry *folder;
    for (size_t i = 0; (folder = dlc_registry_folder(registry, i)); i++)
        if (folder->reason)
            printf("  --  %s\n", folder->reason);
        else
            printf("  ok  %s\n", folder->path);
}

/* Why a usable feature is of no use here; NULL: it works. */
static const char *idle_feature(const findings *found, const dlc_feature_entry *entry) {
    return entry->kind == DLC_KIND_TRANSPORT && entry->state == DLC_ENTRY_USABLE
               ? doctor_transports_problem(&found->transports, entry->name)
               : NULL;
}

/* Why a usable plugin is of no use here; NULL: some of its features work. */
static const char *idle_plugin(const findings *found, const dlc_plugin_entry *plugin) {
    const char *reason = NULL;
    for (size_t f = 0; plugin->state == DLC_ENTRY_USABLE && f < plugin->features; f++)
        if (!(reason = idle_feature(found, &plugin->feature[f])))
            return NULL;
    return reason;
}

static void print_feature(const findings *found, const dlc_feature_entry *entry) {
    const char *reason = idle_feature(found, entry);
    if (entry->state != DLC_ENTRY_USABLE)
        printf("      %s  %s %s is %s: %s\n", mark(entry->state),
               dlc_kind_text((dlc_kind)entry->kind), entry->name,
               dlc_entry_state_text(entry->state), entry->reason);
    else if (reason)
        printf("      --  transport %s cannot connect ranks here: %s\n", entry->name,
               reason);
}

static void print_plugins(const findings *found) {
    const dlc_plugin_entry *plugin;
    for (size_t i = 0; (plugin = dlc_registry_plugin(found->registry, i)); i++) {
        const char *idle = idle_plugin(found, plugin);
        printf("  %s  %s", idle ? "--" : mark(plugin->state), plugin->name);
        if (plugin->version)
            printf(" %s", plugin->version);
        if (plugin->reason)
            printf(" is %s: %s", dlc_entry_state_text(plugin->state), plugin->reason);
        if (idle)
            printf(" cannot connect ranks here: %s", idle);
        putchar('\n');
        for (size_t f = 0; !idle && f < plugin->features; f++)
            if (plugin->state == DLC_ENTRY_USABLE)
                print_feature(found, &plugin->feature[f]);
    }
}

/* ---- The verdict ------------------------------------------------------------- */

/* The next feature of a kind that works here, from *at on. */
static const dlc_feature_entry *next_working(const findings *found, dlc_kind kind,
                                             size_t *at) {
    const dlc_feature_entry *entry;
    while ((entry = dlc_registry_usable(found->registry, kind, (*at)++)))
        if (kind != DLC_KIND_TRANSPORT ||
            !doctor_transports_problem(&found->transports, entry->name))
            break;
    return entry;
}

static size_t count_working(const findings *found, dlc_kind kind) {
    size_t count = 0, at = 0;
    while (next_working(found, kind, &at))
        count++;
    return count;
}

/* Prints the names of a kind, as many as fit on a line. */
static void print_names(const findings *found, dlc_kind kind) {
    const dlc_feature_entry *entry;
    size_t i = 0, at = 0, count = count_working(found, kind);
    for (; i < 8 && (entry = next_working(found, kind, &at)); i++)
        printf("%s%s", i ? ", " : "", entry->name);
    if (count > i)
        printf(" and %zu more", count - i);
}

static int is_there(const findings *found, dlc_kind kind) {
    return kind == DLC_KIND_DEVICE ? found->devices > 0
                                   : count_working(found, kind) > 0;
}

static void print_needs(const findings *found) {
    for (int kind = DLC_KIND_DEVICE; kind <= DLC_KIND_DATA; kind++) {
        int there = is_there(found, kind);
        printf("  %s  %-10s ", there ? "ok" : "!!", dlc_kind_text(kind));
        if (there)
            print_names(found, kind);
        else
            printf("none is usable");
        putchar('\n');
    }
}

/* DLC_OK if a net can be trained here; otherwise the detail sentence says what is
 * missing. */
static dlc_status judge(const findings *found) {
    dlc_text missing = {0};
    for (int kind = DLC_KIND_DEVICE; kind <= DLC_KIND_DATA; kind++)
        if (!is_there(found, kind))
            dlc_text_add(&missing, "%s%s", missing.length ? ", " : "",
                         dlc_kind_text(kind));
    dlc_status rc = dlc_text_status(&missing);
    if (rc == DLC_OK && missing.length)
        rc = dlc_fail(
            DLC_ERR_PLUGIN,
            "no net can be trained here; missing: %s. Install the plugins, or "
            "set DLCORE_PLUGIN_PATH to their folder",
            dlc_text_string(&missing));
    dlc_text_free(&missing);
    return rc;
}

static dlc_status print_text(const findings *found) {
    dlc_machine machine;
    DLC_TRY(dlc_machine_read(&machine));
    printf("dlcore %s, plugin interface %d.%d\n\nMachine\n", DLC_VERSION, DLC_ABI_MAJOR,
           DLC_ABI_MINOR);
    dlc_machine_print(&machine);
    printf("\nPlugin folders\n");
    print_folders(found->registry);
    printf("\nPlugins\n");
    print_plugins(found);
    printf("\nDevices\n");
    print_devices(found->registry);
    printf("\nTo train a net\n");
    print_needs(found);
    DLC_TRY(judge(found));
    printf("\nNets can be trained here.\n");
    return DLC_OK;
}

static dlc_status print_json(const findings *found) {
    dlc_machine machine;
    dlc_json json = {0};
    DLC_TRY(dlc_machine_read(&machine));
    dlc_status verdict = judge(found);
    if (verdict == DLC_ERR_NOMEM)
        return verdict;
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "version", DLC_VERSION);
    dlc_json_int(&json, "abi_major", DLC_ABI_MAJOR);
    dlc_json_int(&json, "abi_minor", DLC_ABI_MINOR);
    dlc_machine_json(&machine, &json);
    dlc_json_folders(&json, found->registry);
    dlc_json_plugins(&json, found->registry);
    json_devices(&json, found->registry);
    doctor_transports_json(&found->transports, &json);
    dlc_json_bool(&json, "can_train", verdict == DLC_OK);
    dlc_json_end_object(&json);
    DLC_TRY(dlc_tool_print_json(&json));
    return verdict == DLC_OK ? DLC_OK : judge(found); /* for its sentence */
}

int dlc_command_doctor(int argc, char **argv) {
    int json = 0;
    dlc_registry *registry = NULL;
    findings found = {0};
    dlc_tool_parse(&argp, argc, argv, &json);
    dlc_status rc = json ? dlc_tool_reserve_stdout() : DLC_OK;
    if (rc == DLC_OK)
        rc = dlc_registry_rescan(&registry);
    if (rc == DLC_OK)
        rc = find_out(registry, &found);
    if (rc == DLC_OK)
        rc = json ? print_json(&found) : print_text(&found);
    doctor_transports_free(&found.transports);
    dlc_registry_close(registry);
    return dlc_tool_end(rc);
}
