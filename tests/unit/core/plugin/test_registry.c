/* Tests what the registry finds, in which order, and what it returns. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin_folders.h"
#include "support/test.h"

static const char *joined(const char *a, const char *b) {
    static char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s:%s", a, b);
    return path;
}

/* The first feature of a file, loaded. */
static const dlc_feature *used(const dlc_registry *registry, const char *file) {
    const dlc_feature *feature = NULL;
    const dlc_feature_entry *entry = &entry_of(registry, file)->feature[0];
    ck_assert_int_eq(dlc_registry_use(registry, entry, &feature), DLC_OK);
    return feature;
}

TEST_SETTINGS(.teardown = dir_remove_all);

TEST(finds_a_valid_plugin) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", NULL);
    dlc_registry *registry = registry_over(dir);

    const dlc_plugin_entry *plugin = dlc_registry_plugin(registry, 0);
    ck_assert_ptr_nonnull(plugin);
    ck_assert_ptr_null(dlc_registry_plugin(registry, 1));
    ck_assert_str_eq(plugin->path, path);
    ck_assert_str_eq(plugin->name, "good");
    ck_assert_str_eq(plugin->version, "1.0");
    ck_assert_str_eq(plugin->license, "BSD-2-Clause");
    ck_assert_int_eq(plugin->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(plugin->reason);

    const dlc_feature *feature = NULL;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    ck_assert_str_eq(feature->name, "tiny");
    const dlc_feature_entry *entry = dlc_registry_feature(registry, 0, 0);
    ck_assert_ptr_eq(entry->plugin, plugin);
    ck_assert_int_eq(entry->kind, DLC_KIND_DATA);
    ck_assert_str_eq(entry->name, "tiny");
    ck_assert_str_eq(entry->help, "one sample");
    ck_assert_ptr_null(entry->device);
    ck_assert_uint_eq(entry->caps, 1ull << 63);
    ck_assert_ptr_eq(entry, dlc_registry_usable(registry, DLC_KIND_DATA, 0));
    ck_assert_ptr_null(dlc_registry_usable(registry, DLC_KIND_DATA, 1));
    ck_assert_ptr_null(dlc_registry_usable(registry, DLC_KIND_LAYER, 0));
    dlc_registry_close(registry);
}

TEST(lists_the_default_folder) {
    dlc_registry *registry = registry_over(NULL);
    const dlc_folder_entry *folder = dlc_registry_folder(registry, 0);
    ck_assert(folder->is_default);
    if (folder->path[0])
        ck_contains(folder->path, "/dlcore/0");
    else /* if the test was started as ./test_registry */
        ck_contains(folder->reason, "was loaded by a relative path");
    ck_assert_ptr_null(dlc_registry_folder(registry, 1));
    dlc_registry_close(registry);
    /* Set but empty is the same as not set. */
    registry = registry_over("");
    ck_assert_ptr_null(dlc_registry_folder(registry, 1));
    dlc_registry_close(registry);
}

TEST(loads_once_a_process) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    dir_add(dir, "unavailable", NULL);
    const dlc_feature *first = NULL, *feature = NULL;
    for (int i = 0; i < 3; i++) {
        dlc_registry *registry = registry_over(dir);
        ck_assert_int_eq(
            dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature), DLC_OK);
        ck_assert_str_eq(getenv("FIXTURE_LOADS"), "1");
        first = first ? first : feature;
        ck_assert_ptr_eq(feature, first);
        const dlc_plugin_entry *entry = entry_of(registry, "unavailable.so");
        ck_assert_int_eq(entry->state, DLC_ENTRY_UNAVAILABLE);
        ck_assert_str_eq(entry->reason, "no abacus was found");
        dlc_registry_close(registry);
    }
}

