/* Tests writing safetensors files: their exact bytes, and that a file is either written
 * completely or left unchanged, whatever happens. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "support/scratch.h"
#include "support/test.h"

#define VALUES 50000

static float values[VALUES];

/* A file of VALUES times `value`. */
static dlc_status write_values(const char *path, float value) {
    const dlc_safetensor tensor = {"values", DLC_F32, {1, {VALUES}},
                                   values,   NULL,    NULL};
    for (int i = 0; i < VALUES; i++)
        values[i] = value;
    return dlc_safetensors_write(path, &tensor, 1, NULL, 0);
}

static void must_write(const char *path, float value) {
    dlc_status status = write_values(path, value);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

/* The value in the file, which must be complete and valid. */
static float value_of(const char *path) {
    dlc_safetensors *file = NULL;
    void *data = NULL;
    dlc_status status = dlc_safetensors_open(path, &file);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    ck_assert_int_eq(
        dlc_safetensors_read(file, "values", DLC_F32, &(dlc_shape){1, {VALUES}}, &data),
        DLC_OK);
    const float *found = data;
    float value = found[0];
    int same = 1;
    for (int i = 0; i < VALUES; i++)
        same = same && found[i] == value;
    ck_assert(same);
    dlc_free(data);
    dlc_safetensors_close(file);
    return value;
}

static void must_fail(const char *path, const char *detail) {
    ck_assert_int_eq(write_values(path, 2), DLC_ERR_IO);
    ck_contains(dlc_detail(), path);
    ck_contains(dlc_detail(), detail);
}

/* Gives a third of the values at once; the last ones end a turn. */
static dlc_status give_values(void *context, size_t at, const void **data,
                              size_t *bytes) {
    int *turn = context;
    size_t begin = at / sizeof *values, count = VALUES / 3 + 1;
    if (*turn < 0)
        return dlc_fail(DLC_ERR_IO, "no more %s", "values");
    if (count >= VALUES - begin)
        count = VALUES - begin;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)*turn + (float)(begin + i) / VALUES;
    *turn += begin + count == VALUES;
    *data = values;
    *bytes = count * sizeof *values;
    return DLC_OK;
}

TEST_SETTINGS(.timeout = 30, .setup = scratch_setup, .teardown = scratch_teardown);

/* One buffer for all tensors, filled when each of them is written. */
TEST(filled_when_written) {
    int turn = 1;
    const float all[2] = {1, 2};
    dlc_safetensor tensors[] = {
        {"a", DLC_F32, {1, {VALUES}}, NULL, give_values, &turn},
        {"plain", DLC_F32, {1, {2}}, all, NULL, NULL},
        {"b", DLC_F32, {1, {VALUES}}, NULL, give_values, &turn}};
    const char *path = scratch_path("file");
    ck_assert_int_eq(dlc_safetensors_write(path, tensors, 3, NULL, 0), DLC_OK);
    dlc_safetensors *file = NULL;
    ck_assert_int_eq(dlc_safetensors_open(path, &file), DLC_OK);
    for (int i = 0; i < 2; i++) {
        void *data = NULL;
        ck_assert_int_eq(dlc_safetensors_read(file, i ? "b" : "a", DLC_F32,
                                              &tensors[0].shape, &data),
                         DLC_OK);
        for (int k = 0; k < VALUES; k++)
            ck_assert(((const float *)data)[k] == (float)(i + 1) + (float)k / VALUES);
        dlc_free(data);
    }
    dlc_safetensors_close(file);

    /* If a tensor cannot be filled, the file stays unchanged. */
    size_t size, again;
    unsigned char *before = scratch_read("file", &size);
    turn = -1;
    ck_assert_int_eq(dlc_safetensors_write(path, tensors, 3, NULL, 0), DLC_ERR_IO);
    ck_contains(dlc_detail(), "no more values");
    unsigned char *after = scratch_read("file", &again);
    ck_assert(size == again && memcmp(before, after, size) == 0);
    ck_assert_int_eq(scratch_files(), 1);
    free(before);
    free(after);
}

/* The checksum was computed by another program (xxhsum -H1) from the bytes with
 * sixteen zeros in its place. */
