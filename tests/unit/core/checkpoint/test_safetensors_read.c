/* Tests reading safetensors files: what is accepted, and everything that must be
 * refused. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "support/scratch.h"
#include "support/test.h"

#define FILE_MOST 4096

/* A file with this header (without padding) and data bytes 0, 1, 2, ... */
static const char *foreign(const char *header, size_t data_bytes) {
    unsigned char bytes[FILE_MOST] = {0};
    size_t length = strlen(header);
    bytes[0] = (unsigned char)length;
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return scratch_write("file", bytes, 8 + length + data_bytes);
}

/* Avoids ck_assert on success, which costs more than the rest and runs thousands of
 * times. */
static void refused(const char *path, const char *detail) {
    dlc_safetensors *file = NULL;
    dlc_status status = dlc_safetensors_open(path, &file);
    if (status != DLC_ERR_DATA || file)
        ck_abort_msg("status %d, not bad data: %s", status, dlc_detail());
    if (!strstr(dlc_detail(), detail) || !strstr(dlc_detail(), path))
        ck_abort_msg("\"%s\" or %s is not in \"%s\"", detail, path, dlc_detail());
}

static dlc_safetensors *opened(const char *path) {
    dlc_safetensors *file = NULL;
    dlc_status status = dlc_safetensors_open(path, &file);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return file;
}

/* ---- Files of dlcore ------------------------------------------------------------ */

static const float weights[] = {1, -2, 3.5f, 0, 1e-40f, 6};
static const unsigned char blob[] = {0, 1, 255};
static const int64_t clocks[] = {INT64_MIN, 7};

static const char *own(void) {
    const dlc_safetensor tensors[] = {
        {"blob", DLC_U8, {1, {3}}, blob, NULL, NULL},
        {"conv1.weight", DLC_F32, {4, {1, 2, 3, 1}}, weights, NULL, NULL},
        {"clocks", DLC_I64, {1, {2}}, clocks, NULL, NULL},
        {"iteration", DLC_I64, {0, {0}}, clocks + 1, NULL, NULL},
        {"nothing", DLC_F32, {2, {4, 0}}, NULL, NULL, NULL},
    };
    const dlc_safetensors_pair pairs[] = {{"dlcore.net", "a \"quoted\"\nname \xc3\xa9"},
                                          {"other", ""}};
    const char *path = scratch_path("file");
    dlc_status status = dlc_safetensors_write(path, tensors, 5, pairs, 2);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return path;
}

/* Checks that a tensor has these bytes. */
static void check_tensor(const dlc_safetensors *file, const char *name, dlc_dtype dtype,
                         const dlc_shape *shape, const void *bytes, size_t count) {
    void *data = NULL;
    dlc_status status = dlc_safetensors_read(file, name, dtype, shape, &data);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    ck_assert_mem_eq(data, bytes, count);
    dlc_free(data);
}

TEST_SETTINGS(.timeout = 30, .setup = scratch_setup, .teardown = scratch_teardown);

TEST(round_trip) {
    const dlc_shape shape = {4, {1, 2, 3, 1}};
    const char *path = own();
    dlc_safetensors *file = opened(path);
    ck_assert_str_eq(dlc_safetensors_path(file), path);
    ck_assert_uint_eq(dlc_safetensors_count(file), 5);
    ck_assert_int_eq(dlc_safetensors_find(file, "conv1.weight", DLC_F32, &shape),
                     DLC_OK);
    check_tensor(file, "conv1.weight", DLC_F32, &shape, weights, sizeof weights);
    check_tensor(file, "blob", DLC_U8, NULL, blob, sizeof blob);
    check_tensor(file, "clocks", DLC_I64, NULL, clocks, sizeof clocks);
    check_tensor(file, "iteration", DLC_I64, &(dlc_shape){0, {0}}, clocks + 1,
                 sizeof *clocks);
    check_tensor(file, "nothing", DLC_F32, &(dlc_shape){2, {4, 0}}, "", 0);
    ck_assert_str_eq(dlc_safetensors_metadata(file, "dlcore.net"),
                     "a \"quoted\"\nname \xc3\xa9");
    ck_assert_str_eq(dlc_safetensors_metadata(file, "other"), "");
    ck_assert_ptr_null(dlc_safetensors_metadata(file, "absent"));
    dlc_safetensors_close(file);
    dlc_safetensors_close(NULL);
}

