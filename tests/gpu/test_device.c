/* A device with queues: memory, queues, events, captured graphs, sharing between
 * processes. Tests the GPU, or the device that DLCORE_TEST_DEVICE names; kernels are
 * tested by tests/conformance/device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/cuda.h>

#include "base/status.h"
#include "support/mirror.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/test.h"
#include "support/updates.h"

enum { N = 50000, BUFFERS = 4, BYTES = N * sizeof(float) };

#define OK(call) ck_assert_msg((call) == DLC_OK, "%s: %s", #call, dlc_detail())

static const dlc_device_ops *ops;
static dlc_device *device;
static dlc_memory memory[BUFFERS], staging;
static float *x[BUFFERS]; /* on the device */
static float *here;       /* staging memory */
static dlc_queue *q1, *q2;
static dlc_event *e1, *e2;

static int is_gpu(void) {
    return strcmp(getenv("DLCORE_TEST_DEVICE"), "cuda") == 0;
}

static dlc_memory none(void) {
    return (dlc_memory){.size = sizeof(dlc_memory)};
}

static void open_device(void) {
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    const dlc_feature *feature = plugin_find(DLC_KIND_DEVICE,
                                             getenv("DLCORE_TEST_DEVICE"));
    ops = feature->ops;
    OK(ops->open(&args, &device));
}

static void setup(void) {
    open_device();
    for (int i = 0; i < BUFFERS; i++) {
        memory[i] = none();
        OK(ops->alloc(device, BYTES, 0, &memory[i]));
        x[i] = memory[i].base;
    }
    staging = none();
    OK(ops->alloc(device, BYTES, DLC_MEM_STAGING, &staging));
    here = staging.base;
    OK(ops->queues->queue_open(device, &q1));
    OK(ops->queues->queue_open(device, &q2));
    OK(ops->queues->event_open(device, &e1));
    OK(ops->queues->event_open(device, &e2));
}

static void teardown(void) {
    ops->queues->event_close(device, e1);
    ops->queues->event_close(device, e2);
    ops->queues->queue_close(device, q1);
    ops->queues->queue_close(device, q2);
    ops->free(device, &staging);
    for (int i = 0; i < BUFFERS; i++)
        ops->free(device, &memory[i]);
    ops->close(device);
    plugins_close();
}

/* Sets or reads all elements of a buffer, without regard to queues. */
static void set(float *at, float value) {
    for (int i = 0; i < N; i++)
        here[i] = value;
    OK(ops->copy(device, NULL, at, here, BYTES));
}

static float value_of(const float *at) {
    OK(ops->copy(device, NULL, here, at, BYTES));
    for (int i = 1; i < N; i++)
        if (here[i] != here[0])
            return NAN;
    return here[0];
}

/* Sets bytes, in device or host memory. */
static dlc_status put(void *at, int byte, size_t bytes) {
    void *from = malloc(bytes + 1);
    memset(from, byte, bytes + 1);
    dlc_status status = ops->copy(device, NULL, at, from, bytes);
    free(from);
    return status;
}

/* Is any byte non-zero? Checks a host buffer. */
static int any_byte(const void *at, size_t bytes) {
    unsigned char *seen = malloc(bytes + 1);
    int any = 0;
    OK(ops->copy(device, NULL, seen, at, bytes));
    for (size_t i = 0; i < bytes; i++)
        any |= seen[i];
    free(seen);
    return any;
}

/* ---- Sharing between processes ------------------------------------------------ */

/* By file descriptor, and not by cudaIpc, which has more limits. */
static int by_file(const dlc_ipc_handle *share) {
    return !is_gpu() || memcmp(share->key, "dlcore cuda", 11) == 0;
}

typedef struct sharing {
    size_t bytes;
    uint32_t flags;
} sharing;