TEST(exact_bytes) {
    static const char header[] =
        "{\"__metadata__\":{\"dlcore.checksum\":\"@@@@@@@@@@@@@@@@\","
        "\"dlcore.sealed\":\"xxh64\",\"a\":\"b\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    const float w[] = {1, 2};
    const dlc_safetensor tensors[] = {{"u", DLC_U8, {1, {3}}, "xyz", NULL, NULL},
                                      {"w", DLC_F32, {2, {1, 2}}, w, NULL, NULL}};
    const dlc_safetensors_pair pair = {"a", "b"};
    size_t size;
    ck_assert_int_eq(dlc_safetensors_write(scratch_path("file"), tensors, 2, &pair, 1),
                     DLC_OK);
    unsigned char *bytes = scratch_read("file", &size);
    size_t length = (sizeof header - 1 + 7) / 8 * 8;
    ck_assert_uint_eq(size, 8 + length + 11);
    ck_assert_uint_eq(bytes[0], length);
    ck_assert_mem_eq(bytes + 1, "\0\0\0\0\0\0\0", 7);
    for (size_t i = 0; i < length; i++) {
        char expected = i < sizeof header - 1 ? header[i] : ' ';
        if (expected != '@')
            ck_assert_int_eq(bytes[8 + i], expected);
    }
    ck_assert_mem_eq(bytes + 8 + length, w, 8);
    ck_assert_mem_eq(bytes + 8 + length + 8, "xyz", 3);
    ck_assert_mem_eq(strchr(header, '@') - header + 8 + (char *)bytes,
                     "350b3520d7dd760b", 16);
    free(bytes);
}

TEST(same_bytes_again) {
    size_t one_size, two_size;
    must_write(scratch_path("one"), 1);
    must_write(scratch_path("two"), 1);
    unsigned char *one = scratch_read("one", &one_size);
    unsigned char *two = scratch_read("two", &two_size);
    ck_assert_uint_eq(one_size, two_size);
    ck_assert_mem_eq(one, two, one_size);
    free(one);
    free(two);
    ck_assert_int_eq(scratch_files(), 2); /* nothing else is left */
}

TEST(replaces) {
    const char *path = scratch_path("file");
    must_write(path, 1);
    must_write(path, 2);
    ck_assert_float_eq(value_of(path), 2);
    ck_assert_int_eq(scratch_files(), 1);
}

TEST(in_the_current_folder) {
    ck_assert_int_eq(chdir(scratch_path("")), 0);
    must_write("file", 3);
    ck_assert_float_eq(value_of("file"), 3);
}

/* The disk is full after a number of bytes. */
TEST(no_space) {
    const char *path = scratch_path("file");
    size_t whole;
    must_write(path, 1);
    free(scratch_read("file", &whole));
    signal(SIGXFSZ, SIG_IGN);
    const rlim_t sizes[] = {0, 1, 7, 8, 9, 60, 200, 4096, whole / 2, whole - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct rlimit limit;
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
        limit.rlim_cur = sizes[i];
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        dlc_status status = write_values(path, 2);
        limit.rlim_cur = limit.rlim_max;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        ck_assert_int_eq(status, DLC_ERR_IO);
        ck_contains(dlc_detail(), "File too large");
        ck_contains(dlc_detail(), path);
        ck_assert_float_eq(value_of(path), 1);
        ck_assert_int_eq(scratch_files(), 1);
    }
    must_write(path, 3);
    ck_assert_float_eq(value_of(path), 3);
}

TEST(no_such_folder) {
    must_fail(scratch_path("absent/file"), "No such file or directory");
    must_fail("/proc/file", "cannot write");
    ck_assert_int_eq(mkdir(scratch_path("folder"), 0700), 0);
    must_fail(scratch_path("folder"), "cannot write");
    ck_assert_int_eq(scratch_files(), 1); /* the temporary file is gone */
    ck_assert_int_eq(rmdir(scratch_path("folder")), 0);
}

/* A file that a killed writer left behind is replaced. */
TEST(stale_part) {
    char junk[1 << 20];
    const char *path = scratch_path("file");
    memset(junk, 'x', sizeof junk);
    scratch_write("file.part", junk, sizeof junk); /* longer than ours will be */
    must_write(path, 4);
    ck_assert_float_eq(value_of(path), 4);
    ck_assert_int_eq(scratch_files(), 1);
}