/* Tensors are sorted by element size, so that each is aligned in the file. */
TEST(in_order) {
    dlc_safetensors *file = opened(own());
    for (size_t i = 1; i < dlc_safetensors_count(file); i++)
        ck_assert_uint_ge(dlc_dtype_bytes(dlc_safetensors_at(file, i - 1)->dtype),
                          dlc_dtype_bytes(dlc_safetensors_at(file, i)->dtype));
    dlc_safetensors_close(file);
}

static void not_found_as(const dlc_safetensors *file, const char *name, dlc_dtype dtype,
                         const dlc_shape *shape, const char *detail) {
    void *data = &data;
    ck_assert_int_eq(dlc_safetensors_find(file, name, dtype, shape), DLC_ERR_DATA);
    ck_contains(dlc_detail(), detail);
    ck_assert_int_eq(dlc_safetensors_read(file, name, dtype, shape, &data),
                     DLC_ERR_DATA);
    ck_contains(dlc_detail(), detail);
    ck_assert_ptr_eq(data, (void *)&data); /* set only on success */
}

TEST(not_found) {
    const dlc_shape wanted = {2, {3, 2}};
    dlc_safetensors *file = opened(own());
    ck_assert_ptr_null(dlc_safetensors_get(file, "conv1.weigth"));
    not_found_as(file, "conv1.weigth", DLC_F32, &wanted,
                 "has no tensor 'conv1.weigth'; the nearest name in it is "
                 "'conv1.weight'");
    not_found_as(file, "zzzzzzzz", DLC_F32, &wanted, "has no tensor 'zzzzzzzz'");
    ck_assert_ptr_null(strstr(dlc_detail(), "nearest"));
    not_found_as(file, "conv1.weight", DLC_F32, &wanted,
                 "has shape [1, 2, 3, 1], but [3, 2] is needed");
    not_found_as(file, "blob", DLC_F32, NULL,
                 "tensor 'blob' is of type U8, but F32 is needed");
    not_found_as(file, "conv1.weight", DLC_I64, &(dlc_shape){4, {1, 2, 3, 1}},
                 "tensor 'conv1.weight' is of type F32, but I64 is needed");
    dlc_safetensors_close(file);
}

TEST(every_truncation) {
    size_t size;
    own();
    unsigned char *bytes = scratch_read("file", &size);
    for (size_t n = 0; n < size; n++)
        refused(scratch_write("cut", bytes, n), "");
    free(bytes);
}

