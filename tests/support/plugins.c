/* Finds the plugins of this build for tests, through one registry that is kept open. */
#include "support/plugins.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"

static dlc_registry *registry;

__attribute__((noreturn)) static void fail_test(const char *what) {
    fprintf(stderr, "%s: %s\n", what, dlc_detail());
    exit(1);
}

dlc_registry *plugins_registry(void) {
    if (!registry && dlc_registry_open(&registry) != DLC_OK)
        fail_test("the registry");
    return registry;
}

void plugins_open(void) {
    (void)plugins_registry();
}

const dlc_feature *plugin_find(dlc_kind kind, const char *name) {
    const dlc_feature *feature = NULL;
    if (dlc_registry_find(plugins_registry(), kind, name, NULL, &feature) != DLC_OK)
        fail_test(name);
    return feature;
}

const dlc_feature *plugin_at(dlc_kind kind, size_t i) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    /* A feature that turns out to be unusable is skipped from then on. */
    while (!feature && (entry = dlc_registry_usable(plugins_registry(), kind, i)))
        (void)dlc_registry_use(registry, entry, &feature);
    return feature;
}

void plugins_close(void) {
    dlc_registry_close(registry);
    registry = NULL;
}

dlc_settings *plugin_settings(const dlc_feature *feature, const char *const *sets) {
    static const char *const reserved[] = {"feature", NULL};
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *settings = NULL;
    char *texts[16];
    size_t count = 0;

    for (; sets && sets[count] && count < 16; count++)
        texts[count] = dlc_format("feature.%s", sets[count]);
    if (dlc_config_load(NULL, reserved, (const char *const *)texts, count, &problems,
                        &config) != DLC_OK ||
        dlc_settings_make(config, "feature", &feature->options, 1, &problems,
                          &settings) != DLC_OK ||
        dlc_problems_report(&problems) != DLC_OK)
        fail_test(feature->name);
    dlc_problems_free(&problems);
    dlc_config_free(config);
    for (size_t i = 0; i < count; i++)
        dlc_free(texts[i]);
    return settings;
}