TEST(part_is_a_link) {
    const char *path = scratch_path("file");
    scratch_write("precious", "gold", 4);
    ck_assert_int_eq(symlink(scratch_path("precious"), scratch_path("file.part")), 0);
    must_fail(path, "cannot write");
    size_t size;
    unsigned char *bytes = scratch_read("precious", &size);
    ck_assert_uint_eq(size, 4);
    free(bytes);
}

/* Opening a pipe would block forever. */
TEST(part_is_a_pipe) {
    const char *path = scratch_path("file");
    must_write(path, 1);
    ck_assert_int_eq(mkfifo(scratch_path("file.part"), 0600), 0);
    must_fail(path, "else than a regular file");
    ck_assert_float_eq(value_of(path), 1);
}

/* The temporary file is another name of a file that must not change. */
TEST(part_is_a_hard_link) {
    const char *path = scratch_path("file");
    scratch_write("precious", "gold", 4);
    ck_assert_int_eq(link(scratch_path("precious"), scratch_path("file.part")), 0);
    must_fail(path, "else than a regular file");
    size_t size;
    unsigned char *bytes = scratch_read("precious", &size);
    ck_assert_uint_eq(size, 4);
    ck_assert_mem_eq(bytes, "gold", 4);
    free(bytes);
}

/* The checkpoint does not inherit the mode of a stale temporary file. */
TEST(part_has_another_mode) {
    struct stat info;
    const char *path = scratch_path("file");
    scratch_write("file.part", "old", 3);
    ck_assert_int_eq(chmod(scratch_path("file.part"), 0777), 0);
    mode_t mask = umask(022);
    must_write(path, 3);
    umask(mask);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0644);
}

TEST(another_writer) {
    const char *path = scratch_path("file");
    must_write(path, 1);
    int fd = open(scratch_path("file.part"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    must_fail(path, "another process is writing it");
    ck_assert_float_eq(value_of(path), 1);
    ck_assert_int_eq(flock(fd, LOCK_SH), 0); /* a reader that locks it also counts */
    must_fail(path, "another process is writing it");
    close(fd);
    must_write(path, 2);
    ck_assert_float_eq(value_of(path), 2);
}

/* The writer is killed at random moments: the file is always complete. */
TEST(killed) {
    const char *path = scratch_path("file");
    must_write(path, 0);
    for (long round = 0; round < 30; round++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            for (float value = 1;; value++)
                write_values(path, value);
        }
        nanosleep(&(struct timespec){.tv_nsec = 300000 * (round + 1)}, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert_float_ge(value_of(path), 0);
    }
    must_write(path, -1);
    ck_assert_float_eq(value_of(path), -1);
    ck_assert_int_eq(scratch_files(), 1);
}

TEST(wrong_arguments) {
    const dlc_safetensor duplicates[] = {{"w", DLC_U8, {1, {1}}, "x", NULL, NULL},
                                         {"w", DLC_U8, {1, {1}}, "x", NULL, NULL}};
    const dlc_safetensor metadata = {"__metadata__", DLC_U8, {1, {1}}, "x", NULL, NULL};
    const dlc_safetensor typeless = {"w", (dlc_dtype)0, {1, {1}}, "x", NULL, NULL};
    const char *path = scratch_path("file");
    ck_assert_int_eq(dlc_safetensors_write(path, duplicates, 2, NULL, 0),
                     DLC_ERR_INTERNAL);
    ck_assert_int_eq(dlc_safetensors_write(path, &metadata, 1, NULL, 0),
                     DLC_ERR_INTERNAL);
    ck_assert_int_eq(dlc_safetensors_write(path, &typeless, 1, NULL, 0),
                     DLC_ERR_INTERNAL);
    ck_assert_int_eq(scratch_files(), 0);
}

TEST(no_memory) {
    const char *path = scratch_path("file");
    dlc_status status = DLC_ERR_NOMEM;
    must_write(path, 1);
    for (size_t n = 1; status != DLC_OK; n++) {
        ck_assert_uint_lt(n, 100);
        dlc_memory_fail_at(n);
        status = write_values(path, 2);
        dlc_memory_fail_at(0);
        if (status != DLC_OK)
            ck_assert_int_eq(status, DLC_ERR_NOMEM);
        ck_assert_float_eq(value_of(path), status == DLC_OK ? 2 : 1);
        ck_assert_int_eq(scratch_files(), 1);
    }
}
