/* A folder for a test's files, and what tests of files do over and over. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <stddef.h>

/* A fresh folder, and its removal with all that is in it. For
 * tcase_add_checked_fixture. */
void scratch_setup(void);
void scratch_teardown(void);

/* The path of a file in it; valid until the eighth call after this one. */
const char *scratch_path(const char *name);

/* Writes a whole file, in place of what was there; returns its path. */
const char *scratch_write(const char *name, const void *bytes, size_t size);
/* Reads one: the caller frees with free(). */
unsigned char *scratch_read(const char *name, size_t *size);
/* How many files there are. */
int scratch_files(void);

/* Is the part in the whole? Ends the test with both if not. */
#define ck_contains(text, part) \
    ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" is not in \"%s\"", (part), \
                  (text))

#endif
