/* Where the layers under test run, as set in the environment:
 *
 *   DLCORE_TEST_DEVICE  the device plugin's name: all memory that layers see is the
 *                       device's, and they use its queue. Unset: the CPU, host memory.
 *   DLCORE_TEST_LAYERS  the layers' plugin, by name or path. Unset: cudnn for the
 *                       device cuda, else onednn.
 *
 * Check runs each test in a process of its own; a device is opened on first use, and
 * stays open until that process exits.
 */
#ifndef TARGET_H
#define TARGET_H

#include <dlcore/layer.h>

/* The layers' plugin; loads it on first use, and exits if that fails. */
const dlc_plugin *target_layers(void);
/* Is this the plugin with that name? Some tests are for one family only. */
int target_layers_are(const char *name);
/* NULL, or why nothing can be tested here. */
const char *target_why_not(void);
/* The device of the layers' features. */
const char *target_device(void);
/* Is work done after a call has returned? */
int target_is_async(void);
/* Sets device and queue. */
void target_family(dlc_family_args *args);

/* "a=1 b=2" as settings of a section [layer]. */
dlc_settings *target_settings(const dlc_feature *feature, const char *text);

/* Memory for the layers. Copies may go between it and the host, or within either;
 * copies and fills block until they and all earlier work are done. */
dlc_memory target_alloc(size_t bytes);
void target_free(dlc_memory *memory);
void target_copy(void *dst, const void *src, size_t bytes);
void target_fill(void *dst, int byte, size_t bytes);
/* Blocks until all work is done. */
void target_sync(void);

#endif