/* Rank 0 owns it and has exited before the others read it again. */
static void share_body(test_rank *rank, void *context) {
    const sharing *how = context;
    dlc_ipc_handle mine = {.size = sizeof mine}, all[3];
    dlc_memory own = none(), its = none();
    unsigned char seen[2] = {0};

    open_device();
    RANK_OK(rank, ops->alloc(device, how->bytes, how->flags, &own));
    RANK_OK(rank, put(own.base, 'a' + rank->rank, how->bytes));
    RANK_OK(rank, ops->ipc_export(device, &own, &mine));
    RANK_OK(rank, ranks_all_gather(rank, &mine, sizeof mine, all));
    if (rank->rank > 0) {
        RANK_OK(rank, ops->ipc_import(device, &all[0], &its));
        RANK_OK(rank, ops->copy(device, NULL, seen, its.base, 1));
        RANK_CHECK(rank, its.bytes == how->bytes && seen[0] == 'a');
    }
    ranks_barrier(rank);
    if (rank->rank > 0) /* each its own byte: all write to the same memory */
        RANK_OK(rank, put((char *)its.base + rank->rank, 'z', 1));
    ranks_barrier(rank);
    if (rank->rank == 0) {
        RANK_OK(rank, ops->copy(device, NULL, seen, (char *)own.base + 1, 2));
        RANK_CHECK(rank, seen[0] == 'z' && seen[1] == 'z');
    }
    if (by_file(&all[0])) {
        ranks_barrier(rank);
        if (rank->rank == 0)
            _exit(0);
        usleep(100000);
        RANK_OK(rank,
                ops->copy(device, NULL, seen, (char *)its.base + how->bytes - 1, 1));
        RANK_CHECK(rank, seen[0] == 'a');
        RANK_OK(rank,
                ops->copy(device, NULL, seen, (char *)its.base + 3 - rank->rank, 1));
        RANK_CHECK(rank, seen[0] == 'z');
    }
    ops->free(device, &its);
    if (!by_file(&all[0])) /* with cudaIpc the owner waits for importers */
        ranks_barrier(rank);
    ops->free(device, &own);
    ops->close(device);
    plugins_close();
}

static const sharing shared[] = {{100, DLC_MEM_SHARED},
                                 {5 << 20, DLC_MEM_SHARED},
                                 {9000, DLC_MEM_SHARED | DLC_MEM_STAGING}};

static int begin(int argc, char **argv) {
    return setenv("DLCORE_TEST_DEVICE", "cuda", 0) == 0 ? mirror_begin(argc, argv)
                                                        : EXIT_FAILURE;
}

/* These first: with CK_FORK=no this process starts CUDA later, and cannot fork then. */
TEST_SETTINGS(.name = "between processes", .timeout = 60, .begin = begin);

/* Forked after the plugin was loaded and queried, as ranks are. */
TEST_EACH(processes_share_memory, 3) {
    dlc_device_info info = {.size = sizeof info};
    int32_t count = 0;
    sharing how = shared[_i];
    ops = plugin_find(DLC_KIND_DEVICE, getenv("DLCORE_TEST_DEVICE"))->ops;
    OK(ops->count(&count));
    OK(ops->describe(0, &info));
    ck_assert_int_eq(ranks_run(3, 60, share_body, &how), 0);
    plugins_close();
}

TEST_SETTINGS(.name = "device", .timeout = 60, .setup = setup, .teardown = teardown);

/* ---- Memory ------------------------------------------------------------------ */

TEST(memory_is_zeroed_and_aligned) {
    static const size_t sizes[] = {0, 1, 64, 4097, 2097152, 2097153, 10000000};
    for (uint32_t flags = 0; flags <= 3; flags++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int again = 0; again < 2; again++) {
                dlc_memory m = none();
                OK(ops->alloc(device, sizes[i], flags, &m));
                ck_assert_ptr_nonnull(m.base);
                ck_assert_uint_eq((uintptr_t)m.base % 64, 0);
                ck_assert_uint_eq(m.bytes, sizes[i]);
                ck_assert_int_eq(any_byte(m.base, sizes[i]), 0);
                OK(put(m.base, 0x77, sizes[i]));
                ops->free(device, &m);
                ck_assert_ptr_null(m.base);
                ops->free(device, &m); /* freeing twice does no harm */
            }
}