TEST(takes_files_in_sorted_order_once) {
    const char *dir = dir_make(), *more = dir_make();
    dir_add(dir, "two", "b");
    dir_add(dir, "good", "a");
    dir_add(dir, "newer", "c");
    dir_add(dir, "other", ".hidden"); /* neither this ... */
    ck_assert_int_eq(symlink("a.so", dir_path(dir, "a2.so")), 0);
    ck_assert_int_eq(link(dir_path(dir, "b.so"), dir_path(more, "b2.so")), 0);
    ck_assert_int_eq(symlink("a.so", dir_path(dir, "a.so.1")), 0); /* ... nor this */
    char path[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s:%s:%s", dir, more, dir);
    dlc_registry *registry = registry_over(path);
    ck_assert_str_eq(dlc_registry_plugin(registry, 0)->name, "good");
    ck_assert_str_eq(dlc_registry_plugin(registry, 1)->name, "two");
    ck_assert_str_eq(dlc_registry_plugin(registry, 2)->name, "newer");
    ck_assert_ptr_null(dlc_registry_plugin(registry, 3));
    dlc_registry_close(registry);
}

TEST(first_of_a_name_wins) {
    const char *first = dir_make(), *second = dir_make();
    const char *winner = dir_add(first, "good", NULL);
    dir_add(second, "same-name", NULL);
    dlc_registry *registry = registry_over(joined(first, second));
    const dlc_plugin_entry *entry = entry_of(registry, "same-name.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_SHADOWED);
    ck_contains(entry->reason, winner);
    ck_assert_uint_eq(entry->features, 1);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_SHADOWED);
    const dlc_feature *feature;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "else", NULL, &feature),
                     DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), "data \"else\" of plugin good is shadowed");
    ck_assert_ptr_null(getenv("FIXTURE_LOADS")); /* never loaded */
    dlc_registry_close(registry);
}

TEST(a_refused_one_shadows_nobody) {
    const char *first = dir_make(), *second = dir_make();
    /* The file and the plugin are both named good. */
    dir_add(first, "features-empty", "good");
    dir_add(second, "good", "second");
    dlc_registry *registry = registry_over(joined(first, second));
    ck_assert_int_eq(entry_of(registry, "good.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "second.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}

TEST(first_of_a_feature_wins) {
    const char *dir = dir_make();
    dir_add(dir, "good", "a");
    dir_add(dir, "same-feature", "b");
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "b.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_SHADOWED);
    ck_assert_str_eq(entry->feature[0].reason,
                     "plugin good offers the same and comes first");
    const dlc_feature *feature = NULL;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    ck_assert_ptr_eq(feature, used(registry, "a.so"));
    dlc_registry_close(registry);
}

TEST(twice_in_one_plugin) {
    const char *dir = dir_make();
    dir_add(dir, "twice", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = dlc_registry_plugin(registry, 0);
    ck_assert_uint_eq(entry->features, 2);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry->feature[1].state, DLC_ENTRY_SHADOWED);
    ck_contains(entry->feature[1].reason, "offers it twice");
    dlc_registry_close(registry);
}

/* A plugin that cannot work here is skipped for the next one. */
TEST(unavailable_plugins_are_skipped) {
    const char *dir = dir_make();
    dir_add(dir, "unavailable", "a");
    dir_add(dir, "good", "b");
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "a.so")->feature[0].state,
                     DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(entry_of(registry, "b.so")->feature[0].state, DLC_ENTRY_USABLE);
    const dlc_feature *feature = NULL;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    ck_assert_ptr_eq(feature, used(registry, "b.so"));
    dlc_registry_close(registry);
}

TEST(lists_what_is_available) {
    const char *dir = dir_make();
    dir_add(dir, "two", NULL);
    dir_add(dir, "small", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_feature *feature = (const dlc_feature *)dir;
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "digit", NULL, &feature),
        DLC_ERR_PLUGIN);
    ck_assert_str_eq(dlc_detail(),
                     "there is no data \"digit\"; did you mean digits? there are: "
                     "faces, digits; 1 plugin was refused, see dlcore plugin list");
    ck_assert_ptr_eq(feature, dir); /* untouched */
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_SOLVER, "newton", "vax", &feature),
        DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(),
                "there is no solver \"newton\" for device vax; there are: "
                "none");
    dlc_registry_close(registry);
}

