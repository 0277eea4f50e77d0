/* Mailboxes: every message arrives whole and once, from any number of peers, whatever
 * the pauses in between and while collectives go on beside; nobody is left waiting. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/mail.h"
#include "config/config.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/reference.h"

enum {
    MOST_RANKS = 4,
    MESSAGES = 150,
    TAGS = 3,
    MOST_BYTES = 200000,
    SUMS = 60,
    SUM = 5000
};

typedef struct bench {
    test_rank *rank;
    dlc_settings *settings;
    dlc_comm_args args;
    dlc_place place[MOST_RANKS];
    dlc_mailbox *mailbox;
    const dlc_mail *mail;
} bench;

static void bench_prepare(bench *b, test_rank *rank) {
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    *b = (bench){.rank = rank, .settings = plugin_settings(feature, NULL)};
    for (int r = 0; r < rank->ranks; r++)
        b->place[r] = (dlc_place){.size = sizeof *b->place};
    b->args = (dlc_comm_args){.level = {feature, b->settings},
                              .rank = rank->rank,
                              .ranks = rank->ranks,
                              .places = b->place,
                              .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                              .device = {.size = sizeof b->args.device, .threads = 1},
                              .job = rank,
                              .allgather = ranks_allgather,
                              .check = ranks_check};
}

static void bench_open(bench *b, test_rank *rank) {
    bench_prepare(b, rank);
    RANK_OK(rank, dlc_mailbox_open(&b->args, &b->mailbox));
    b->mail = dlc_mailbox_table(b->mailbox);
    RANK_CHECK(rank, b->mail->rank == rank->rank && b->mail->ranks == rank->ranks);
    RANK_CHECK(rank, b->mail->node[0] == b->mail->node[rank->ranks - 1]);
}

static void bench_close(bench *b) {
    dlc_mailbox_close(b->mailbox);
    dlc_settings_free(b->settings);
    plugins_close();
}

/* ---- Many messages ----------------------------------------------------------- */

/* The i-th message of a rank to another: tag, length and bytes follow from these. */
typedef struct letter {
    dlc_tag tag;
    size_t bytes;
    unsigned char fill;
} letter;

static letter letter_of(int from, int to, int i) {
    int stream = (from * MOST_RANKS + to) * MESSAGES + i;
    dlc_random random = dlc_random_make(7, (uint64_t)stream);
    letter made = {.tag = 100 + (uint64_t)(i % TAGS)};
    made.bytes = dlc_random_below(&random, 10) == 0
                     ? dlc_random_below(&random, MOST_BYTES)
                     : dlc_random_below(&random, 300);
    made.fill = (unsigned char)dlc_random_u32(&random);
    return made;
}

/* To and from each peer one message is under way; slot 2r sends to r, 2r + 1 receives.
 */
typedef struct traffic {
    bench *b;
    dlc_request *request[2 * MOST_RANKS];
    unsigned char *bytes[2 * MOST_RANKS];
    int count[2 * MOST_RANKS]; /* begun */
    int left;
} traffic;

static void begin_next(traffic *t, int32_t slot) {
    test_rank *rank = t->b->rank;
    const dlc_mail *mail = t->b->mail;
    int peer = slot / 2, i = t->count[slot]++;

    t->request[slot] = NULL;
    if (i == MESSAGES)
        return;
    t->left++;
    letter it = slot % 2 ? letter_of(peer, rank->rank, i)
                         : letter_of(rank->rank, peer, i);
    if (slot % 2) {
        memset(t->bytes[slot], ~it.fill, it.bytes + 1);
        RANK_OK(rank, mail->recv(mail->context, peer, it.tag, t->bytes[slot], it.bytes,
                                 &t->request[slot]));
        return;
    }
    memset(t->bytes[slot], it.fill, it.bytes);
    RANK_OK(rank, mail->send(mail->context, peer, it.tag, t->bytes[slot], it.bytes,
                             &t->request[slot]));
}

static void check_came(const traffic *t, int32_t slot) {
    letter it = letter_of(slot / 2, t->b->rank->rank, t->count[slot] - 1);
    for (size_t i = 0; i < it.bytes; i++)
        RANK_CHECK(t->b->rank, t->bytes[slot][i] == it.fill);
    RANK_CHECK(t->b->rank, t->bytes[slot][it.bytes] == (unsigned char)~it.fill);
}

static void pass_messages(bench *b, uint64_t seed) {
    test_rank *rank = b->rank;
    dlc_random random = dlc_random_make(seed, (uint64_t)rank->rank);
    int32_t slots = 2 * rank->ranks;
    traffic t = {.b = b};

    for (int32_t s = 0; s < slots; s++) {
        t.bytes[s] = dlc_alloc(MOST_BYTES + 1, 1);
        RANK_CHECK(rank, t.bytes[s]);
        if (s / 2 != rank->rank)
            begin_next(&t, s);
    }
    while (t.left > 0) {
        int32_t which = -2;
        RANK_OK(rank,
                b->mail->wait_any(b->mail->context, t.request, slots, 1.0, &which));
        RANK_CHECK(rank, which >= -1 && which < slots);
        if (which < 0)
            continue;
        t.left--;
        if (which % 2)
            check_came(&t, which);
        if (dlc_random_below(&random, 8) == 0)
            usleep((useconds_t)dlc_random_below(&random, 3000));
        begin_next(&t, which);
    }
    for (int32_t s = 0; s < slots; s++)
        dlc_free(t.bytes[s]);
}