TEST(too_much_memory) {
    static const size_t sizes[] = {(size_t)1 << 50, SIZE_MAX, SIZE_MAX - 100};
    if (!is_gpu())
        return;
    for (uint32_t flags = 0; flags <= 3; flags++)
        for (size_t i = 0; i < 3; i++) {
            dlc_memory m = none();
            ck_assert_int_eq(ops->alloc(device, sizes[i], flags, &m), DLC_ERR_NOMEM);
            ck_assert_ptr_null(m.base);
            ck_assert_str_ne(dlc_detail(), "");
            if (!(flags & DLC_MEM_STAGING))
                ck_assert_msg(strstr(dlc_detail(), "bytes are free") != NULL, "%s",
                              dlc_detail());
        }
    set(x[0], 3); /* the device still works */
    ck_assert(value_of(x[0]) == 3);
}

TEST(host_memory_is_pinned) {
    if (!DLC_CAN(ops, pin))
        return;
    float *mine = malloc(BYTES);
    for (int i = 0; i < N; i++)
        mine[i] = (float)i;
    OK(ops->pin(device, mine, BYTES));
    OK(ops->copy(device, q1, x[0], mine, BYTES));
    OK(ops->scale(device, q1, N, 2, x[0]));
    OK(ops->copy(device, q1, mine, x[0], BYTES));
    OK(ops->queues->queue_sync(device, q1));
    for (int i = 0; i < N; i++)
        ck_assert(mine[i] == 2 * (float)i);
    ops->unpin(device, mine);
    OK(ops->pin(device, mine, BYTES)); /* may be pinned again */
    ops->unpin(device, mine);
    free(mine);
}

TEST(describes_itself) {
    dlc_device_info info = {.size = sizeof info};
    dlc_device_args args = {.size = sizeof args, .index = 1000};
    dlc_device *other = NULL;
    int32_t count = 0;
    int reaches = 0;
    OK(ops->count(&count));
    ck_assert_int_ge(count, 1);
    OK(ops->describe(0, &info));
    ck_assert_str_ne(info.name, "");
    ck_assert_int_eq(ops->open(&args, &other), DLC_ERR_CONFIG);
    ck_assert_ptr_null(other);
    if (DLC_CAN(ops, can_access_peer)) {
        OK(ops->can_access_peer(device, 0, 0, &reaches));
        ck_assert_int_eq(reaches, 1);
    }
}

/* ---- Queues, events ------------------------------------------------------------- */

TEST(queues_in_order_by_events) {
    for (int i = 1; i <= 100; i++) {
        OK(ops->fill(device, NULL, x[0], 0, BYTES));
        for (int k = 0; k < N; k++)
            here[k] = (float)i;
        OK(ops->copy(device, q1, x[0], here, BYTES));
        OK(ops->scale(device, q1, N, 2, x[0]));
        OK(ops->queues->event_record(device, q1, e1));
        OK(ops->queues->event_wait(device, q2, e1));
        OK(ops->copy(device, q2, x[1], x[0], BYTES));
        OK(ops->queues->event_record(device, q2, e2));
        OK(ops->queues->event_sync(device, e2));
        ck_assert(value_of(x[1]) == 2 * (float)i);
    }
}

/* <dlcore/cuda.h>; the streams of the device "async" are for fakes of CUDA libraries.
 */
