/* Conformance of the cpu device's memory: zeroed, aligned, of any size; shared between
 * processes, and refused when it is not the exported memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/test.h"

static const dlc_device_ops *ops;
static dlc_device *device;

static void setup(void) {
    dlc_device_args args = {.size = sizeof args, .threads = 2};
    ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    ck_assert_int_eq(ops->open(&args, &device), DLC_OK);
}

static void teardown(void) {
    ops->close(device);
    plugins_close();
}

static dlc_memory no_memory(void) {
    return (dlc_memory){.size = sizeof(dlc_memory)};
}

TEST_SETTINGS(.name = "memory", .timeout = 60, .setup = setup, .teardown = teardown);

TEST(zeroed_and_aligned) {
    static const size_t sizes[] = {0,    1,       63,      64,      4096,
                                   4097, 2097151, 2097152, 2097153, 40000000};
    for (uint32_t flags = 0; flags <= 3; flags++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            dlc_memory memory = no_memory();
            ck_assert_int_eq(ops->alloc(device, sizes[i], flags, &memory), DLC_OK);
            ck_assert_ptr_nonnull(memory.base);
            ck_assert_uint_eq((uintptr_t)memory.base % 64, 0);
            ck_assert_uint_eq(memory.bytes, sizes[i]);
            const char *bytes = memory.base;
            int any = 0;
            for (size_t k = 0; k < sizes[i]; k += 61)
                any |= bytes[k];
            ck_assert_int_eq(any, 0);
            memset(memory.base, 0x77, sizes[i]);
            ops->free(device, &memory);
            ck_assert_ptr_null(memory.base);
            ops->free(device, &memory); /* freeing twice does no harm */
        }
}

TEST(too_much) {
    static const size_t sizes[] = {(size_t)1 << 60, SIZE_MAX, SIZE_MAX - 100};
    for (uint32_t flags = 0; flags <= DLC_MEM_SHARED; flags++)
        for (size_t i = 0; i < 3; i++) {
            dlc_memory memory = no_memory();
            ck_assert_int_eq(ops->alloc(device, sizes[i], flags, &memory),
                             DLC_ERR_NOMEM);
            ck_assert_str_ne(dlc_detail(), "");
            ck_assert_ptr_null(memory.base);
        }
}

TEST(only_shared_is_exported) {
    dlc_memory memory = no_memory(), again = no_memory();
    dlc_ipc_handle share = {.size = sizeof share};
    ck_assert_int_eq(ops->alloc(device, 1 << 22, 0, &memory), DLC_OK);
    ck_assert_int_eq(ops->ipc_export(device, &memory, &share), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "DLC_MEM_SHARED"));
    ops->free(device, &memory);
    ck_assert_int_eq(ops->alloc(device, 1000, DLC_MEM_SHARED, &memory), DLC_OK);
    ck_assert_int_eq(ops->ipc_export(device, &memory, &share), DLC_OK);
    ck_assert_int_eq(ops->ipc_import(device, &share, &again), DLC_OK);
    ck_assert_uint_eq(again.bytes, 1000);
    ck_assert_ptr_ne(again.base, memory.base);
    ((char *)memory.base)[999] = 5;
    ck_assert_int_eq(((char *)again.base)[999], 5);
    /* Only the owner may export imported memory. */
    ck_assert_int_eq(ops->ipc_export(device, &again, &share), DLC_ERR_CONFIG);
    ops->free(device, &again);
    ops->free(device, &memory);
}

