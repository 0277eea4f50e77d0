/* Implements the device fixture: finds a device in the registry and opens it with
 * default settings and one thread. */
#include "device_fixture.h"

#include <string.h>

#include "base/random.h"
#include "guard.h"
#include "plugin/registry.h"

/* The CPU reads and writes its memory; layers are checked without that, too. */
static int is_usable(const suite_run *run, const char *name, uint64_t caps) {
    const char *wanted = run->feature->device;
    if (!(caps & DLC_DEVICE_HOST) && (run->feature->kind != DLC_KIND_LAYER || !wanted))
        return 0;
    return !wanted || strcmp(name, wanted) == 0;
}

/* A plugin may bring the device of its layers, and need not be in a folder that is
 * searched. */
static const dlc_feature *find_own(const suite_run *run) {
    const dlc_feature *own = NULL;
    while ((own = suite_accepted(run, own)) &&
           !(own->kind == DLC_KIND_DEVICE && run->feature->device &&
             is_usable(run, own->name, own->caps)))
        continue;
    return own;
}

/* All fixtures of a check use one device, and looking for it takes a while. */
static const dlc_feature *find_device(suite_run *run) {
    static const dlc_feature *feature;
    dlc_registry *registry = NULL;
    const dlc_feature_entry *entry;
    const char *wanted = run->feature->device;
    if (!feature)
        feature = find_own(run);
    if (feature)
        return feature;
    suite_must(run, dlc_registry_open(&registry), "looking for a device");
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++)
        if (is_usable(run, entry->name, entry->caps) &&
            dlc_registry_use(registry, entry, &feature) == DLC_OK)
            break;
    dlc_registry_close(registry); /* the feature is constant data of the plugin */
    if (feature)
        return feature;
    if (wanted)
        suite_skip(run,
                   "there is no device %s here that can be used for this check; "
                   "add the folder of its plugin to DLCORE_PLUGIN_PATH",
                   wanted);
    suite_skip(run, "there is no device here whose memory the CPU can read");
}

static void skip_without_device(suite_run *run, const dlc_feature *feature) {
    const dlc_device_ops *ops = feature->ops;
    int32_t count = 0;
    suite_must(run, ops->count(&count), "the device's count");
    if (count < 1)
        suite_skip(run, "this machine has no device %s", feature->name);
}

void device_fixture_open(suite_run *run, device_fixture *device) {
    const dlc_feature *feature = find_device(run);
    const dlc_option *tables[] = {feature->options};
    dlc_problems problems = {0};
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    dlc_settings *settings = NULL;
    suite_must(run, dlc_settings_make(NULL, "train", tables, 1, &problems, &settings),
               "the device's settings");
    args.settings = settings;
    skip_without_device(run, feature);
    device->name = feature->name;
    device->ops = feature->ops;
    device->is_host = (feature->caps & DLC_DEVICE_HOST) != 0;
    suite_must(run, device->ops->open(&args, &device->handle), "opening the device");
    if (device->ops->queues)
        suite_must(run, device->ops->queues->queue_open(device->handle, &device->queue),
                   "the device's queue_open");
}

void device_fixture_close(device_fixture *device) {
    guard_drop(device->handle);
    if (device->queue)
        device->ops->queues->queue_close(device->handle, device->queue);
    if (device->ops)
        device->ops->close(device->handle);
    *device = (device_fixture){.ops = NULL};
}

void device_fixture_sync(suite_run *run, const device_fixture *device,
                         const char *call) {
    if (device->queue)
        suite_must(run, device->ops->queues->queue_sync(device->handle, device->queue),
                   call);
}

void *device_fixture_bytes(suite_run *run, const device_fixture *device, size_t bytes,
                           const char *what) {
    dlc_memory memory = {.size = sizeof memory};
    size_t room = device->is_host ? bytes + 2 * (size_t)GUARD_BYTES : bytes;
    suite_must(run, device->ops->alloc(device->handle, room, 0, &memory),
               "the device's alloc");
    return device->is_host ? guard_place(run, device->handle, memory.base, bytes, what)
                           : memory.base;
}

float *device_fixture_floats(suite_run *run, const device_fixture *device,
                             size_t count) {
    return device_fixture_bytes(run, device, count * sizeof(float), "memory");
}

void *device_fixture_copy_of(suite_run *run, const device_fixture *device,
                             const void *from, size_t bytes) {
    void *made = device_fixture_bytes(run, device, bytes, "memory");
    suite_must(run, device->ops->copy(device->handle, NULL, made, from, bytes),
               "the device's copy");
    return made;
}

uint32_t suite_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

int suite_same(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (suite_bits(a[i]) != suite_bits(b[i]))
            return 0;
    return 1;
}

void suite_random(float *x, size_t count, uint64_t seed) {
    dlc_random random = dlc_random_make(seed, 0);
    for (size_t i = 0; i < count; i++)
        x[i] = 2.0f * (float)dlc_random_uniform(&random) - 1.0f;
}
