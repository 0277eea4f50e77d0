/* Declares tests for Check. A file of tests includes this header, says once how its
 * tests are run, and defines them:
 *
 *     TEST_SETTINGS(.timeout = 60, .setup = scratch_setup);
 *
 *     TEST(files_are_replaced) { ... }
 *     TEST_EACH(mistakes_are_reported, COUNT(mistakes)) { ... mistakes[_i] ... }
 *
 * A test that is defined is registered, and main() in test.c runs all of them in the
 * order of the source. */
#ifndef TEST_H
#define TEST_H

#include <check.h>

/* How tests are run; all members are optional. */
struct test_settings {
    const char *name; /* of these tests, for CK_RUN_CASE; default: the program's */
    int timeout;      /* seconds for each test; default: Check's */
    /* Called before and after each test, in its process. */
    void (*setup)(void);
    void (*teardown)(void);
    /* Called before the first test and after the last, in the process that forks. */
    void (*setup_once)(void);
    void (*teardown_once)(void);
    /* Called first of all, with the arguments of main(). Returns TESTS_RUN, or the exit
     * code of the program, which then runs no tests. */
    int (*begin)(int argc, char **argv);
};

enum { TESTS_RUN = -1, TESTS_SKIPPED = 77 /* to ctest */ };

/* Prints why the tests of this program cannot run here; returns TESTS_SKIPPED. */
int tests_skip(const char *why);

/* Settings of the tests below in the same file, up to the next TEST_SETTINGS. */
#define TEST_SETTINGS(...) TEST_SETTINGS_AT(__LINE__, __VA_ARGS__)

/* A test. */
#define TEST(name) TEST_RANGE(name, 0, 1)
/* A test that runs for each `_i` from 0 to count - 1. */
#define TEST_EACH(name, count) TEST_RANGE(name, 0, count)
/* A test that runs for each `_i` from first to end - 1. */
#define TEST_RANGE(name, first, end) \
    static void name##_test(int _i); \
    static void name##_range(int *first_, int *end_) { \
        *first_ = (int)(first); \
        *end_ = (int)(end); \
    } \
    __attribute__((constructor)) static void name##_register(void) { \
        static test_entry entry = {.test = {#name, name##_test, __FILE__, __LINE__}, \
                                   .range = name##_range}; \
        test_register(&entry); \
    } \
    static void name##_test(int _i CK_ATTRIBUTE_UNUSED)

/* The number of elements of an array. */
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* ---- What the macros above are made of */

typedef struct test_entry {
    TTest test; /* of settings: only the place */
    void (*range)(int *first,
                  int *end); /* evaluated after `begin`; NULL for settings */
    struct test_settings settings;
    struct test_entry *next;
} test_entry;

void test_register(test_entry *entry);

#define TEST_SETTINGS_AT(line, ...) TEST_SETTINGS_AT_LINE(line, __VA_ARGS__)
#define TEST_SETTINGS_AT_LINE(line, ...) \
    __attribute__((constructor)) static void register_settings_##line(void) { \
        static test_entry entry = {.test = {NULL, NULL, __FILE__, line}, \
                                   .settings = {__VA_ARGS__}}; \
        test_register(&entry); \
    } \
    struct test_entry

#endif
