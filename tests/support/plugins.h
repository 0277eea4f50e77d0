/* The plugins of this build, for tests: through the core's own registry. */
#ifndef TEST_PLUGINS_H
#define TEST_PLUGINS_H

#include <dlcore/device.h>

/* A usable feature, or the end of the test with the reason. Opens the registry at
 * the first call and keeps it. */
const dlc_feature *plugin_find(dlc_kind kind, const char *name);
/* The i-th usable one of a kind; NULL behind the last. */
const dlc_feature *plugin_at(dlc_kind kind, size_t i);
/* Frees the registry; features stay valid. */
void plugins_close(void);

/* Settings of a feature; `sets` are texts like "slots=4", NULL-terminated, or NULL
 * for the defaults. Release with dlc_settings_free. */
dlc_settings *plugin_settings(const dlc_feature *feature, const char *const *sets);

#endif