static void *mail_thread(void *context) {
    pass_messages(context, 1);
    return NULL;
}

/* Messages from a thread, and sums over a communicator from another. */
static void beside_body(test_rank *rank, void *context) {
    (void)context;
    bench b;
    dlc_comm *comm = NULL;
    pthread_t thread;
    float *buffer = dlc_alloc(SUM, sizeof *buffer);
    bench_open(&b, rank);
    RANK_CHECK(rank, buffer);
    RANK_OK(rank, dlc_comm_open(&b.args, &comm));
    RANK_CHECK(rank, pthread_create(&thread, NULL, mail_thread, &b) == 0);
    for (uint64_t i = 0; i < SUMS; i++) {
        reference_fill(i, rank->rank, SUM, buffer);
        RANK_OK(rank, dlc_comm_all_reduce(comm, buffer, SUM));
        RANK_CHECK(rank, reference_wrong(i, rank->ranks, 0, SUM, buffer) == 0);
    }
    RANK_CHECK(rank, pthread_join(thread, NULL) == 0);
    ranks_barrier(rank);
    dlc_comm_close(comm);
    bench_close(&b);
    dlc_free(buffer);
}

START_TEST(messages_beside_sums) {
    ck_assert_int_eq(ranks_run(2 + _i, 60, beside_body, NULL), 0);
}
END_TEST

/* ---- Waiting ----------------------------------------------------------------- */

/* All have come; those that are looked at last get their turn as often as the first. */
static void fair_body(test_rank *rank, void *context) {
    (void)context;
    enum { EACH = 3 };
    bench b;
    dlc_request *request[MOST_RANKS] = {NULL};
    int got[MOST_RANKS] = {0}, value[MOST_RANKS];
    bench_open(&b, rank);
    const dlc_mail *mail = b.mail;
    for (int i = 0; rank->rank > 0 && i < EACH; i++) {
        int done = 0;
        RANK_OK(rank,
                mail->send(mail->context, 0, 1, &rank->rank, sizeof(int), &request[0]));
        while (!done)
            RANK_OK(rank, mail->test(mail->context, request[0], &done));
    }
    ranks_barrier(rank);
    for (int r = 1; rank->rank == 0 && r < rank->ranks; r++)
        RANK_OK(rank,
                mail->recv(mail->context, r, 1, &value[r], sizeof(int), &request[r]));
    for (int i = 0; rank->rank == 0 && i < EACH * (rank->ranks - 1); i++) {
        int32_t which = -1;
        RANK_OK(rank, mail->wait_any(mail->context, request, rank->ranks, 30, &which));
        RANK_CHECK(rank, which > 0 && value[which] == which);
        RANK_CHECK(rank, got[which]++ == i / (rank->ranks - 1)); /* each in turn */
        request[which] = NULL;
        if (got[which] < EACH)
            RANK_OK(rank, mail->recv(mail->context, which, 1, &value[which],
                                     sizeof(int), &request[which]));
    }
    ranks_barrier(rank);
    bench_close(&b);
}

START_TEST(each_gets_its_turn) {
    ck_assert_int_eq(ranks_run(MOST_RANKS, 60, fair_body, NULL), 0);
}
END_TEST

/* Nothing comes: it returns when it should, not sooner, and the request is still good.
 */
static void time_out_body(test_rank *rank, void *context) {
    (void)context;
    bench b;
    dlc_request *request[3] = {NULL};
    int value = 0, told = 42 + rank->rank;
    int32_t which = 7;
    bench_open(&b, rank);
    const dlc_mail *mail = b.mail;
    RANK_OK(rank, mail->wait_any(mail->context, NULL, 0, 0, &which));
    RANK_CHECK(rank, which == -1);
    RANK_OK(rank, mail->recv(mail->context, 1 - rank->rank, 5, &value, sizeof value,
                             &request[1]));
    uint64_t since = dlc_now_ns();
    RANK_OK(rank, mail->wait_any(mail->context, request, 3, 0.02, &which));
    RANK_CHECK(rank, which == -1 && dlc_since(since) >= 0.02);
    ranks_barrier(rank);
    RANK_OK(rank, mail->send(mail->context, 1 - rank->rank, 5, &told, sizeof told,
                             &request[2]));
    for (int i = 0; i < 2; i++) {
        RANK_OK(rank, mail->wait_any(mail->context, request, 3, 1e9, &which));
        RANK_CHECK(rank, which == 1 || which == 2);
        request[which] = NULL;
    }
    RANK_CHECK(rank, value == 43 - rank->rank);
    ranks_barrier(rank);
    bench_close(&b);
}

START_TEST(time_out) {
    ck_assert_int_eq(ranks_run(2, 60, time_out_body, NULL), 0);
}
END_TEST

/* ---- Ends -------------------------------------------------------------------- */

