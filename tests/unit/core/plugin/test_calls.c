/* Tests dlc_calls_offered, and dlc_calls_missing: it names a required call that a table
 * of operations lacks, whether the call is NULL or beyond the end of a shorter table,
 * and accepts tables without optional calls. */
#include <stdlib.h>
#include <string.h>

#include <dlcore/dlcore.h>

#include "plugin/check.h"
#include "plugin/registry.h"
#include "support/test.h"

typedef union tables {
    uint32_t size;
    dlc_device_ops device;
    dlc_transport_ops transport;
    dlc_layer_ops layer;
    dlc_solver_ops solver;
    dlc_consistency_ops consistency;
    dlc_data_ops data;
    dlc_decoder_ops decoder;
} tables;

static tables ops;
static dlc_family family;
static dlc_device_queue_ops device_queues;
static dlc_transport_queue_ops transport_queues;
static dlc_feature feature;

/* Sets every pointer of the tables to something that is not NULL; no test calls them.
 */
static void fill(dlc_kind kind, uint64_t caps, size_t size) {
    memset(&ops, 0x5a, sizeof ops);
    memset(&family, 0x5a, sizeof family);
    memset(&device_queues, 0x5a, sizeof device_queues);
    memset(&transport_queues, 0x5a, sizeof transport_queues);
    family.size = sizeof family;
    device_queues.size = sizeof device_queues;
    transport_queues.size = sizeof transport_queues;
    ops.size = (uint32_t)size;
    if (kind == DLC_KIND_LAYER)
        ops.layer.family = &family;
    if (kind == DLC_KIND_DEVICE)
        ops.device.queues = &device_queues;
    if (kind == DLC_KIND_TRANSPORT)
        ops.transport.queues = &transport_queues;
    feature = (dlc_feature){
        .size = sizeof feature, .kind = kind, .caps = caps, .name = "x", .ops = &ops};
}

#define LACKS(kind, caps, table, field) \
    do { \
        fill(kind, caps, sizeof ops.table); \
        ck_assert_ptr_null(dlc_calls_missing(&feature)); \
        memset(&ops.table.field, 0, sizeof ops.table.field); \
        ck_assert_pstr_eq(dlc_calls_missing(&feature), #field); \
        fill(kind, caps, \
             (size_t)((char *)&ops.table.field - (char *)&ops) + \
                 sizeof ops.table.field - 1); \
        ck_assert_pstr_eq(dlc_calls_missing(&feature), #field); \
    } while (0)

/* A call of the table of queues, which the whole table may lack. */
#define LACKS_QUEUE_CALL(kind, table, its, field) \
    do { \
        fill(kind, DLC_DEVICE_HOST, sizeof ops.table); \
        (its).field = NULL; \
        ck_assert_pstr_eq(dlc_calls_missing(&feature), #field); \
        ops.table.queues = NULL; \
        ck_assert_ptr_null(dlc_calls_missing(&feature)); \
    } while (0)

#define ALLOWS(kind, caps, table, field) \
    do { \
        fill(kind, caps, sizeof ops.table); \
        memset(&ops.table.field, 0, sizeof ops.table.field); \
        ck_assert_ptr_null(dlc_calls_missing(&feature)); \
    } while (0)

TEST(devices) {
    LACKS(DLC_KIND_DEVICE, 0, device, count);
    LACKS(DLC_KIND_DEVICE, 0, device, describe);
    LACKS(DLC_KIND_DEVICE, 0, device, open);
    LACKS(DLC_KIND_DEVICE, 0, device, close);
    LACKS(DLC_KIND_DEVICE, 0, device, alloc);
    LACKS(DLC_KIND_DEVICE, 0, device, free);
    LACKS(DLC_KIND_DEVICE, 0, device, copy);
    LACKS(DLC_KIND_DEVICE, 0, device, fill);
    LACKS(DLC_KIND_DEVICE, 0, device, scale);
    LACKS(DLC_KIND_DEVICE, 0, device, add);
    LACKS(DLC_KIND_DEVICE, 0, device, axpy);
    LACKS(DLC_KIND_DEVICE, 0, device, convert);
    LACKS(DLC_KIND_DEVICE, 0, device, sum);
    LACKS(DLC_KIND_DEVICE, 0, device, square_sums);
    LACKS(DLC_KIND_DEVICE, 0, device, total);
    LACKS(DLC_KIND_DEVICE, 0, device, update);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, queue_open);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, queue_close);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, queue_sync);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, event_open);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, event_close);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, event_record);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, event_wait);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, event_done);
    LACKS_QUEUE_CALL(DLC_KIND_DEVICE, device, device_queues, event_sync);
    ALLOWS(DLC_KIND_DEVICE, 0, device, native);
    ALLOWS(DLC_KIND_DEVICE, 0, device, can_access_peer);
}

