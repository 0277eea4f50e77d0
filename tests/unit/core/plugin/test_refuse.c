/* Tests refusals of the loader, with their messages, for what a plugin says and does,
 * and that a refused plugin does not affect others. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "plugin/scan.h"
#include "plugin_folders.h"
#include "support/test.h"

/* ---- Invalid descriptors ---------------------------------------------------- */

typedef struct refusal {
    const char *fixture, *says;
} refusal;

static const refusal refusals[] = {
    {"other", "not a plugin: it exports no dlc_plugin_v0"},
    {"undefined", "fixture_nobody_has_this"},
    {"inherits", "exports no dlc_plugin_v0 of its own, only that of "},
    {"major2",
     "built for version 2 of the plugin interface, this dlcore has version 0"},
    {"draft-before", "it was built for draft 0."},
    {"draft-after", "build it again with the headers of this dlcore"},
    {"small", "a size of 16 bytes, too small for its required fields"},
    {"huge", "a size of 1073741824 bytes, implausibly large"},
    {"odd-size", "not a multiple of its alignment"},
    {"name-null", "the plugin has no valid name"},
    {"name-empty", "the plugin has no valid name"},
    {"name-upper", "the plugin has no valid name"},
    {"name-path", "the plugin has no valid name"},
    {"name-64", "the plugin has no valid name"},
    {"features-more", "its table of features doesn't end"},
    {"version-escape", "plugin good has no valid version"},
    {"license-delete", "plugin good has no valid license"},
    {"version-null", "plugin good has no valid version"},
    {"version-lines", "plugin good has no valid version"},
    {"license-null", "plugin good has no valid license"},
    {"features-null", "plugin good has no table of features"},
    {"features-empty", "the plugin has no features"},
    {"features-unsized", "feature 0 has a size of 0 bytes, too small"},
    {"features-small", "feature 0 has a size of 56 bytes, too small"},
};

TEST_SETTINGS(.name = "inside", .teardown = dir_remove_all);

