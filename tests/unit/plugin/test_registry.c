/* What the registry finds, in which order, and what it answers. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "support.h"

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

START_TEST(finds_a_sound_plugin) {
    const char *box = box_make();
    const char *path = box_put(box, "good", NULL);
    dlc_registry *registry = registry_over(box);

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
END_TEST

START_TEST(lists_the_default_folder) {
    dlc_registry *registry = registry_over(NULL);
    const dlc_folder_entry *folder = dlc_registry_folder(registry, 0);
    ck_assert(folder->is_default);
    if (folder->path[0])
        ck_contains(folder->path, "/dlcore/1");
    else /* where the test itself was started as ./test_registry */
        ck_contains(folder->reason, "was started by a relative path");
    ck_assert_ptr_null(dlc_registry_folder(registry, 1));
    dlc_registry_close(registry);
    /* Set but empty is as not set. */
    registry = registry_over("");
    ck_assert_ptr_null(dlc_registry_folder(registry, 1));
    dlc_registry_close(registry);
}
END_TEST

START_TEST(loads_once_a_process) {
    const char *box = box_make();
    box_put(box, "good", NULL);
    box_put(box, "unavailable", NULL);
    const dlc_feature *first = NULL, *feature = NULL;
    for (int i = 0; i < 3; i++) {
        dlc_registry *registry = registry_over(box);
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
END_TEST

START_TEST(takes_files_in_sorted_order_once) {
    const char *box = box_make(), *more = box_make();
    box_put(box, "two", "b");
    box_put(box, "good", "a");
    box_put(box, "newer", "c");
    box_put(box, "other", ".hidden"); /* neither this ... */
    ck_assert_int_eq(symlink("a.so", box_path(box, "a2.so")), 0);
    ck_assert_int_eq(link(box_path(box, "b.so"), box_path(more, "b2.so")), 0);
    ck_assert_int_eq(symlink("a.so", box_path(box, "a.so.1")), 0); /* ... nor this */
    char path[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s:%s:%s", box, more, box);
    dlc_registry *registry = registry_over(path);
    ck_assert_str_eq(dlc_registry_plugin(registry, 0)->name, "good");
    ck_assert_str_eq(dlc_registry_plugin(registry, 1)->name, "two");
    ck_assert_str_eq(dlc_registry_plugin(registry, 2)->name, "newer");
    ck_assert_ptr_null(dlc_registry_plugin(registry, 3));
    dlc_registry_close(registry);
}
END_TEST

START_TEST(first_of_a_name_wins) {
    const char *first = box_make(), *second = box_make();
    const char *winner = box_put(first, "good", NULL);
    box_put(second, "same-name", NULL);
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
END_TEST

START_TEST(a_refused_one_shadows_nobody) {
    const char *first = box_make(), *second = box_make();
    /* It calls itself good, and so does its file. */
    box_put(first, "features-empty", "good");
    box_put(second, "good", "second");
    dlc_registry *registry = registry_over(joined(first, second));
    ck_assert_int_eq(entry_of(registry, "good.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "second.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}
END_TEST

START_TEST(first_of_a_feature_wins) {
    const char *box = box_make();
    box_put(box, "good", "a");
    box_put(box, "same-feature", "b");
    dlc_registry *registry = registry_over(box);
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
END_TEST

START_TEST(twice_in_one_plugin) {
    const char *box = box_make();
    box_put(box, "twice", NULL);
    dlc_registry *registry = registry_over(box);
    const dlc_plugin_entry *entry = dlc_registry_plugin(registry, 0);
    ck_assert_uint_eq(entry->features, 2);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry->feature[1].state, DLC_ENTRY_SHADOWED);
    ck_contains(entry->feature[1].reason, "offers it twice");
    dlc_registry_close(registry);
}
END_TEST

/* One that cannot work here leaves its place to the next that can. */
START_TEST(unavailable_gives_way) {
    const char *box = box_make();
    box_put(box, "unavailable", "a");
    box_put(box, "good", "b");
    dlc_registry *registry = registry_over(box);
    ck_assert_int_eq(entry_of(registry, "a.so")->feature[0].state,
                     DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(entry_of(registry, "b.so")->feature[0].state, DLC_ENTRY_USABLE);
    const dlc_feature *feature = NULL;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    ck_assert_ptr_eq(feature, used(registry, "b.so"));
    dlc_registry_close(registry);
}
END_TEST

START_TEST(says_what_there_is) {
    const char *box = box_make();
    box_put(box, "two", NULL);
    box_put(box, "small", NULL);
    dlc_registry *registry = registry_over(box);
    const dlc_feature *feature = (const dlc_feature *)box;
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "digit", NULL, &feature),
        DLC_ERR_PLUGIN);
    ck_assert_str_eq(dlc_detail(),
                     "there is no data \"digit\"; did you mean digits? there are: "
                     "faces, digits; 1 plugin was refused, see dlcore plugin list");
    ck_assert_ptr_eq(feature, box); /* untouched */
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_SOLVER, "newton", "vax", &feature),
        DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(),
                "there is no solver \"newton\" for device vax; there are: "
                "none");
    dlc_registry_close(registry);
}
END_TEST

START_TEST(says_why_not) {
    const char *box = box_make();
    box_put(box, "unavailable", NULL);
    box_put(box, "feature-call", NULL);
    dlc_registry *registry = registry_over(box);
    const dlc_feature *feature;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_ERR_PLUGIN);
    ck_assert_str_eq(
        dlc_detail(),
        "data \"tiny\" of plugin good is refused: its table of operations lacks read");
    dlc_registry_close(registry);
}
END_TEST

START_TEST(silent_refusal_gets_words) {
    const char *box = box_make();
    box_put(box, "silent", NULL);
    dlc_registry *registry = registry_over(box);
    ck_assert_str_eq(entry_of(registry, "silent.so")->reason,
                     "its load() says: not available here, and nothing more");
    dlc_registry_close(registry);
}
END_TEST

START_TEST(looks_by_device) {
    const char *box = box_make();
    box_put(box, "good", "a"); /* for any device */
    box_put(box, "for-vax", "b");
    box_put(box, "for-pdp", "c");
    dlc_registry *registry = registry_over(box);
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

    unlink(box_path(box, "a.so"));
    registry = registry_over(box);
    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_DATA, "tiny", "cray", &feature),
        DLC_ERR_PLUGIN);
    ck_assert_str_eq(dlc_detail(),
                     "data \"tiny\" doesn't work on device cray, only on: vax, pdp");
    dlc_registry_close(registry);
}
END_TEST

