/* Tests that messages reach the right receives in whatever order their packets arrive,
 * when a send is complete, and that a packet which cannot be right is refused. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "fake_ucx.h"
#include "support/test.h"

enum { MESSAGES = 4, LARGEST = 130000 };

static unsigned char from[MESSAGES][LARGEST], to[MESSAGES][LARGEST];

/* ---- Every order ----------------------------------------------------------------- */

/* Rank 1 posts receive i for message i, or for `expected` bytes if that is not 0. */
static const struct {
    int tcp;
    struct {
        dlc_tag tag;
        size_t bytes, expected;
    } message[MESSAGES];
} cases[] = {
    /* packed, short, eager and offered ones of one tag */
    {0, {{7, 8, 0}, {7, 3000, 0}, {7, 10000, 0}, {7, 20000, 0}}},
    /* those of one size, which only their numbers tell apart */
    {0, {{7, 64, 0}, {7, 64, 0}, {7, 64, 0}, {7, 64, 0}}},
    {0, {{7, 20000, 0}, {9, 64, 0}, {7, 64, 0}, {9, 20000, 0}}},
    {0, {{7, 64, 0}, {9, 64, 0}, {7, 0, 0}, {9, 0, 0}}},
    /* messages in two chunks, and others that overtake them */
    {1, {{7, 62000, 0}, {7, 8, 0}, {9, 3000, 0}, {7, 8, 0}}},
    {1, {{7, 62000, 0}, {9, 8, 0}, {7, 62000, 0}, {9, 8, 0}}},
    /* receives of another size: only these fail */
    {0, {{7, 64, 65}, {7, 20000, 64}, {7, 64, 0}, {7, 8, 7}}},
    {1, {{7, 62000, 62001}, {7, 64, 65}, {7, 3000, 0}, {7, 64, 0}}},
};

static void fill_messages(void) {
    for (int i = 0; i < MESSAGES; i++)
        for (size_t at = 0; at < LARGEST; at++)
            from[i][at] = (unsigned char)((size_t)i * 37 + at * 11 + (at >> 8));
}

static size_t expected_bytes(int c, int i) {
    size_t expected = cases[c].message[i].expected;
    return expected ? expected : cases[c].message[i].bytes;
}

static void send_all(int c, dlc_request **sends) {
    for (int i = 0; i < MESSAGES; i++)
        ck_assert_int_eq(message_send(network_endpoint(0), 1, cases[c].message[i].tag,
                                      from[i], cases[c].message[i].bytes, &sends[i]),
                         DLC_OK);
}

static void post(int c, int i, dlc_request **receives) {
    memset(to[i], 0xdd, expected_bytes(c, i) + 1);
    ck_assert_int_eq(message_recv(network_endpoint(1), 0, cases[c].message[i].tag,
                                  to[i], expected_bytes(c, i), &receives[i]),
                     DLC_OK);
}

/* Posts receives [begin, end), those of the larger tag first. */
static void post_all(int c, int begin, int end, dlc_request **receives) {
    for (dlc_tag tag = 9; tag >= 7; tag -= 2)
        for (int i = begin; i < end; i++)
            if (cases[c].message[i].tag == tag)
                post(c, i, receives);
}

/* Puts the packets into the k-th order; returns 0 if there is none. */
static int make_order(int k, int packets, int *order) {
    for (int i = 0; i < packets; i++)
        order[i] = i;
    for (int i = 0; i < packets; i++) {
        int rest = packets - i, at = i + k % rest, first = order[at];
        k /= rest;
        for (; at > i; at--)
            order[at] = order[at - 1];
        order[i] = first;
    }
    return k == 0;
}

typedef struct trial {
    int posted;   /* receives that are posted before the first packet arrives */
    int has_more; /* 1: another is posted after each packet; 0: the others at the end */
    int order;
} trial;

static void describe(int c, const trial *of, const int *order, char *text,
                     size_t room) {
    int used = snprintf(text, room, "case %d, %d posted%s, order", c, of->posted,
                        of->has_more ? " and more" : "");
    for (int i = 0; i < network_packets(); i++)
        used += snprintf(text + used, room - (size_t)used, " %d", order[i]);
}

static void expect_message(int c, int i, dlc_request *receive, const char *where) {
    size_t bytes = cases[c].message[i].bytes;
    int done = 0, fits = bytes == expected_bytes(c, i);
    dlc_status status = request_test(network_endpoint(1), receive, &done);
    ck_assert_msg(done, "%s: message %d has not arrived", where, i);
    ck_assert_msg(status == (fits ? DLC_OK : DLC_ERR_CONFIG), "%s: message %d: %s",
                  where, i, dlc_detail());
    ck_assert_msg(!fits || memcmp(to[i], from[i], bytes) == 0,
                  "%s: message %d is wrong", where, i);
    ck_assert_msg(to[i][expected_bytes(c, i)] == 0xdd, "%s: message %d overflows",
                  where, i);
}

