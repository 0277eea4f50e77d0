/* Plugins of this build for tests, found through the core's own registry. */
#ifndef TEST_PLUGINS_H
#define TEST_PLUGINS_H

#include <dlcore/device.h>

#include "plugin/registry.h"

/* The registry, which the first call of any function here opens, and which is kept. A
 * program opens it before Check forks: opening it tries plugins in child processes. */
dlc_registry *plugins_registry(void);
/* The same, for TEST_SETTINGS(.setup_once = ...). */
void plugins_open(void);
/* Returns a usable feature, or fails the test with the reason. */
const dlc_feature *plugin_find(dlc_kind kind, const char *name);
/* The i-th usable feature of a kind; NULL after the last. */
const dlc_feature *plugin_at(dlc_kind kind, size_t i);
/* Closes the registry; features stay valid. */
void plugins_close(void);

/* Settings of a feature. `sets` are texts like "slots=4", NULL-terminated; NULL: the
 * defaults. Release with dlc_settings_free. */
dlc_settings *plugin_settings(const dlc_feature *feature, const char *const *sets);

#endif