TEST(gives_the_reason) {
    const char *dir = dir_make();
    dir_add(dir, "unavailable", NULL);
    dir_add(dir, "feature-call", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_feature *feature;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_ERR_PLUGIN);
    ck_assert_str_eq(
        dlc_detail(),
        "data \"tiny\" of plugin good is refused: its table of operations lacks read");
    dlc_registry_close(registry);
}

TEST(load_without_a_reason_is_reported) {
    const char *dir = dir_make();
    dir_add(dir, "silent", NULL);
    dlc_registry *registry = registry_over(dir);
    ck_assert_str_eq(entry_of(registry, "silent.so")->reason,
                     "its load() failed without a reason: not available here");
    dlc_registry_close(registry);
}

TEST(finds_by_device) {
    const char *dir = dir_make();
    dir_add(dir, "good", "a"); /* for any device */
    dir_add(dir, "for-vax", "b");
    dir_add(dir, "for-pdp", "c");
    dlc_registry *registry = registry_over(dir);
    const dlc_feature *feature = NULL;
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "tiny", "vax", &feature), DLC_OK);
    ck_assert_str_eq(feature->device, "vax");
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "tiny", "pdp", &feature), DLC_OK);
    ck_assert_str_eq(feature->device, "pdp");
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "tiny", "cray", &feature), DLC_OK);
    ck_assert_ptr_null(feature->device);
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    dlc_registry_close(registry);

    unlink(dir_path(dir, "a.so"));
    registry = registry_over(dir);
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "tiny", "cray", &feature),
        DLC_ERR_PLUGIN);
    ck_assert_str_eq(
        dlc_detail(),
        "data \"tiny\" doesn't work on device cray, only on: vax, pdp; --device chooses one");
    dlc_registry_close(registry);
}

/* ---- Other versions ------------------------------------------------------------ */

TEST(newer_plugin_works) {
    const char *dir = dir_make();
    dir_add(dir, "newer", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "newer.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_uint_eq(entry->abi_minor, DLC_ABI_MINOR);
    ck_assert_uint_eq(entry->features, 2);
    const dlc_feature *feature = NULL;
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "later-b", NULL, &feature), DLC_OK);
    ck_assert_str_eq(feature->help, "the second of two");
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "later-a", NULL, &feature), DLC_OK);
    const dlc_option *second = DLC_NEXT(feature->options);
    ck_assert_str_eq(second->name, "second");
    dlc_registry_close(registry);
}

/* A plugin that ends before the optional load(): nothing beyond its size is read. */
TEST(older_plugin_works) {
    const char *dir = dir_make();
    dir_add(dir, "older", NULL);
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "older.so")->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(getenv("FIXTURE_LOADS"));
    dlc_registry_close(registry);
}

/* ---- Inspection -------------------------------------------------------------- */

TEST(inspects_without_running) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", NULL);
    dlc_registry *registry = NULL;
    count_loads(dir);
    ck_assert_int_eq(dlc_registry_inspect(path, &registry), DLC_OK);
    const dlc_plugin_entry *entry = dlc_registry_plugin(registry, 0);
    ck_assert_int_eq(entry->state, DLC_ENTRY_UNTRIED);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_UNTRIED);
    ck_assert_int_eq(load_count(), 0);
    ck_assert_ptr_null(dlc_registry_plugin(registry, 1));
    dlc_registry_close(registry);

    /* A relative path is allowed if the user has named the file. */
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(dlc_registry_inspect("good.so", &registry), DLC_OK);
    ck_assert_str_eq(dlc_registry_plugin(registry, 0)->path, path);
    dlc_registry_close(registry);
    ck_assert_int_eq(chdir("/"), 0);
}