/* Returns 0 if there are no more orders. */
static int try_order(int c, const trial *of) {
    dlc_request *sends[MESSAGES] = {NULL}, *receives[MESSAGES] = {NULL};
    int order[PACKETS_MOST] = {0}, posted = of->posted, done = 0;
    char where[128];

    network_open(cases[c].tcp);
    send_all(c, sends);
    int is_one = make_order(of->order, network_packets(), order);
    describe(c, of, order, where, sizeof where);
    post_all(c, 0, posted, receives);
    for (int i = 0; i < network_packets(); i++) {
        network_deliver(order[i]);
        if (of->has_more && posted < MESSAGES)
            post(c, posted++, receives);
    }
    post_all(c, posted, MESSAGES, receives);
    for (int i = 0; i < MESSAGES; i++) {
        expect_message(c, i, receives[i], where);
        ck_assert_int_eq(request_test(network_endpoint(0), sends[i], &done), DLC_OK);
        ck_assert_msg(done, "%s: message %d was not sent", where, i);
    }
    network_close();
    return is_one;
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(packets_arrive_in_every_order, COUNT(cases)) {
    trial one;
    fill_messages();
    for (one.has_more = 0; one.has_more < 2; one.has_more++)
        for (one.posted = 0; one.posted <= MESSAGES; one.posted++)
            for (one.order = 0; try_order(_i, &one); one.order++)
                ;
}

/* ---- Sends ----------------------------------------------------------------------- */

static int is_sent(dlc_request *send) {
    int done = 0;
    ck_assert_int_eq(request_test(network_endpoint(0), send, &done), DLC_OK);
    return done;
}

/* The buffer belongs to the sender again when all its chunks have left, and a third one
 * waits until one of two has. */
TEST(sent_when_all_chunks_have_left) {
    dlc_request *send;
    network_open(1);
    network_slow_down();
    ck_assert_int_eq(message_send(network_endpoint(0), 1, 7, from[0], 130000, &send),
                     DLC_OK);
    ck_assert_int_eq(network_packets(), 2);
    ck_assert_int_eq(is_sent(send), 0);
    ck_assert_int_eq(network_packets(), 2);
    network_complete(1);
    ck_assert_int_eq(is_sent(send), 0);
    ck_assert_int_eq(network_packets(), 3);
    network_complete(0);
    ck_assert_int_eq(is_sent(send), 0);
    network_complete(2);
    ck_assert_int_eq(is_sent(send), 1);
    network_close();
}

/* ---- Packets that cannot be right ------------------------------------------------ */

static const struct {
    header head;
    size_t head_bytes, bytes;
} bad[] = {
    {{.from = 0, .bytes = 4, .offset = 5}, sizeof(header), 0},
    {{.from = 0, .bytes = 8, .offset = 4}, sizeof(header), 5},
    {{.from = 0, .bytes = 8, .offset = UINT64_MAX}, sizeof(header), 8},
    {{.from = 0, .bytes = 8, .offset = 0}, sizeof(header), 9},
    {{.from = 2}, WHOLE_HEADER, 8},
    {{.from = -1}, WHOLE_HEADER, 8},
    {{.from = 0}, WHOLE_HEADER - 1, 8},
    {{.from = 0}, sizeof(header) - 1, 8},
    {{.from = 0}, 0, WHOLE_HEADER - 1},
};

TEST_EACH(corrupt_packets_are_refused, COUNT(bad)) {
    unsigned char data[64] = {0}, target[8] = {0};
    dlc_endpoint *e = network_endpoint(1);
    dlc_request *receive;
    int done = 0;

    network_open(0);
    ck_assert_int_eq(message_recv(e, 0, 0, target, sizeof target, &receive), DLC_OK);
    network_inject(&bad[_i].head, bad[_i].head_bytes, data, bad[_i].bytes);
    ck_assert_int_eq(request_test(e, receive, &done), DLC_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "corrupt message"));
    ck_assert_int_eq(done, 0);
    network_close();
}

/* Bytes that UCX has fetched: before the receive returns, their sender is told so. */
TEST(fetches_are_reported) {
    const size_t bytes[] = {64, LARGEST};
    network_open(0);
    for (int i = 0; i < 2; i++) {
        dlc_request *send, *receive;
        ck_assert_int_eq(
            message_recv(network_endpoint(1), 0, 7, to[i], bytes[i], &receive), DLC_OK);
        ck_assert_int_eq(
            message_send(network_endpoint(0), 1, 7, from[i], bytes[i], &send), DLC_OK);
        network_deliver(i);
        ck_assert_int_eq(request_wait(network_endpoint(1), receive), DLC_OK);
        ck_assert_int_eq(network_flushes(), i);
    }
    network_close();
}

TEST(nothing_arrives_while_closing) {
    unsigned char data[64] = {0};
    const header head = {.from = 2};
    network_open(0);
    network_endpoint(1)->closing = 1;
    network_inject(&head, sizeof head, data, sizeof data);
    ck_assert_int_eq(network_endpoint(1)->failed, DLC_OK);
    network_close();
}