/* A table that has one of them needs the other. */
#define BELONG_TOGETHER(table, one, other) \
    do { \
        fill(DLC_KIND_DEVICE, 0, sizeof ops.device); \
        (table).one = NULL; \
        ck_assert_pstr_eq(dlc_calls_missing(&feature), #one); \
        (table).other = NULL; \
        ck_assert_ptr_null(dlc_calls_missing(&feature)); \
        fill(DLC_KIND_DEVICE, 0, sizeof ops.device); \
        (table).other = NULL; \
        ck_assert_pstr_eq(dlc_calls_missing(&feature), #other); \
    } while (0)

TEST(pairs) {
    BELONG_TOGETHER(ops.device, pin, unpin);
    BELONG_TOGETHER(ops.device, ipc_export, ipc_import);
    fill(DLC_KIND_DEVICE, 0, sizeof ops.device);
    device_queues.graph_close = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "graph_close");
    device_queues.capture_begin = NULL;
    device_queues.capture_end = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "capture_begin");
    device_queues.graph_launch = NULL;
    ck_assert_ptr_null(dlc_calls_missing(&feature));
}

/* The CPU reads the memory of a device without queues. */
TEST(queues_or_host_memory) {
    fill(DLC_KIND_DEVICE, 0, sizeof ops.device);
    ops.device.add_mean = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "add_mean");
    fill(DLC_KIND_DEVICE, 0, sizeof ops.device);
    ops.device.queues = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "queues");
    feature.caps = DLC_DEVICE_HOST;
    ck_assert_ptr_null(dlc_calls_missing(&feature));
}

TEST(offers) {
    fill(DLC_KIND_DEVICE, 0, sizeof ops.device);
    ck_assert_uint_eq(dlc_calls_offered(&feature),
                      DLC_OFFERS_QUEUES | DLC_OFFERS_CAPTURE | DLC_OFFERS_SEMAPHORES |
                          DLC_OFFERS_IPC);
    device_queues.capture_begin = NULL;
    device_queues.queue_semaphores = NULL;
    ops.device.ipc_export = NULL;
    ck_assert_uint_eq(dlc_calls_offered(&feature), DLC_OFFERS_QUEUES);
    ops.device.queues = NULL;
    ck_assert_uint_eq(dlc_calls_offered(&feature), 0);
    fill(DLC_KIND_TRANSPORT, 0, sizeof ops.transport);
    ck_assert_uint_eq(dlc_calls_offered(&feature), DLC_OFFERS_QUEUES);
    ops.transport.queues = NULL;
    ck_assert_uint_eq(dlc_calls_offered(&feature), 0);
    fill(DLC_KIND_SOLVER, 0, sizeof ops.solver);
    ck_assert_uint_eq(dlc_calls_offered(&feature), 0);
}

