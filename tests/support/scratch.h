/* A temporary folder for a test's files, and helpers for files. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <stddef.h>

/* Creates a fresh folder in TMPDIR, or /tmp; removes it with all its contents. For
 * TEST_SETTINGS. */
void scratch_setup(void);
void scratch_teardown(void);

/* The path of a file in it; valid until the eighth call after this one. */
const char *scratch_path(const char *name);

/* Writes a whole file, replacing it; returns its path. */
const char *scratch_write(const char *name, const void *bytes, size_t size);
/* Reads a file; the caller frees it with free(). */
unsigned char *scratch_read(const char *name, size_t *size);
/* The number of files in it. */
int scratch_files(void);

/* Fails the test, with both texts, unless the whole contains the part. */
#define ck_contains(text, part) \
    ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" is not in \"%s\"", (part), \
                  (text))

#endif