/* ---- Growth -------------------------------------------------------------------- */

START_TEST(newer_plugin_works) {
    const char *box = box_make();
    box_put(box, "newer", NULL);
    dlc_registry *registry = registry_over(box);
    const dlc_plugin_entry *entry = entry_of(registry, "newer.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_uint_eq(entry->abi_minor, DLC_ABI_MINOR + 5);
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
END_TEST

/* One that ends before the optional load(): nothing behind its size is touched. */
START_TEST(older_plugin_works) {
    const char *box = box_make();
    box_put(box, "older", NULL);
    dlc_registry *registry = registry_over(box);
    ck_assert_int_eq(entry_of(registry, "older.so")->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(getenv("FIXTURE_LOADS"));
    dlc_registry_close(registry);
}
END_TEST

/* ---- Inspection -------------------------------------------------------------- */

START_TEST(inspects_without_running) {
    const char *box = box_make();
    const char *path = box_put(box, "good", NULL);
    dlc_registry *registry = NULL;
    loads_watch(box);
    ck_assert_int_eq(dlc_registry_inspect(path, &registry), DLC_OK);
    const dlc_plugin_entry *entry = dlc_registry_plugin(registry, 0);
    ck_assert_int_eq(entry->state, DLC_ENTRY_UNTRIED);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_UNTRIED);
    ck_assert_int_eq(loads_in_all(), 0);
    ck_assert_ptr_null(dlc_registry_plugin(registry, 1));
    dlc_registry_close(registry);

    /* Relative paths are fine where a person named the file. */
    ck_assert_int_eq(chdir(box), 0);
    ck_assert_int_eq(dlc_registry_inspect("good.so", &registry), DLC_OK);
    ck_assert_str_eq(dlc_registry_plugin(registry, 0)->path, path);
    dlc_registry_close(registry);
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(inspects_what_is_refused) {
    const char *box = box_make();
    const char *path = box_put(box, "major2", NULL);
    dlc_registry *registry = NULL;
    ck_assert_int_eq(dlc_registry_inspect(path, &registry), DLC_OK);
    ck_contains(dlc_registry_plugin(registry, 0)->reason, "built for version 2");
    dlc_registry_close(registry);

    ck_assert_int_eq(dlc_registry_inspect(box_path(box, "none.so"), &registry), DLC_OK);
    ck_assert_int_eq(dlc_registry_plugin(registry, 0)->state, DLC_ENTRY_REFUSED);
    ck_contains(dlc_registry_plugin(registry, 0)->reason, "cannot be found");
    dlc_registry_close(registry);

    ck_assert_int_eq(chmod(box, 0777), 0);
    ck_assert_int_eq(dlc_registry_inspect(path, &registry), DLC_OK);
    ck_contains(dlc_registry_plugin(registry, 0)->reason, "the folder may be changed");
    dlc_registry_close(registry);

    ck_assert_int_eq(dlc_registry_inspect("/no/such/x.so", &registry), DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), "/no/such");
}
END_TEST

/* ---- Memory ------------------------------------------------------------------ */

/* Whatever allocation fails, here or in the process that inspects: DLC_ERR_NOMEM,
 * nothing leaked, nothing half made. Returns how many were made. */
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

START_TEST(survives_lack_of_memory) {
    const char *box = box_make();
    static const char *const all[] = {"two", "same-name", "feature-call", "twice"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        box_put(box, all[i], NULL);
    setenv("DLCORE_PLUGIN_PATH", joined("x:", box), 1);
    cache_make();
    dlc_registry *registry = NULL;
    ck_assert_uint_gt(open_without_memory(&registry), 30);
    ck_assert_int_eq(entry_of(registry, "feature-call.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
    /* The same where all is remembered, but for these. */
    box_put(box, "unavailable", NULL);
    box_put(box, "major2", NULL);
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
END_TEST

START_TEST(inspects_without_memory) {
    const char *path = box_put(box_make(), "good", NULL);
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
END_TEST

START_TEST(names_states_and_kinds) {
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_DEVICE), "device");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_TRANSPORT), "transport");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_LAYER), "layer");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_SOLVER), "solver");
    ck_assert_str_eq(dlc_kind_text(DLC_KIND_DATA), "data");
    ck_assert_str_eq(dlc_kind_text((dlc_kind)77), "unknown");
    for (int a = DLC_ENTRY_USABLE; a <= DLC_ENTRY_UNTRIED; a++)
        for (int b = DLC_ENTRY_USABLE; b < a; b++)
            ck_assert_str_ne(dlc_entry_state_text((dlc_entry_state)a),
                             dlc_entry_state_text((dlc_entry_state)b));
    dlc_registry_close(NULL);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        finds_a_sound_plugin,
        lists_the_default_folder,
        loads_once_a_process,
        takes_files_in_sorted_order_once,
        first_of_a_name_wins,
        a_refused_one_shadows_nobody,
        first_of_a_feature_wins,
        twice_in_one_plugin,
        unavailable_gives_way,
        says_what_there_is,
        says_why_not,
        silent_refusal_gets_words,
        looks_by_device,
        newer_plugin_works,
        older_plugin_works,
        inspects_without_running,
        inspects_what_is_refused,
        survives_lack_of_memory,
        inspects_without_memory,
        names_states_and_kinds,
    };
    Suite *suite = suite_create("registry");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, NULL, box_remove_all);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