/* Waits for what nobody sends. Receiving fails, too, where the end is known by then. */
static dlc_status wait_in_vain(bench *b) {
    static int value;
    dlc_request *request = NULL;
    int32_t which = 7;
    dlc_status status = b->mail->recv(b->mail->context,
                                      (b->rank->rank + 1) % b->rank->ranks, 9, &value,
                                      sizeof value, &request);
    if (!status)
        status = b->mail->wait_any(b->mail->context, &request, 1, 1e9, &which);
    RANK_CHECK(b->rank, which == 7);
    return status;
}

static void *wake_thread(void *context) {
    const bench *b = context;
    usleep(20000);
    b->mail->wake(b->mail->context);
    return NULL;
}

/* Called, whoever waits returns, with its request as it was; also who begins to wait
 * later. What is given up may be freed. */
static void woken_body(test_rank *rank, void *context) {
    (void)context;
    bench b;
    pthread_t thread;
    dlc_request *request = NULL;
    int32_t which = 7;
    int *value = dlc_alloc(1, sizeof *value);
    bench_open(&b, rank);
    RANK_OK(rank, b.mail->recv(b.mail->context, 1 - rank->rank, 9, value, sizeof *value,
                               &request));
    RANK_CHECK(rank, pthread_create(&thread, NULL, wake_thread, &b) == 0);
    RANK_OK(rank, b.mail->wait_any(b.mail->context, &request, 1, 1e9, &which));
    RANK_CHECK(rank, which == -1 && pthread_join(thread, NULL) == 0);
    b.mail->wake(b.mail->context);
    RANK_OK(rank, b.mail->wait_any(b.mail->context, &request, 1, 1e9, &which));
    RANK_CHECK(rank, which == -1);
    ranks_barrier(rank);
    b.mail->give_up(b.mail->context);
    dlc_free(value);
    RANK_CHECK(rank, b.mail->send(b.mail->context, 1 - rank->rank, 9, NULL, 0,
                                  &request) == DLC_ERR_CANCELLED);
    bench_close(&b);
}

START_TEST(woken) {
    ck_assert_int_eq(ranks_run(2, 30, woken_body, NULL), 0);
}
END_TEST

static void *cancel_thread(void *context) {
    usleep(20000);
    dlc_mailbox_cancel(context);
    return NULL;
}

static void cancelled_body(test_rank *rank, void *context) {
    (void)context;
    bench b;
    pthread_t thread;
    int done = 0;
    bench_open(&b, rank);
    RANK_CHECK(rank, pthread_create(&thread, NULL, cancel_thread, b.mailbox) == 0);
    RANK_CHECK(rank, wait_in_vain(&b) == DLC_ERR_CANCELLED);
    RANK_CHECK(rank, pthread_join(thread, NULL) == 0);
    RANK_CHECK(rank, b.mail->check(b.mail->context) == DLC_ERR_CANCELLED);
    RANK_CHECK(rank, b.mail->test(b.mail->context, NULL, &done) == DLC_ERR_CANCELLED);
    bench_close(&b);
}

START_TEST(cancelled) {
    ck_assert_int_eq(ranks_run(2, 30, cancelled_body, NULL), 0);
}
END_TEST

static void lost_body(test_rank *rank, void *context) {
    (void)context;
    bench b;
    bench_open(&b, rank);
    if (rank->rank == 1)
        abort();
    RANK_CHECK(rank, wait_in_vain(&b) == DLC_ERR_PEER);
    RANK_CHECK(rank, b.mail->check(b.mail->context) == DLC_ERR_PEER);
    bench_close(&b);
}

START_TEST(lost) {
    ck_assert_int_eq(ranks_run_losing(3, 30, 1u << 1, lost_body, NULL), 0);
}
END_TEST

/* Two levels: the one between the nodes is asked to join all. */
static void reach_body(test_rank *rank, void *context) {
    (void)context;
    bench b;
    bench_prepare(&b, rank);
    b.args.between = b.args.level;
    RANK_OK(rank, dlc_mailbox_open(&b.args, &b.mailbox));
    b.mail = dlc_mailbox_table(b.mailbox);
    pass_messages(&b, 2);
    ranks_barrier(rank);
    dlc_mailbox_close(b.mailbox);
    b.place[1].node = 1;
    RANK_CHECK(rank, dlc_mailbox_open(&b.args, &b.mailbox) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "host-staged cannot be used (") != NULL);
    b.args.ranks = 1;
    RANK_CHECK(rank, dlc_mailbox_open(&b.args, &b.mailbox) == DLC_ERR_INTERNAL);
    b.mailbox = NULL;
    bench_close(&b);
}

START_TEST(reach) {
    ck_assert_int_eq(ranks_run(2, 60, reach_body, NULL), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mail");
    TCase *tests = tcase_create("mail");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, messages_beside_sums, 0, MOST_RANKS - 1);
    tcase_add_test(tests, each_gets_its_turn);
    tcase_add_test(tests, time_out);
    tcase_add_test(tests, woken);
    tcase_add_test(tests, cancelled);
    tcase_add_test(tests, lost);
    tcase_add_test(tests, reach);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
