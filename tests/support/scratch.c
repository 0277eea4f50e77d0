/* Makes a temporary folder for each test, and reads and writes files in it. */
#include "support/scratch.h"

#include <check.h>
#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[128];

void scratch_setup(void) {
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.64s/dlcore-test-XXXXXX", root ? root : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static int remove_entry(const char *path, const struct stat *status, int type,
                        struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void scratch_teardown(void) {
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int scratch_files(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *file; (file = readdir(dir)) != NULL;)
        count += strcmp(file->d_name, ".") != 0 && strcmp(file->d_name, "..") != 0;
    closedir(dir);
    return count;
}

const char *scratch_path(const char *name) {
    static char paths[8][sizeof folder + NAME_MAX + 2];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *scratch_write(const char *name, const void *bytes, size_t size) {
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

unsigned char *scratch_read(const char *name, size_t *size) {
    FILE *file = fopen(scratch_path(name), "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long length = ftell(file);
    ck_assert_int_ge(length, 0);
    rewind(file);
    unsigned char *bytes = malloc((size_t)length + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)length, file), (size_t)length);
    fclose(file);
    *size = (size_t)length;
    return bytes;
}