TEST_EACH(refuses_plugin, COUNT(refusals)) {
    const refusal *r = &refusals[_i];
    char file[NAME_MAX];
    const char *dir = dir_make();
    const char *path = dir_add(dir, r->fixture, NULL);
    dir_add(dir, "two", "zz-sound");
    snprintf(file, sizeof file, "%s.so", r->fixture);

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
    ck_contains(entry->reason, r->says);
    ck_contains(entry->reason, path);
    ck_assert_uint_eq(entry->features, 0);
    ck_assert_ptr_null(entry->version);
    ck_assert_str_eq(entry->name, r->fixture);
    /* The other plugin is usable. */
    ck_assert_int_eq(entry_of(registry, "zz-sound.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}

static const refusal feature_refusals[] = {
    {"feature-name", "its name is not valid"},
    {"feature-kind", "it is of kind 77, which this dlcore doesn't know"},
    {"feature-kind-next", "which this dlcore doesn't know"},
    {"feature-kind0", "it is of kind 0, which this dlcore doesn't know"},
    {"feature-needs", "needs what this dlcore doesn't offer (needs bits 0x10)"},
    {"feature-help", "it has no help text"},
    {"feature-device", "the name of its device is not valid"},
    {"feature-ops", "it has no table of operations"},
    {"feature-call", "its table of operations lacks read"},
    {"feature-options", "samples"},
    {"endings-none", "it has no endings of names of files"},
    {"endings-more", "its list of endings has more than 16"},
    {"endings-dot", "ending 1 of its files is not valid"},
    {"endings-upper", "ending 0 of its files is not valid"},
    {"endings-empty", "use 1 to 15 of a-z and 0-9, without a dot"},
    {"endings-comma", "ending 0 of its files is not valid"},
    {"endings-long", "ending 0 of its files is not valid"},
};

TEST_EACH(refuses_feature, COUNT(feature_refusals)) {
    const refusal *r = &feature_refusals[_i];
    char file[NAME_MAX];
    const char *dir = dir_make();
    dir_add(dir, r->fixture, NULL);
    snprintf(file, sizeof file, "%s.so", r->fixture);

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    /* The plugin itself is valid. */
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(entry->reason);
    ck_assert_uint_eq(entry->features, 1);
    ck_assert_int_eq(entry->feature[0].state, !strncmp(r->fixture, "feature-kind", 12)
                                                  ? DLC_ENTRY_IGNORED
                                                  : DLC_ENTRY_REFUSED);
    ck_contains(entry->feature[0].reason, r->says);
    ck_assert_ptr_null(entry->feature[0].endings);
    ck_assert_ptr_null(dlc_registry_usable(registry, DLC_KIND_DATA, 0));
    ck_assert_ptr_null(dlc_registry_usable(registry, DLC_KIND_DECODER, 0));
    dlc_registry_close(registry);
}

/* The largest allowed values are accepted. */
TEST(accepts_the_limits) {
    const char *dir = dir_make();
    dir_add(dir, "name-63", NULL);
    dir_add(dir, "features-most", NULL);
    dir_add(dir, "endings-most", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "name-63.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_uint_eq(strlen(entry->name), 63);
    entry = entry_of(registry, "features-most.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_uint_eq(entry->features, 1024);
    ck_assert_int_eq(entry->feature[1023].state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(entry->feature[1023].endings);
    entry = entry_of(registry, "endings-most.so");
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_USABLE);
    ck_assert_str_eq(entry->feature[0].endings,
                     "a0,b,c,d,e,f,g,h,i,j,k,l,m,n,o,abcdefghijklmn9");
    dlc_registry_close(registry);
}

/* ---- Misbehaviour ------------------------------------------------------------ */

static int count_files(void) {
    int count = 0;
    DIR *stream = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

/* Nothing may be left of the process that inspected it. */
static void expect_misbehaving(const char *fixture, const char *says) {
    char file[NAME_MAX];
    const char *dir = dir_make();
    dir_add(dir, fixture, NULL);
    snprintf(file, sizeof file, "%s.so", fixture);
    int files = count_files();

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
    ck_contains(entry->reason, says);
    ck_contains(entry->reason, dir);
    ck_assert_str_eq(entry->name, fixture);
    dlc_registry_close(registry);
    ck_assert_int_eq(count_files(), files);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

static const refusal misbehaviours[] = {
    {"opened-crash",
     "crashed (signal 11, Segmentation fault) while it was opened, on 2"},
    {"loaded-crash", "crashed (signal 6, Aborted) in its load(), on 2"},
    {"loaded-exit", "ended the process in its load(), on 2"},
    {"loaded-close", "ended the process in its load(), on 2"},
};

TEST_SETTINGS(.name = "does", .teardown = dir_remove_all);

TEST_EACH(refuses_misbehaving_plugin, COUNT(misbehaviours)) {
    expect_misbehaving(misbehaviours[_i].fixture, misbehaviours[_i].says);
}

static const refusal hangs[] = {
    {"opened-hang", "did not return within 1.5 s while it was opened, on 2"},
    {"loaded-hang", "did not return within 1.5 s in its load(), on 2"},
};

TEST_EACH(refuses_hang, COUNT(hangs)) {
    dlc_scan_timeout(1500);
    expect_misbehaving(hangs[_i].fixture, hangs[_i].says);
}

/* Several hang at the same time, not one after the other; a file that does not is used
 * all the same. */
TEST(hangs_together) {
    const char *dir = dir_make();
    const char *const names[] = {"a", "b", "c", "d"};
    dlc_scan_timeout(1000);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        dir_add(dir, i % 2 ? "loaded-hang" : "opened-hang", names[i]);
    dir_add(dir, "good", "e");
    uint64_t begin = dlc_now_ns();
    dlc_registry *registry = registry_over(dir);
    ck_assert_double_lt(dlc_since(begin), 3);
    ck_assert_int_eq(entry_of(registry, "a.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "d.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "e.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}

/* Whatever load() has started ends with the inspection, whether or not it has left the
 * process group. */
TEST(ends_what_it_started) {
    const char *dir = dir_make();
    char path[300];
    int pid = 0;
    dir_add(dir, "loaded-leaves", NULL);
    snprintf(path, sizeof path, "%s/left", dir);
    setenv("FIXTURE_LEFT", path, 1);
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "loaded-leaves.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
    FILE *left = fopen(path, "re");
    ck_assert_ptr_nonnull(left);
    ck_assert_int_eq(fscanf(left, "%d", &pid), 1);
    fclose(left);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(kill((pid_t)pid, 0), -1);
    ck_assert_int_eq(errno, ESRCH);
    unlink(path);
}

/* Plugins before and after them stay usable. */
TEST(other_plugins_stay_usable) {
    const char *dir = dir_make();
    dir_add(dir, "two", "a");
    dir_add(dir, "opened-crash", "b");
    dir_add(dir, "crash-tells", "c");
    dir_add(dir, "crash-told", "d"); /* crashes after that one, not by itself */
    dir_add(dir, "loaded-crash", "e");
    dir_add(dir, "older", "f");
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "a.so")->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry_of(registry, "b.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "c.so")->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry_of(registry, "d.so")->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry_of(registry, "e.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "f.so")->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(getenv("FIXTURE_CRASH"));
    dlc_registry_close(registry);
}
