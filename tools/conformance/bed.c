/* See bed.h. */
#include "bed.h"

#include <string.h>

#include "base/random.h"
#include "plugin/registry.h"

static const dlc_feature *find_device(suite_run *run) {
    dlc_registry *registry = NULL;
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    const char *wanted = run->feature->device;
    suite_must(run, dlc_registry_open(&registry), "looking for a device");
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++)
        if ((entry->caps & DLC_DEVICE_HOST) &&
            (!wanted || strcmp(entry->name, wanted) == 0) &&
            dlc_registry_use(registry, entry, &feature) == DLC_OK)
            break;
    dlc_registry_close(registry); /* it owns nothing of the feature */
    if (feature)
        return feature;
    suite_skip(run, "there is no device %s here whose memory the processor reads",
               wanted ? wanted : "at all");
}

void suite_bed_open(suite_run *run, suite_bed *bed) {
    const dlc_feature *feature = find_device(run);
    const dlc_option *tables[] = {feature->options};
    dlc_problems problems = {0};
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    dlc_settings *settings = NULL;
    suite_must(run, dlc_settings_make(NULL, "run", tables, 1, &problems, &settings),
               "the device's settings");
    args.settings = settings;
    bed->name = feature->name;
    bed->ops = feature->ops;
    suite_must(run, bed->ops->open(&args, &bed->device), "opening the device");
}

void suite_bed_close(suite_bed *bed) {
    if (bed->ops)
        bed->ops->close(bed->device);
    *bed = (suite_bed){.ops = NULL};
}

float *suite_bed_floats(suite_run *run, const suite_bed *bed, size_t count) {
    dlc_memory memory = {.size = sizeof memory};
    suite_must(run, bed->ops->alloc(bed->device, count * sizeof(float), 0, &memory),
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
