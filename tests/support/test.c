/* Runs the tests that TEST() has registered. */
#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static test_entry *entries; /* tests and settings in the order of their lines */

void test_register(test_entry *entry) {
    test_entry **at = &entries;
    while (*at && (*at)->test.line < entry->test.line)
        at = &(*at)->next;
    entry->next = *at;
    *at = entry;
}

int tests_skip(const char *why) {
    (void)fprintf(stderr, "skipped: %s\n", why);
    return TESTS_SKIPPED;
}

/* Reports a mistake in the source, because of which some test would not run. */
__attribute__((noreturn)) static void refuse_entry(const test_entry *entry,
                                                   const char *why) {
    (void)fprintf(stderr, "%s:%d: %s\n", entry->test.file, entry->test.line, why);
    exit(EXIT_FAILURE);
}

static TCase *add_group(Suite *suite, const char *name,
                        const struct test_settings *settings) {
    TCase *group = tcase_create(settings->name ? settings->name : name);
    if (settings->timeout)
        tcase_set_timeout(group, settings->timeout);
    tcase_add_checked_fixture(group, settings->setup, settings->teardown);
    tcase_add_unchecked_fixture(group, settings->setup_once, settings->teardown_once);
    suite_add_tcase(suite, group);
    return group;
}

static void add_test(TCase *group, const test_entry *entry) {
    int first, end;
    entry->range(&first, &end);
    if (first >= end)
        refuse_entry(entry, "this test runs for no value of _i");
    tcase_add_loop_test(group, &entry->test, first, end);
}

static void add_entries(Suite *suite, const char *name) {
    static const struct test_settings defaults;
    TCase *group = NULL;
    for (const test_entry *entry = entries; entry; entry = entry->next) {
        if (strcmp(entry->test.file, entries->test.file) != 0)
            refuse_entry(entry, "a program has one file of tests");
        if (!entry->range && !(entry->next && entry->next->range))
            refuse_entry(entry, "no test is below these settings");
        if (!entry->range)
            group = add_group(suite, name, &entry->settings);
        else if (!group)
            group = add_group(suite, name, &defaults);
        if (entry->range)
            add_test(group, entry);
    }
}

int main(int argc, char **argv) {
    for (const test_entry *entry = entries; entry; entry = entry->next) {
        int code = entry->settings.begin ? entry->settings.begin(argc, argv)
                                         : TESTS_RUN;
        if (code != TESTS_RUN)
            return code;
    }
    const char *name = program_invocation_short_name;
    Suite *suite = suite_create(name);
    add_entries(suite, name);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int passed = srunner_ntests_run(runner) > 0 && srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
