/* Temporary folders with fixture plugins, and their cache, for the tests of
 * core/plugin. */
#ifndef TEST_PLUGIN_SUPPORT_H
#define TEST_PLUGIN_SUPPORT_H

#include "plugin/registry.h"

/* Makes an empty folder of mode 755; dir_remove_all (a teardown) removes all of
 * them. */
const char *dir_make(void);
void dir_remove_all(void);

/* Copies a fixture into a folder, named `as` unless it is NULL; the path is valid until
 * the end of the test. */
const char *dir_add(const char *dir, const char *fixture, const char *as);
const char *dir_path(const char *dir, const char *name);

/* Puts the cache into an empty folder from now on, and returns it. Without this call
 * these tests cache nothing. */
const char *cache_dir_make(void);
/* The cache file; NULL if there is none. Fails if there are several. */
const char *cache_file(void);
/* The number of calls of load() of fixtures, in all processes, since count_loads or
 * cache_dir_make, which start a log in that folder. */
void count_loads(const char *dir);
int load_count(void);

/* Tells the fixture "obeys", in all processes, what its load() is to do from now on;
 * NULL: nothing. The words are in fixture.c. */
void give_orders(const char *word, int number);

/* The state of a file, with the cache or after a rescan. */
dlc_entry_state state_with_cache(const char *dir, const char *file);
dlc_entry_state state_after_rescan(const char *file);

/* Opens a registry with this DLCORE_PLUGIN_PATH; NULL: not set. */
dlc_registry *registry_over(const char *path);

/* The entry of the file of this name; fails if there is none. */
const dlc_plugin_entry *entry_of(const dlc_registry *registry, const char *file);

#define ck_contains(text, part) \
    ck_assert_msg((text) && strstr((text), (part)), "\"%s\" is not in \"%s\"", (part), \
                  (text) ? (text) : "(null)")

#endif