TEST(native_handles) {
    struct CUstream_st *streams[2] = {NULL, NULL};
    int number = -1, unknown = 7;
    OK(dlc_cuda_stream(ops, device, q1, &streams[0]));
    OK(dlc_cuda_stream(ops, device, q2, &streams[1]));
    ck_assert_ptr_nonnull(streams[0]);
    ck_assert_ptr_nonnull(streams[1]);
    ck_assert_ptr_ne(streams[0], streams[1]);
    dlc_status status = dlc_cuda_device(ops, device, &number);
    ck_assert_int_eq(status, is_gpu() ? DLC_OK : DLC_ERR_UNSUPPORTED);
    ck_assert_int_eq(number >= 0, is_gpu());
    ck_assert_int_eq(ops->native(device, q1, 99, &unknown), DLC_ERR_UNSUPPORTED);
    ck_assert_pstr_eq(strstr(dlc_detail(), "no native handle of kind 99"),
                      "no native handle of kind 99");
    ck_assert_int_eq(unknown, 7);
    dlc_device_ops without = *ops;
    without.native = NULL;
    ck_assert_int_eq(dlc_cuda_device(&without, device, &number), DLC_ERR_UNSUPPORTED);
}

TEST(events_become_done) {
    int done = 0;
    OK(ops->queues->event_done(device, e1, &done));
    ck_assert_int_eq(done, 1); /* never recorded */
    for (int i = 0; i < 100; i++) {
        OK(ops->scale(device, q1, N, 1, x[0]));
        OK(ops->queues->event_record(device, q1, e1));
        do
            OK(ops->queues->event_done(device, e1, &done));
        while (!done && i % 2); /* sleeps on every other event */
        OK(ops->queues->event_sync(device, e1));
        OK(ops->queues->event_done(device, e1, &done));
        ck_assert_int_eq(done, 1);
    }
    OK(ops->queues->event_record(device, NULL, e1));
    OK(ops->queues->event_done(device, e1, &done));
    ck_assert_int_eq(done, 1);
}

TEST(closing_does_all_work_first) {
    dlc_queue *queue = NULL;
    OK(ops->queues->queue_open(device, &queue));
    set(x[0], 1);
    for (int i = 0; i < 20; i++)
        OK(ops->scale(device, queue, N, 2, x[0]));
    ops->queues->queue_close(device, queue);
    ck_assert(value_of(x[0]) == 1048576);
    ops->queues->queue_close(device, NULL);
    ops->queues->event_close(device, NULL);
}

/* More sources than one launch of the kernel takes. */
TEST(sums_of_64) {
    const float *sources[64];
    float *dsts[2] = {x[2], x[3]};
    set(x[0], 1);
    set(x[1], 0x1p-24f); /* lost when added to 1 alone */
    for (int i = 0; i < 64; i++)
        sources[i] = i == 0 ? x[0] : x[1];
    float tree[64];
    for (int i = 0; i < 64; i++)
        tree[i] = i == 0 ? 1 : 0x1p-24f;
    for (int stride = 1; stride < 64; stride *= 2)
        for (int i = 0; i + stride < 64; i += 2 * stride)
            tree[i] += tree[i + stride];
    OK(ops->sum_to(device, q1, N, sources, 64, dsts, 2));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(value_of(x[2]) == tree[0] && value_of(x[3]) == tree[0]);
    ck_assert(tree[0] != 1);
}

/* ---- Captured graphs --------------------------------------------------------- */

static dlc_captured_graph *capture_two_queues(void) {
    dlc_captured_graph *graph = NULL;
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->scale(device, q1, N, 2, x[0]));
    OK(ops->queues->event_record(device, q1, e1));
    OK(ops->queues->event_wait(device, q2, e1));
    OK(ops->add(device, q2, N, x[0], x[1]));
    OK(ops->add(device, q1, N, x[0], x[2]));
    OK(ops->queues->event_record(device, q2, e2));
    OK(ops->queues->event_wait(device, q1, e2));
    OK(ops->add(device, q1, N, x[1], x[2]));
    OK(ops->queues->capture_end(device, q1, &graph));
    ck_assert_ptr_nonnull(graph);
    return graph;
}

