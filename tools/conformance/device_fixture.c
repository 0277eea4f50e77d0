/* Implements the device fixture: finds a device in the registry and opens it with
 * default settings and one thread. */
#include "device_fixture.h"

#include <string.h>

#include "base/random.h"
#include "plugin/registry.h"

/* All fixtures of a check use one device, and looking for it takes a while. */
static const dlc_feature *find_device(suite_run *run) {
    static const dlc_feature *feature;
    dlc_registry *registry = NULL;
    const dlc_feature_entry *entry;
    const char *wanted = run->feature->device;
    if (feature)
        return feature;
    suite_must(run, dlc_registry_open(&registry), "looking for a device");
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++)
        if ((entry->caps & DLC_DEVICE_HOST) &&
            (!wanted || strcmp(entry->name, wanted) == 0) &&
            dlc_registry_use(registry, entry, &feature) == DLC_OK)
            break;
    dlc_registry_close(registry); /* the feature is constant data of the plugin */
    if (feature)
        return feature;
    suite_skip(run, "there is no device%s%s here whose memory the CPU can read",
               wanted ? " " : "", wanted ? wanted : "");
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
    device->name = feature->name;
    device->ops = feature->ops;
    suite_must(run, device->ops->open(&args, &device->handle), "opening the device");
}

void device_fixture_close(device_fixture *device) {
    if (device->ops)
        device->ops->close(device->handle);
    *device = (device_fixture){.ops = NULL};
}

float *device_fixture_floats(suite_run *run, const device_fixture *device,
                             size_t count) {
    dlc_memory memory = {.size = sizeof memory};
    suite_must(run,
               device->ops->alloc(device->handle, count * sizeof(float), 0, &memory),
               "the device's alloc");
    return memory.base;
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