TEST(inspects_what_is_refused) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "major2", NULL);
    dlc_registry *registry = NULL;
    ck_assert_int_eq(dlc_registry_inspect(path, &registry), DLC_OK);
    ck_contains(dlc_registry_plugin(registry, 0)->reason, "built for version 2");
    dlc_registry_close(registry);

    ck_assert_int_eq(dlc_registry_inspect(dir_path(dir, "none.so"), &registry), DLC_OK);
    ck_assert_int_eq(dlc_registry_plugin(registry, 0)->state, DLC_ENTRY_REFUSED);
    ck_contains(dlc_registry_plugin(registry, 0)->reason, "cannot be found");
    dlc_registry_close(registry);

    ck_assert_int_eq(chmod(dir, 0777), 0);
    ck_assert_int_eq(dlc_registry_inspect(path, &registry), DLC_OK);
    ck_contains(dlc_registry_plugin(registry, 0)->reason,
                "the folder is writable by all users");
    dlc_registry_close(registry);

    ck_assert_int_eq(dlc_registry_inspect("/no/such/x.so", &registry), DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), "/no/such");
}

/* ---- Memory ------------------------------------------------------------------ */

/* Opens a registry with failing allocations, here or in the inspecting process:
 * DLC_ERR_NOMEM, and nothing leaked. Returns the number of allocations. */
static size_t open_without_memory(dlc_registry **registry) {
    for (size_t n = 1;; n++) {
        *registry = NULL;
        dlc_memory_fail_at(n);
        dlc_status rc = dlc_registry_open(registry);
        dlc_memory_fail_at(0);
        if (rc == DLC_OK)
            return n;
        ck_assert_int_eq(rc, DLC_ERR_NOMEM);
        ck_assert_ptr_null(*registry);
    }
}

TEST(every_allocation_may_fail) {
    const char *dir = dir_make();
    static const char *const all[] = {"two", "same-name", "feature-call", "twice"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        dir_add(dir, all[i], NULL);
    setenv("DLCORE_PLUGIN_PATH", joined("x:", dir), 1);
    cache_dir_make();
    dlc_registry *registry = NULL;
    ck_assert_uint_gt(open_without_memory(&registry), 30);
    ck_assert_int_eq(entry_of(registry, "feature-call.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
    /* Again with everything cached except these. */
    dir_add(dir, "unavailable", NULL);
    dir_add(dir, "major2", NULL);
    ck_assert_uint_gt(open_without_memory(&registry), 30);

    const dlc_feature *feature = NULL;
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "timy", NULL, &feature),
                     DLC_ERR_NOMEM);
    dlc_memory_fail_at(2);
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "timy", NULL, &feature),
                     DLC_ERR_NOMEM);
    dlc_status rc = DLC_ERR_NOMEM;
    for (size_t n = 1; rc != DLC_OK; n++) {
        ck_assert_msg(rc == DLC_ERR_NOMEM, "%s", dlc_detail());
        dlc_memory_fail_at(n);
        rc = dlc_registry_find(registry, DLC_KIND_DATA, "faces", NULL, &feature);
        dlc_memory_fail_at(0);
    }
    dlc_registry_close(registry);
}

TEST(inspects_without_memory) {
    const char *path = dir_add(dir_make(), "good", NULL);
    dlc_status rc = DLC_ERR_NOMEM;
    dlc_registry *registry = NULL;
    for (size_t n = 1; rc != DLC_OK; n++) {
        ck_assert_int_eq(rc, DLC_ERR_NOMEM);
        ck_assert_ptr_null(registry);
        dlc_memory_fail_at(n);
        rc = dlc_registry_inspect(path, &registry);
        dlc_memory_fail_at(0);
    }
    dlc_registry_close(registry);
}

TEST(names_states_and_kinds) {
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_DEVICE), "device");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_TRANSPORT), "transport");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_LAYER), "layer");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_SOLVER), "solver");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_CONSISTENCY), "consistency");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_DATA), "data");
    ck_assert_str_eq(dlc_kind_text((dlc_kind)77), "unknown");
    for (int a = DLC_ENTRY_USABLE; a <= DLC_ENTRY_UNTRIED; a++)
        for (int b = DLC_ENTRY_USABLE; b < a; b++)
            ck_assert_str_ne(dlc_entry_state_text((dlc_entry_state)a),
                             dlc_entry_state_text((dlc_entry_state)b));
    dlc_registry_close(NULL);
}