TEST(a_captured_graph_runs_repeatedly) {
    set(x[0], 1);
    set(x[1], 0);
    set(x[2], 0);
    dlc_captured_graph *graph = capture_two_queues();
    ck_assert(value_of(x[0]) == 1); /* captured, not run */
    float a = 1, b = 0, c = 0;
    for (int i = 0; i < 10; i++) {
        OK(ops->queues->graph_launch(device, i % 2 ? q2 : NULL, graph));
        OK(ops->queues->queue_sync(device, q2));
        a *= 2;
        b += a;
        c += a + b;
        ck_assert(value_of(x[0]) == a && value_of(x[1]) == b && value_of(x[2]) == c);
    }
    ops->queues->graph_close(device, graph);
    ops->queues->graph_close(device, NULL);
    OK(ops->scale(device, q1, N, 0.5f, x[0])); /* the queues are usable again */
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(value_of(x[0]) == a / 2);
}

/* The update reads learning rate and loss scale when it runs. */
TEST(a_captured_graph_reads_memory_at_each_launch) {
    enum { PIECES = (N + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE };
    dlc_loss_scale state = {.scale = 4};
    dlc_memory kept = none(), sums = none();
    OK(ops->alloc(device, sizeof state, 0, &kept));
    OK(ops->alloc(device, (PIECES + 1) * sizeof(double), 0, &sums));
    OK(ops->copy(device, NULL, kept.base, &state, sizeof state));
    dlc_update update = test_subtraction();
    dlc_rule_values values = update.values;
    update.values_at = (const dlc_rule_values *)(const void *)x[3];
    update.loss_scale = kept.base;
    dlc_captured_graph *graph = NULL;
    set(x[0], 8);
    set(x[1], 0);
    set(x[2], 0);
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->square_sums(device, q1, N, x[0], sums.base));
    OK(ops->total(device, q1, PIECES, sums.base, (double *)sums.base + PIECES));
    OK(ops->update_loss_scale(device, q1, (double *)sums.base + PIECES, 2, kept.base));
    OK(ops->update(device, q1, N, &update, x[0], NULL, x[2]));
    OK(ops->queues->capture_end(device, q1, &graph));
    /* scale: 4, 4 (then 8), 8, an overflow (then 4), 4 */
    static const float scale[] = {4, 4, 8, 0, 4};
    float want = 0;
    for (int i = 0; i < 5; i++) {
        values.learning_rate = (float)i + 1;
        OK(ops->copy(device, NULL, x[3], &values, sizeof values));
        set(x[0], scale[i] ? 8 : INFINITY);
        OK(ops->queues->graph_launch(device, q1, graph));
        OK(ops->queues->queue_sync(device, q1));
        if (scale[i])
            want -= ((float)i + 1) * 8 / scale[i];
        ck_assert(value_of(x[2]) == want);
    }
    OK(ops->copy(device, NULL, &state, kept.base, sizeof state));
    ck_assert(state.skipped == 1 && state.good_iterations == 1 && state.scale == 4);
    ops->queues->graph_close(device, graph);
    ops->free(device, &sums);
    ops->free(device, &kept);
}

static dlc_status block_queue(void) {
    return ops->queues->queue_sync(device, q2);
}

static dlc_status block_event(void) {
    return ops->queues->event_sync(device, e1);
}

static dlc_status block_fill(void) {
    return ops->fill(device, NULL, x[1], 0, BYTES);
}

static dlc_status block_alloc(void) {
    dlc_memory m = none();
    return ops->alloc(device, 64, 0, &m);
}

static dlc_status (*const blocking[])(void) = {block_queue, block_event, block_fill,
                                               block_alloc};
static const char *const said[] = {"queue", "event", "fill", "mem"};

TEST_EACH(blocking_calls_invalidate_a_capture, 4) {
    dlc_captured_graph *graph = NULL;
    set(x[0], 1);
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->scale(device, q1, N, 2, x[0]));
    ck_assert_int_ne(blocking[_i](), DLC_OK);
    if (is_gpu())
        ck_assert_msg(strstr(dlc_detail(), said[_i]) != NULL, "%s", dlc_detail());
    ck_assert_int_ne(ops->queues->capture_end(device, q1, &graph), DLC_OK);
    if (is_gpu())
        ck_assert_msg(strstr(dlc_detail(), said[_i]) != NULL, "%s", dlc_detail());
    ck_assert_ptr_null(graph);
    /* Nothing has run, and all of this works again. */
    ck_assert(value_of(x[0]) == 1);
    OK(ops->scale(device, q1, N, 2, x[0]));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(value_of(x[0]) == 2);
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->scale(device, q1, N, 2, x[0]));
    OK(ops->queues->capture_end(device, q1, &graph));
    OK(ops->queues->graph_launch(device, NULL, graph));
    ck_assert(value_of(x[0]) == 4);
    ops->queues->graph_close(device, graph);
}