TEST(every_bit) {
    size_t size;
    own();
    unsigned char *bytes = scratch_read("file", &size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        refused(scratch_write("flipped", bytes, size), "");
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    dlc_safetensors_close(opened(scratch_write("flipped", bytes, size)));
    free(bytes);
}

TEST(longer) {
    size_t size;
    own();
    unsigned char *bytes = scratch_read("file", &size);
    bytes[size] = 0;
    refused(scratch_write("longer", bytes, size + 1), "bytes of data");
    free(bytes);
}

/* ---- Files of other programs ------------------------------------------------------
 */

/* Common libraries write files without a checksum, with tensors in any order. */
TEST(by_another_program) {
    dlc_safetensors *file = opened(foreign(
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
        "\"a\" : {\"shape\": [1, 2], \"data_offsets\": [0, 8], \"dtype\": \"F32\"},"
        "\"c\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[12,14]}}   ",
        14));
    ck_assert_uint_eq(dlc_safetensors_count(file), 3);
    ck_assert_str_eq(dlc_safetensors_at(file, 0)->name, "a");
    ck_assert_str_eq(dlc_safetensors_at(file, 2)->name, "c");
    ck_assert_int_eq(dlc_safetensors_at(file, 2)->dtype, 0);
    ck_assert_str_eq(dlc_safetensors_metadata(file, "format"), "pt");
    check_tensor(file, "b", DLC_F16, NULL, "\x08\x09\x0a\x0b", 4);
    ck_assert_int_eq(dlc_safetensors_find(file, "c", DLC_F32, NULL), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "is of type I16");
    dlc_safetensors_close(file);

    file = opened(foreign("{}", 0));
    ck_assert_uint_eq(dlc_safetensors_count(file), 0);
    ck_assert_int_eq(dlc_safetensors_find(file, "a", DLC_F32, NULL), DLC_ERR_DATA);
    dlc_safetensors_close(file);
}

/* A tensor that is not aligned in the file is read into aligned memory. */
TEST(not_aligned) {
    const unsigned char expected[] = {1, 2, 3, 4};
    dlc_safetensors *file = opened(
        foreign("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
                5));
    check_tensor(file, "b", DLC_F32, NULL, expected, sizeof expected);
    dlc_safetensors_close(file);
}

#define TENSOR(type, shape, offsets) \
    "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *detail;
} bad_headers[] = {
    {"[]", 0, "not a JSON object"},
    {" {}", 0, "not a JSON object"},
    {"{]", 0, "not JSON: "},
    {"{} {}", 0, "not JSON: "},
    {"{\"a\":1,\"a\":2}", 0, "duplicate object key"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ in the header is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "'a' in __metadata__ of the header is not"},
    {"{\"a\":1}", 0, "tensor 'a' in the header doesn't have dtype"},
    {"{\"a\":{}}", 0, "doesn't have dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
     "doesn't have dtype"},
    {"{\"a\":{\"dtyp\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "has no known dtype"},
    {"{\"a\":" TENSOR("U9", "[1]", "[0,1]") "}", 1, "has no known dtype"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no known dtype"},
    {"{\"a\":" TENSOR("U8", "1", "[0,1]") "}", 1, "has no shape"},
    {"{\"a\":" TENSOR("U8", "{}", "[0,1]") "}", 1, "has no shape"},
    {"{\"a\":" TENSOR("U8", "[1,1,1,1,1,1,1]", "[0,1]") "}", 1, "up to 6 dimensions"},
    {"{\"a\":" TENSOR("U8", "[-1]", "[0,1]") "}", 1, "not a whole number"},
    {"{\"a\":" TENSOR("U8", "[1.0]", "[0,1]") "}", 1, "not a whole number"},
    {"{\"a\":" TENSOR("U8", "[\"1\"]", "[0,1]") "}", 1, "not a whole number"},
    {"{\"a\":" TENSOR("U8", "[99999999999999999999]", "[0,1]") "}", 1, "not JSON: "},
    {"{\"a\":" TENSOR("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "large shape"},
    {"{\"a\":" TENSOR("U8", "[4611686018427387904,2,0]", "[0,0]") "}", 0,
     "large shape"},
    {"{\"a\":" TENSOR("U8", "[1]", "[0]") "}", 1, "no pair of data_offsets"},
    {"{\"a\":" TENSOR("U8", "[1]", "[0,1,2]") "}", 1, "no pair of data_offsets"},
    {"{\"a\":" TENSOR("U8", "[1]", "[1,0]") "}", 1, "no pair of data_offsets"},
    {"{\"a\":" TENSOR("U8", "[1]", "[-1,0]") "}", 1, "no pair of data_offsets"},
    {"{\"a\":" TENSOR("U8", "[1]", "[0,1.5]") "}", 1, "no pair of data_offsets"},
    {"{\"a\":" TENSOR("U8", "[1]", "{}") "}", 1, "no pair of data_offsets"},
    {"{\"a\":" TENSOR("F32", "[2]", "[0,4]") "}", 4, "should take 8 bytes"},
    {"{\"a\":" TENSOR("U8", "[2]", "[0,2]") "}", 1, "the tensors take 2 bytes"},
    {"{\"a\":" TENSOR("U8", "[2]", "[0,2]") "}", 3, "but the file has 3 bytes"},
    {"{\"a\":" TENSOR("U8", "[1]", "[1,2]") "}", 2, "should begin at byte 0"},
    {"{\"a\":" TENSOR("U8", "[2]", "[0,2]") ",\"b\":" TENSOR("U8", "[1]", "[1,2]") "}",
     2, "tensor 'b' should begin at byte 2"},
    {"{\"a\":" TENSOR("U8", "[1]", "[0,1]") ",\"b\":" TENSOR("U8", "[1]", "[2,3]") "}",
     3, "tensor 'b' should begin at byte 1"},
    {"{\"a\":" TENSOR("U8", "[1]", "[0,1]") ",\"b\":" TENSOR("U8", "[1]", "[0,1]") "}",
     1, "should begin at byte 1"},
    {"{\"a\":" TENSOR("U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
     "should begin at byte 0"},
    {"{\"__metadata__\":{\"dlcore.net\":\"x\"}}", 0, "damaged or edited"},
    {"{\"__metadata__\":{\"dlcore.checksum\":\"x\"}}", 0, "damaged or edited"},
    {"{\"__metadata__\":{\"dlcore.checksum\":\"0123456789abcdef\"}}", 0,
     "damaged or edited"},
    {"{\"__metadata__\":{\"dlcore.checksum\": \"0123456789abcdef\"}}", 0,
     "damaged or edited"},
};

TEST_EACH(bad_header, COUNT(bad_headers)) {
    refused(foreign(bad_headers[_i].header, bad_headers[_i].data_bytes),
            bad_headers[_i].detail);
}

TEST(other_kinds_of_files) {
    refused(scratch_write("file", "", 0), "too short");
    refused(scratch_write("file", "123456789", 9), "too short");
    refused(scratch_write("file", "GIF89a, not tensors", 19), "not a safetensors file");
    refused(scratch_write("file", "\1\0\0\0\0\0\0\0{}", 10), "header of 1 bytes");
    refused(scratch_write("file", "\1\0\0\1\0\0\0\0{}", 10),
            "header of 16777217 bytes");
    refused(scratch_write("file", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
            "header of 18446744073709551615 bytes");
    refused(scratch_write("file", "\3\0\0\0\0\0\0\0{}", 10),
            "its header alone takes 11");
    refused(scratch_path("absent"), "No such file");
    refused("/", "is not a file");
    ck_assert_int_eq(mkfifo(scratch_path("pipe"), 0600), 0); /* must not hang */
    refused(scratch_path("pipe"), "is not a file");
}

/* Deep nesting must not overflow the stack. */
TEST(deeply_nested) {
    size_t depth = 1 << 20;
    unsigned char *bytes = malloc(8 + depth);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, '[', 8 + depth);
    memcpy(bytes, "\0\0\x10\0\0\0\0\0{\"a\":", 13);
    refused(scratch_write("file", bytes, 8 + depth), "not JSON: ");
    free(bytes);
}

/* ---- Memory ------------------------------------------------------------------ */

TEST(no_memory) {
    const char *path = own();
    dlc_status status = DLC_ERR_NOMEM;
    size_t n = 1;
    for (; status != DLC_OK; n++) {
        dlc_safetensors *file = NULL;
        ck_assert_uint_lt(n, 100);
        dlc_memory_fail_at(n);
        status = dlc_safetensors_open(path, &file);
        dlc_memory_fail_at(0);
        if (status != DLC_OK) {
            ck_assert_int_eq(status, DLC_ERR_NOMEM);
            ck_assert_ptr_null(file);
        }
        dlc_safetensors_close(file);
    }
    ck_assert_uint_gt(n, 5);

    void *data = NULL;
    dlc_safetensors *file = opened(path);
    dlc_memory_fail_at(1);
    status = dlc_safetensors_read(file, "blob", DLC_U8, NULL, &data);
    dlc_memory_fail_at(0);
    ck_assert_int_eq(status, DLC_ERR_NOMEM);
    ck_assert_ptr_null(data);
    dlc_safetensors_close(file);
}

/* The peak resident memory of this process in MiB. */
static long peak_mib(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss / 1024;
}

/* Writes a sparse file whose tensor is one hole of `mib` MiB. */
static const char *sparse(const char *metadata, long long mib) {
    char header[256];
    long long bytes = mib << 20;
    int length = snprintf(header, sizeof header,
                          "{%s\"a\":" TENSOR("U8", "[%lld]", "[0,%lld]") "}", metadata,
                          bytes, bytes);
    const char *path = foreign(header, 0);
    ck_assert_int_eq(truncate(path, 8 + length + bytes), 0);
    return path;
}

/* Opening a huge file, or checking its checksum, takes little memory. */
TEST(memory_of_a_huge_file) {
    long before = peak_mib();
    dlc_safetensors *file = opened(sparse("", 8192));
    ck_assert_int_eq(
        dlc_safetensors_find(file, "a", DLC_U8, &(dlc_shape){1, {1 << 20}}),
        DLC_ERR_DATA);
    dlc_safetensors_close(file);
    refused(sparse("\"__metadata__\":{\"dlcore.checksum\":\"0123456789abcdef\"},", 128),
            "damaged or edited");
    ck_assert_int_lt(peak_mib() - before, 32);
}

/* How many bytes this process has read by system calls. */
static long long bytes_read(void) {
    long long bytes = -1;
    FILE *io = fopen("/proc/self/io", "re");
    ck_assert_ptr_nonnull(io);
    ck_assert_int_eq(fscanf(io, "rchar: %lld", &bytes), 1);
    fclose(io);
    return bytes;
}

/* A tool that copies files, or a compressing file system, may store zeros as holes: the
 * file is still whole, and its holes need not be read. */
TEST(zeros_as_holes) {
    enum { BYTES = 64 << 20, ODD = 12345 };
    unsigned char *bytes = calloc(1, BYTES);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes + (8 << 20), 7, ODD);
    const dlc_safetensor tensor = {"big", DLC_U8, {1, {BYTES}}, bytes, NULL, NULL};
    const char *path = scratch_path("file");
    ck_assert_int_eq(dlc_safetensors_write(path, &tensor, 1, NULL, 0), DLC_OK);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    /* Around the bytes that are not zero, and to the end of the file. */
    ck_assert_int_eq(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 6 << 20), 0);
    ck_assert_int_eq(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 9 << 20, BYTES), 0);
    close(fd);
    long long before = bytes_read();
    dlc_safetensors *file = opened(path);
    ck_assert_int_lt(bytes_read() - before, 6 << 20);
    check_tensor(file, "big", DLC_U8, NULL, bytes, BYTES);
    dlc_safetensors_close(file);
    /* A hole in place of bytes that are not zero is damage. */
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8 << 20, 1 << 20), 0);
    close(fd);
    refused(path, "damaged or edited");
    free(bytes);
}

