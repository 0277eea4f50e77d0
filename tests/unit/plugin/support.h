/* Folders full of fixtures for the loader's tests. */
#ifndef TEST_PLUGIN_SUPPORT_H
#define TEST_PLUGIN_SUPPORT_H

#include "plugin/registry.h"

/* A new empty folder with mode 755, removed by box_remove_all (a teardown). */
const char *box_make(void);
void box_remove_all(void);

/* Copies a fixture into a folder, under another name if `as` is not NULL; the path
 * stays valid for the length of the test. */
const char *box_put(const char *box, const char *fixture, const char *as);
const char *box_path(const char *box, const char *name);

/* From now on what is remembered lies in an empty folder of its own; its path. No other
 * test of these programs remembers anything. */
const char *cache_make(void);
/* The file in it; NULL: there is none. Fails the test if there are several. */
const char *cache_file(void);
/* How often the load() of fixtures was called, in all processes, since loads_watch or
 * cache_make; that is noted in a folder of the test's. */
void loads_watch(const char *box);
int loads_in_all(void);

/* A registry over these folders (joined by ':'), NULL: no DLCORE_PLUGIN_PATH. */
dlc_registry *registry_over(const char *path);

/* The plugin found in the file of this name; fails the test if there is none. */
const dlc_plugin_entry *entry_of(const dlc_registry *registry, const char *file);

#define ck_contains(text, part) \
    ck_assert_msg((text) && strstr((text), (part)), "\"%s\" is not in \"%s\"", (part), \
                  (text) ? (text) : "(null)")

#endif