TEST(a_capture_is_discarded) {
    set(x[0], 1);
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->scale(device, q1, N, 2, x[0]));
    OK(ops->queues->capture_end(device, q1, NULL));
    ck_assert_int_ne(ops->queues->capture_end(device, q1, NULL), DLC_OK);
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(value_of(x[0]) == 1);
    ck_assert_int_ne(ops->queues->capture_begin(device, NULL), DLC_OK);
}

/* A queue that takes part and is not joined: an error, and no other harm. */
TEST(a_capture_with_an_unjoined_queue) {
    dlc_captured_graph *graph = NULL;
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->queues->event_record(device, q1, e1));
    OK(ops->queues->event_wait(device, q2, e1));
    OK(ops->scale(device, q2, N, 2, x[0]));
    ck_assert_int_ne(ops->queues->capture_end(device, q1, &graph), DLC_OK);
    ck_assert_ptr_null(graph);
    set(x[0], 1);
    OK(ops->scale(device, q1, N, 2, x[0]));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(value_of(x[0]) == 2);
}

/* ---- Sharing in one process -------------------------------------------------- */

TEST(only_shared_memory_is_exported) {
    dlc_memory m = none();
    dlc_ipc_handle share = {.size = sizeof share};
    OK(ops->alloc(device, 1 << 20, 0, &m));
    ck_assert_int_eq(ops->ipc_export(device, &m, &share), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "DLC_MEM_SHARED"));
    ops->free(device, &m);
}

TEST(shared_memory_that_is_freed) {
    dlc_memory m = none(), other = none(), again = none();
    dlc_ipc_handle share = {.size = sizeof share};
    OK(ops->alloc(device, 5000, DLC_MEM_SHARED, &m));
    OK(ops->ipc_export(device, &m, &share));
    if (by_file(&share)) {
        OK(ops->ipc_import(device, &share, &again));
        ck_assert_uint_eq(again.bytes, 5000);
        ops->free(device, &again);
        ops->free(device, &m);
        ck_assert_int_eq(ops->ipc_import(device, &share, &again), DLC_ERR_IO);
        /* Another file under the same descriptor number. */
        dlc_ipc_handle its = {.size = sizeof its};
        OK(ops->alloc(device, 5000, DLC_MEM_SHARED, &other));
        OK(ops->ipc_export(device, &other, &its));
        ck_assert_int_eq(ops->ipc_import(device, &share, &again), DLC_ERR_IO);
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "not what was exported"));
        ops->free(device, &other);
    }
    ops->free(device, &m);
}

TEST(shares_that_were_changed) {
    dlc_memory m = none();
    dlc_ipc_handle share = {.size = sizeof share};
    size_t refused = 0;
    OK(ops->alloc(device, 5000, DLC_MEM_SHARED, &m));
    OK(ops->ipc_export(device, &m, &share));
    /* The key's first words: magic, kind, number. */
    for (size_t i = offsetof(dlc_ipc_handle, key); by_file(&share) && i < sizeof share;
         i++) {
        dlc_ipc_handle changed = share;
        dlc_memory again = none();
        ((unsigned char *)&changed)[i] ^= 0xff;
        if (ops->ipc_import(device, &changed, &again) != DLC_OK)
            refused++;
        else
            ops->free(device, &again);
    }
    ck_assert(!by_file(&share) || refused >= 32);
    set(x[0], 1);
    ck_assert(value_of(x[0]) == 1);
    ops->free(device, &m);
}