TEST(transports) {
    LACKS(DLC_KIND_TRANSPORT, 0, transport, predict);
    LACKS(DLC_KIND_TRANSPORT, 0, transport, open);
    LACKS(DLC_KIND_TRANSPORT, 0, transport, close);
    LACKS(DLC_KIND_TRANSPORT, 0, transport, send);
    LACKS(DLC_KIND_TRANSPORT, 0, transport, recv);
    LACKS(DLC_KIND_TRANSPORT, 0, transport, test);
    LACKS(DLC_KIND_TRANSPORT, 0, transport, wait);
    ALLOWS(DLC_KIND_TRANSPORT, ~0ull, transport, all_reduce);
    LACKS_QUEUE_CALL(DLC_KIND_TRANSPORT, transport, transport_queues, all_reduce);
    LACKS_QUEUE_CALL(DLC_KIND_TRANSPORT, transport, transport_queues, reduce_scatter);
    LACKS_QUEUE_CALL(DLC_KIND_TRANSPORT, transport, transport_queues, all_gather);
    LACKS_QUEUE_CALL(DLC_KIND_TRANSPORT, transport, transport_queues, poll);
    /* A table that ends before the optional calls. */
    fill(DLC_KIND_TRANSPORT, 0, offsetof(dlc_transport_ops, wait_any));
    ck_assert_ptr_null(dlc_calls_missing(&feature));
}

TEST(layers) {
    LACKS(DLC_KIND_LAYER, 0, layer, create);
    LACKS(DLC_KIND_LAYER, 0, layer, destroy);
    LACKS(DLC_KIND_LAYER, 0, layer, infer);
    LACKS(DLC_KIND_LAYER, 0, layer, prepare);
    LACKS(DLC_KIND_LAYER, 0, layer, forward);
    ALLOWS(DLC_KIND_LAYER, 0, layer, fuse);
    ALLOWS(DLC_KIND_LAYER, 0, layer, backward);
    LACKS(DLC_KIND_LAYER, DLC_LAYER_LOSS, layer, backward);
    ALLOWS(DLC_KIND_LAYER, 0, layer, describe);
    fill(DLC_KIND_LAYER, 0, sizeof ops.layer);
    ops.layer.family = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "family");
    fill(DLC_KIND_LAYER, 0, sizeof ops.layer);
    family.same_layout = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "same_layout");
    fill(DLC_KIND_LAYER, 0, sizeof ops.layer);
    family.size = offsetof(dlc_family, reorder_destroy);
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "reorder_destroy");
}

TEST(solvers) {
    LACKS(DLC_KIND_SOLVER, 0, solver, needs);
    ALLOWS(DLC_KIND_SOLVER, 0, solver, values);
}

TEST(consistency_models) {
    LACKS(DLC_KIND_CONSISTENCY, 0, consistency, needs);
    LACKS(DLC_KIND_CONSISTENCY, 0, consistency, create);
    LACKS(DLC_KIND_CONSISTENCY, 0, consistency, destroy);
    LACKS(DLC_KIND_CONSISTENCY, 0, consistency, ready);
    LACKS(DLC_KIND_CONSISTENCY, 0, consistency, finish);
    LACKS(DLC_KIND_CONSISTENCY, 0, consistency, synchronize);
    ALLOWS(DLC_KIND_CONSISTENCY, 0, consistency, save);
}

TEST(sources) {
    LACKS(DLC_KIND_DATA, 0, data, open);
    LACKS(DLC_KIND_DATA, 0, data, close);
    LACKS(DLC_KIND_DATA, 0, data, describe);
    ALLOWS(DLC_KIND_DATA, 0, data, read); /* there is read_sample */
    ALLOWS(DLC_KIND_DATA, 0, data, read_sample);
    ALLOWS(DLC_KIND_DATA, 0, data, name);
    ops.data.read = NULL;
    ops.data.read_sample = NULL;
    ck_assert_pstr_eq(dlc_calls_missing(&feature), "read");
}

TEST(decoders) {
    LACKS(DLC_KIND_DECODER, 0, decoder, endings);
    LACKS(DLC_KIND_DECODER, 0, decoder, matches);
    LACKS(DLC_KIND_DECODER, 0, decoder, inspect);
    LACKS(DLC_KIND_DECODER, 0, decoder, decode);
    LACKS(DLC_KIND_DECODER, 0, decoder, example);
}
