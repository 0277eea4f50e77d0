/* Loads the layers' plugin and opens the device that the environment names. */
#include "target.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "plugin/object.h"

/* ---- Plugins -------------------------------------------------------------------- */

/* Not an assertion of Check, since it is also called outside of tests. */
static const dlc_plugin *load(const char *kind, const char *name) {
    const char *build = getenv("DLCORE_BUILD_DIR");
    char path[4096];
    if (strchr(name, '/'))
        (void)snprintf(path, sizeof path, "%s", name);
    else
        (void)snprintf(path, sizeof path, "%s/lib/dlcore/0/%s-%s.so",
                       build ? build : ".", kind, name);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const dlc_plugin *found = object ? dlsym(object, DLC_PLUGIN_SYMBOL) : NULL;
    if (!found) {
        (void)fprintf(stderr, "%s: %s\n", path, dlerror());
        exit(EXIT_FAILURE);
    }
    return found;
}

/* The plugin, or NULL with an error set if it is unusable here. */
static const dlc_plugin *start(const dlc_plugin *plugin) {
    if (plugin->load && plugin->load(dlc_host_services()) != DLC_OK)
        return NULL;
    return plugin;
}

static const char *device_wanted(void) {
    const char *name = getenv("DLCORE_TEST_DEVICE");
    return name && *name ? name : NULL;
}

const char *target_device(void) {
    const char *name = device_wanted();
    return name ? name : "cpu";
}

static const dlc_plugin *layers(void) {
    static const dlc_plugin *plugin;
    const char *name = getenv("DLCORE_TEST_LAYERS");
    if (!plugin && !(name && *name))
        name = strcmp(target_device(), "cuda") == 0 ? "cudnn" : "onednn";
    if (!plugin)
        plugin = load("layers", name);
    return plugin;
}

const dlc_plugin *target_layers(void) {
    static const dlc_plugin *plugin;
    if (!plugin && !(plugin = start(layers()))) {
        (void)fprintf(stderr, "layers of %s: %s\n", layers()->name, dlc_detail());
        exit(EXIT_FAILURE);
    }
    return plugin;
}

int target_layers_are(const char *name) {
    return strcmp(layers()->name, name) == 0;
}

/* The device's feature; NULL for host memory, and if the device is unusable here. */
static const dlc_feature *device_feature(void) {
    static const dlc_plugin *plugin;
    const char *name = device_wanted();
    if (!name || (!plugin && !(plugin = start(load("device", name)))))
        return NULL;
    for (const dlc_feature *f = plugin->features; f->name; f = DLC_NEXT(f))
        if (f->kind == DLC_KIND_DEVICE)
            return f;
    (void)fprintf(stderr, "the plugin %s has no device\n", name);
    exit(EXIT_FAILURE);
}

const char *target_why_not(void) {
    if (!device_wanted())
        return NULL;
    const dlc_feature *feature = device_feature();
    int32_t count = 0;
    if (!feature || ((const dlc_device_ops *)feature->ops)->count(&count) != DLC_OK)
        return dlc_detail();
    return count ? NULL : "there is no such device";
}

dlc_settings *target_settings(const dlc_feature *feature, const char *text) {
    const char *sets[32];
    char *copy = dlc_strdup(text ? text : ""), *rest = copy;
    static const char *const reserved[] = {"layer", NULL};
    size_t count = 0;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            sets[count++] = dlc_format("layer.%s", word);
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *settings = NULL;
    ck_assert_int_eq(dlc_config_load(NULL, reserved, sets, count, &problems, &config),
                     0);
    dlc_status status = dlc_settings_make(config, "layer", &feature->options, 1,
                                          &problems, &settings);
    ck_assert_msg(status == DLC_OK, "%s: %s", feature->name, dlc_detail());
    ck_assert_msg(dlc_problems_report(&problems) == DLC_OK, "settings of %s: %s",
                  feature->name, text);
    dlc_problems_free(&problems);
    dlc_config_free(config);
    for (size_t i = 0; i < count; i++)
        dlc_free((void *)(uintptr_t)sets[i]);
    dlc_free(copy);
    return settings;
}

/* ---- The device ----------------------------------------------------------------- */

static const dlc_device_ops *ops; /* NULL: host memory */
static dlc_device *device;
static dlc_queue *queue;
static dlc_settings *device_settings;

static void close_device(void) {
    if (queue)
        ops->queues->queue_close(device, queue);
    ops->close(device);
    dlc_settings_free(device_settings);
}

/* Opens the device on first use in this process. */
static void open_device(void) {
    if (device || !device_wanted())
        return;
    const dlc_feature *feature = device_feature();
    ck_assert_msg(feature != NULL, "%s", dlc_detail());
    ops = feature->ops;
    device_settings = target_settings(feature, "");
    const dlc_device_args args = {
        .size = sizeof args, .settings = device_settings, .threads = 2};
    ck_assert_msg(ops->open(&args, &device) == DLC_OK, "%s", dlc_detail());
    if (DLC_CAN(ops, queues))
        ck_assert_msg(ops->queues->queue_open(device, &queue) == DLC_OK, "%s",
                      dlc_detail());
    (void)atexit(close_device);
}

int target_is_async(void) {
    return device_wanted() &&
           DLC_CAN((const dlc_device_ops *)device_feature()->ops, queues);
}

void target_family(dlc_family_args *args) {
    open_device();
    args->device_ops = ops;
    args->device = device;
    args->queue = queue;
}

dlc_memory target_alloc(size_t bytes) {
    dlc_memory memory = {.size = sizeof memory, .bytes = bytes};
    open_device();
    if (ops)
        ck_assert_msg(ops->alloc(device, bytes, 0, &memory) == DLC_OK, "%s",
                      dlc_detail());
    else
        ck_assert_ptr_nonnull(memory.base = dlc_alloc(bytes, 1));
    return memory;
}

void target_free(dlc_memory *memory) {
    if (!memory->base)
        return;
    if (ops)
        ops->free(device, memory);
    else
        dlc_free(memory->base);
    memory->base = NULL;
}

void target_copy(void *dst, const void *src, size_t bytes) {
    open_device();
    target_sync();
    if (!ops)
        memcpy(dst, src, bytes);
    else if (ops->copy(device, NULL, dst, src, bytes) != DLC_OK)
        ck_abort_msg("%s", dlc_detail());
}

void target_fill(void *dst, int byte, size_t bytes) {
    open_device();
    target_sync();
    if (!ops)
        memset(dst, byte, bytes);
    else if (ops->fill(device, NULL, dst, byte, bytes) != DLC_OK)
        ck_abort_msg("%s", dlc_detail());
}

void target_sync(void) {
    if (queue && ops->queues->queue_sync(device, queue) != DLC_OK)
        ck_abort_msg("%s", dlc_detail());
}
