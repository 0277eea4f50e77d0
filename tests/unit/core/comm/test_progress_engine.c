/* The progress engine, with and without a thread, on a fake p2p channel; tags. */
#include <string.h>

#include "comm/progress_engine.h"
#include "support/fake_p2p.h"
#include "support/test.h"

enum { COUNT = 50, MOST = 64, BYTES = sizeof(int32_t) };

typedef struct pair {
    fake_p2p fake;
    dlc_progress_engine *engine[2];
    int32_t sent[COUNT], received[COUNT];
} pair;

static void ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static void open_pair(pair *p, int32_t most) {
    memset(p, 0, sizeof *p);
    fake_p2p_open(&p->fake, 2);
    for (int32_t r = 0; r < 2; r++)
        ok(dlc_progress_engine_open(&p->fake.endpoint[r].p2p, most, &p->engine[r]));
    for (int32_t i = 0; i < COUNT; i++)
        p->sent[i] = 100 + i;
}

static void close_pair(pair *p) {
    for (int32_t r = 0; r < 2; r++)
        dlc_progress_engine_close(p->engine[r]);
    ck_assert_int_eq(fake_p2p_close(&p->fake), 0);
}

static dlc_transfer receive_of(pair *p, int32_t i) {
    return (dlc_transfer){
        1, dlc_tag_of(DLC_TAG_SHARD, (uint64_t)i), NULL, &p->received[i], BYTES, NULL};
}

static dlc_transfer send_of(pair *p, int32_t i) {
    return (dlc_transfer){
        0, dlc_tag_of(DLC_TAG_SHARD, (uint64_t)i), &p->sent[i], NULL, BYTES, NULL};
}

static void submit(dlc_progress_engine *engine, dlc_transfer transfer,
                   uint64_t *handle) {
    ok(dlc_progress_engine_submit(engine, &transfer, 1, handle));
}

/* More transfers than there are places at first, sent in another order than they were
 * received in; each handle waits for all before it. */
TEST_EACH(any_order, 2) {
    pair p;
    uint64_t handle[COUNT];
    open_pair(&p, _i ? MOST : 0);
    for (int32_t i = 0; i < COUNT; i++)
        submit(p.engine[0], receive_of(&p, i), &handle[i]);
    for (int32_t i = COUNT; i-- > 0;)
        submit(p.engine[1], send_of(&p, i), NULL);
    ok(dlc_progress_engine_wait(p.engine[0], handle[COUNT / 2]));
    for (int32_t i = 0; i <= COUNT / 2; i++)
        ck_assert_int_eq(p.received[i], p.sent[i]);
    ok(dlc_progress_engine_drain(p.engine[0]));
    ck_assert_mem_eq(p.received, p.sent, sizeof p.sent);
    ok(dlc_progress_engine_drain(p.engine[1]));
    close_pair(&p);
}

/* The oldest transfer stays in flight while newer ones come and go. */
TEST(an_old_transfer) {
    pair p;
    int32_t old = 0, newer = 0;
    open_pair(&p, 0);
    dlc_transfer first = receive_of(&p, 0);
    first.pending = &old;
    submit(p.engine[0], first, NULL);
    for (int32_t i = 1; i < COUNT; i++) {
        dlc_transfer next = receive_of(&p, i);
        next.pending = &newer;
        submit(p.engine[0], next, NULL);
        ck_assert_int_eq(newer, 1);
        submit(p.engine[1], send_of(&p, i), NULL);
        while (newer > 0)
            ok(i % 2 ? dlc_progress_engine_poll(p.engine[0])
                     : dlc_progress_engine_wait_any(p.engine[0]));
        ck_assert_int_eq(p.received[i], p.sent[i]);
    }
    ck_assert_int_eq(old, 1);
    submit(p.engine[1], send_of(&p, 0), NULL);
    ok(dlc_progress_engine_wait_any(p.engine[0]));
    ck_assert_int_eq(old, 0);
    ck_assert_int_eq(dlc_progress_engine_wait_any(p.engine[0]), DLC_ERR_INTERNAL);
    ok(dlc_progress_engine_drain(p.engine[1]));
    close_pair(&p);
}

TEST(too_many_for_a_thread) {
    pair p;
    dlc_transfer all[3];
    uint64_t handle = 7;
    open_pair(&p, 2);
    for (int32_t i = 0; i < 3; i++)
        all[i] = send_of(&p, i);
    ck_assert_int_eq(dlc_progress_engine_submit(p.engine[1], all, 3, &handle),
                     DLC_ERR_INTERNAL);
    ck_assert_uint_eq(handle, 7);
    for (int32_t i = 0; i < 3; i++)
        all[i] = receive_of(&p, i);
    ok(dlc_progress_engine_submit(p.engine[0], all, 2, &handle));
    submit(p.engine[1], send_of(&p, 1), NULL);
    submit(p.engine[1], send_of(&p, 0), NULL);
    ok(dlc_progress_engine_wait(p.engine[0], handle));
    ck_assert_mem_eq(p.received, p.sent, 2 * BYTES);
    ok(dlc_progress_engine_drain(p.engine[1]));
    close_pair(&p);
}

static dlc_status failing_send(void *context, int32_t peer, dlc_tag tag,
                               const void *buffer, size_t bytes,
                               dlc_request **request) {
    (void)context, (void)peer, (void)tag, (void)buffer, (void)bytes, (void)request;
    return dlc_fail(DLC_ERR_PEER, "rank 0 has left");
}

/* A failure is reported by the call that makes progress; the thread's by the next. */
TEST_EACH(fails, 2) {
    pair p;
    uint64_t handle = 0;
    open_pair(&p, _i ? MOST : 0);
    p.fake.endpoint[1].p2p.send = failing_send;
    dlc_transfer one = send_of(&p, 0);
    dlc_status status = dlc_progress_engine_submit(p.engine[1], &one, 1, &handle);
    if (_i) {
        ok(status);
        status = dlc_progress_engine_wait(p.engine[1], handle);
    }
    ck_assert_int_eq(status, DLC_ERR_PEER);
    ck_assert_str_eq(dlc_detail(), "rank 0 has left");
    close_pair(&p);
}

/* The largest number of a user does not reach the next user's tags. */
TEST(tags) {
    dlc_tag last = dlc_tag_of(DLC_TAG_STAGE_TENSOR, UINT64_MAX >> 1);
    ck_assert_uint_lt(last, dlc_tag_of(DLC_TAG_SHARD, 0));
    ck_assert_uint_eq(last >> DLC_TAG_NUMBER_BITS, DLC_TAG_STAGE_TENSOR_LAST);
    ck_assert_uint_eq(dlc_tag_of(DLC_TAG_SHARD, (UINT64_C(1) << 48) - 1) + 1,
                      dlc_tag_of((dlc_tag_user)(DLC_TAG_SHARD_LAST + 1), 0));
}