TEST(freed_is_refused) {
    dlc_memory memory = no_memory(), other = no_memory(), again = no_memory();
    dlc_ipc_handle share = {.size = sizeof share};
    ck_assert_int_eq(ops->alloc(device, 5000, DLC_MEM_SHARED, &memory), DLC_OK);
    ck_assert_int_eq(ops->ipc_export(device, &memory, &share), DLC_OK);
    ops->free(device, &memory);
    ck_assert_int_eq(ops->ipc_import(device, &share, &again), DLC_ERR_IO);
    /* Another file under the same descriptor number. */
    ck_assert_int_eq(ops->alloc(device, 5000, DLC_MEM_SHARED, &other), DLC_OK);
    ck_assert_int_eq(ops->ipc_import(device, &share, &again), DLC_ERR_IO);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "not what was exported"));
    ops->free(device, &other);
}

TEST(changed_shares) {
    dlc_memory memory = no_memory();
    dlc_ipc_handle share = {.size = sizeof share};
    size_t refused = 0;
    ck_assert_int_eq(ops->alloc(device, 5000, DLC_MEM_SHARED, &memory), DLC_OK);
    ck_assert_int_eq(ops->ipc_export(device, &memory, &share), DLC_OK);
    for (size_t i = offsetof(dlc_ipc_handle, pid); i < sizeof share; i++) {
        dlc_ipc_handle changed = share;
        dlc_memory again = no_memory();
        ((unsigned char *)&changed)[i] ^= 0xff;
        if (ops->ipc_import(device, &changed, &again) != DLC_OK)
            refused++;
        else
            ops->free(device, &again);
    }
    ck_assert_uint_ge(refused, 4 + 6 + 32); /* pid, the size's upper bytes, the key */
    ops->free(device, &memory);
}

TEST(describes_itself) {
    dlc_device_info info = {.size = sizeof info};
    dlc_device_args args = {.size = sizeof args, .index = 1};
    int32_t count = 0;
    ck_assert_int_eq(ops->count(&count), DLC_OK);
    ck_assert_int_eq(count, 1);
    ck_assert_int_eq(ops->describe(0, &info), DLC_OK);
    ck_assert_str_ne(info.name, "");
    ck_assert_int_ge(info.compute_units, 1);
    ck_assert_uint_gt(info.memory_bytes, 1 << 20);
    ck_assert_int_eq(ops->describe(1, &info), DLC_ERR_CONFIG);
    ck_assert_int_eq(ops->open(&args, &device), DLC_ERR_CONFIG);
    /* A caller that knows only the name. */
    memset(&info, 0x55, sizeof info);
    info.size = offsetof(dlc_device_info, memory_bytes);
    ck_assert_int_eq(ops->describe(0, &info), DLC_OK);
    ck_assert_uint_eq(info.memory_bytes, 0x5555555555555555u);
}

/* Rank 0 owns it and has exited before the others read it. */
static void shared_body(test_rank *rank, void *context) {
    size_t bytes = *(const size_t *)context;
    dlc_ipc_handle mine = {.size = sizeof mine}, all[3];
    dlc_memory own = no_memory(), its = no_memory();

    setup();
    RANK_OK(rank, ops->alloc(device, bytes, DLC_MEM_SHARED, &own));
    memset(own.base, 'a' + rank->rank, bytes);
    RANK_OK(rank, ops->ipc_export(device, &own, &mine));
    RANK_OK(rank, ranks_all_gather(rank, &mine, sizeof mine, all));
    if (rank->rank > 0)
        RANK_OK(rank, ops->ipc_import(device, &all[0], &its));
    ranks_barrier(rank);
    if (rank->rank == 0)
        _exit(0);
    usleep(20000);
    const char *at = its.base;
    RANK_CHECK(rank, its.bytes == bytes && at[0] == 'a' && at[bytes - 1] == 'a');
    ((char *)its.base)[rank->rank] = 'z'; /* and may be written to */
    ops->free(device, &its);
    ops->free(device, &own);
    teardown();
}

TEST_SETTINGS(.name = "between processes", .timeout = 60);

TEST_EACH(outlives_its_owner, 2) {
    size_t bytes = _i == 0 ? 100 : 5 << 20;
    ck_assert_int_eq(ranks_run(3, 30, shared_body, &bytes), 0);
}