/* A file with more holes than its file system has room is refused without hashing
 * zeros for hours. */
TEST(more_holes_than_room) {
    struct statvfs disk;
    ck_assert_int_eq(statvfs(scratch_path(""), &disk), 0);
    long long mib = (long long)(disk.f_blocks * disk.f_frsize >> 20) + 1;
    double before = dlc_cpu_seconds();
    refused(sparse("\"__metadata__\":{\"dlcore.checksum\":\"0123456789abcdef\"},", mib),
            "has holes of ");
    ck_contains(dlc_detail(), "bytes of its file system");
    ck_assert_double_lt(dlc_cpu_seconds() - before, 1);
}

/* The checksum covers all chunks that it is computed in. */
TEST(many_chunks) {
    enum { BYTES = (3 << 20) + 5 };
    size_t size;
    unsigned char *bytes = calloc(1, BYTES);
    ck_assert_ptr_nonnull(bytes);
    const dlc_safetensor tensor = {"big", DLC_U8, {1, {BYTES}}, bytes, NULL, NULL};
    const char *path = scratch_path("file");
    ck_assert_int_eq(dlc_safetensors_write(path, &tensor, 1, NULL, 0), DLC_OK);
    dlc_safetensors *file = opened(path);
    check_tensor(file, "big", DLC_U8, NULL, bytes, BYTES);
    dlc_safetensors_close(file);
    free(bytes);
    bytes = scratch_read("file", &size);
    for (size_t at = size - 1; at > 1 << 20; at -= 1 << 20) {
        bytes[at] ^= 1;
        refused(scratch_write("flipped", bytes, size), "damaged or edited");
        bytes[at] ^= 1;
    }
    free(bytes);
}

static size_t json_left;

static void *json_malloc(size_t size) {
    if (json_left == 0)
        return NULL;
    json_left--;
    return malloc(size);
}

/* Whichever allocation of jansson fails, there is an error and no leak. */
TEST(no_memory_for_json) {
    const char *path = own();
    dlc_status status = DLC_ERR_NOMEM;
    json_set_alloc_funcs(json_malloc, free);
    for (size_t n = 0; status != DLC_OK; n++) {
        dlc_safetensors *file = NULL;
        ck_assert_uint_lt(n, 10000);
        json_left = n;
        status = dlc_safetensors_open(path, &file);
        json_left = SIZE_MAX;
        ck_assert_int_eq(file == NULL, status != DLC_OK);
        dlc_safetensors_close(file);
    }
    json_set_alloc_funcs(malloc, free);
}
