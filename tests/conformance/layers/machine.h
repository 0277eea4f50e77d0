/* Where the layers under test work, as the environment says:
 *
 *   DLCORE_TEST_DEVICE  the device plugin's name: all memory that layers see is its
 * own, and they work on its queue. Unset: the processor, host memory.
 *   DLCORE_TEST_LAYERS  the layers' plugin, by name or path. Unset: cudnn for the
 * device cuda, else onednn.
 *
 * Check runs each test in a process of its own; a device is opened where it is first
 * used, and stays open as long as that process. */
#ifndef MACHINE_H
#define MACHINE_H

#include <dlcore/layer.h>

/* The layers' plugin; loads it the first time, and ends the program if it cannot. */
const dlc_plugin *machine_layers(void);
/* Is this the plugin of that name? Some tests are for one family alone. */
int machine_layers_are(const char *name);
/* NULL, or why nothing can be tested here. */
const char *machine_why_not(void);
/* The device of the layers' features. */
const char *machine_device(void);
/* Does work go on after a call has come back? */
int machine_is_async(void);
/* Sets device and queue. */
void machine_family(dlc_family_args *args);

/* "a=1 b=2" as settings of a section [layer]. */
dlc_settings *machine_settings(const dlc_feature *feature, const char *text);

/* The layers' memory. Copies go between it and the host, or inside of either; they and
 * fills are done when the call returns, after all that came before. */
dlc_memory machine_alloc(size_t bytes);
void machine_free(dlc_memory *memory);
void machine_copy(void *dst, const void *src, size_t bytes);
void machine_fill(void *dst, int byte, size_t bytes);
/* Until all work is done. */
void machine_sync(void);

#endif
