/* Tests what the probe tries on each way (core/comm/probe_ways.c): two ranks in
 * threads, on a fake p2p channel and a device whose memory of the other rank is faulty.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "comm/probe.h"
#include "support/fake_p2p.h"
#include "support/test.h"

enum { PAIR = 2, MEMORY = DLC_PROBE_PARTS * DLC_PROBE_BYTES, LATE_US = 30000 };
enum { ATTEMPTS = 10 }; /* at most, where the scheduler decides */

typedef enum fault {
    NONE,
    READS_ZEROS,
    LOSES_WRITES,
    SLOW_MEMORY,
    WRONG_MESSAGES,
    LATE_MESSAGES
} fault;

static char memory[PAIR][MEMORY];
static uint64_t scratch[PAIR][DLC_PROBE_BYTES / 8];
static fault its_fault;
static pthread_barrier_t both;

static int is_in(const void *at, int32_t rank) {
    const char *p = at;
    return p >= memory[rank] && p < memory[rank] + MEMORY;
}

/* Each rank's memory, for the other one, is faulty: `device` is the rank. */
static dlc_status copy(dlc_device *device, dlc_queue *queue, void *dst, const void *src,
                       size_t bytes) {
    int32_t other = (char *)device == (char *)memory[0];
    (void)queue;
    if (its_fault == SLOW_MEMORY && (is_in(src, other) || is_in(dst, other)))
        (void)usleep(LATE_US);
    if (its_fault == READS_ZEROS && is_in(src, other))
        memset(dst, 0, bytes);
    else if (its_fault != LOSES_WRITES || !is_in(dst, other))
        memcpy(dst, src, bytes);
    return DLC_OK;
}

static const dlc_device_ops ops = {.size = sizeof ops, .copy = copy};

/* ---- A channel with faults ----------------------------------------------------- */

static dlc_status (*real_send)(void *, int32_t, dlc_tag, const void *, size_t,
                               dlc_request **);

static dlc_status faulty_send(void *context, int32_t peer, dlc_tag tag,
                              const void *buffer, size_t bytes, dlc_request **request) {
    static _Thread_local char changed[DLC_PROBE_BYTES];
    if (its_fault == LATE_MESSAGES && bytes == DLC_PROBE_BYTES)
        (void)usleep(LATE_US);
    memcpy(changed, buffer, bytes);
    changed[bytes / 2] ^= its_fault == WRONG_MESSAGES;
    return real_send(context, peer, tag, changed, bytes, request);
}

/* ---- Two ranks ----------------------------------------------------------------- */

typedef struct side {
    fake_p2p *fabric;
    int32_t rank;
    double of_memory, of_messages; /* expected bandwidths */
    dlc_probe_trial trial;
    dlc_status status;
} side;

static dlc_status try_all(side *s) {
    dlc_probe_trial *t = &s->trial;
    DLC_TRY(dlc_probe_prepare(t));
    (void)pthread_barrier_wait(&both);
    for (int way = 0; way < DLC_PROBE_WAYS; way++)
        DLC_TRY(dlc_probe_try(t, (dlc_probe_way)way));
    (void)pthread_barrier_wait(&both);
    DLC_TRY(dlc_probe_check_written(t));
    dlc_probe_judge(t);
    return DLC_OK;
}

static void *run_side(void *context) {
    side *s = context;
    int32_t other = !s->rank;
    dlc_p2p_channel channel = s->fabric->endpoint[s->rank].p2p;
    channel.send = faulty_send;
    s->trial = (dlc_probe_trial){.ops = &ops,
                                 .device = (dlc_device *)(void *)memory[s->rank],
                                 .p2p = &channel,
                                 .rank = 10 + s->rank,
                                 .next = 10 + other,
                                 .previous = 10 + other,
                                 .next_position = other,
                                 .previous_position = other,
                                 .base = memory[s->rank],
                                 .next_base = memory[other],
                                 .salt = 1,
                                 .scratch = scratch[s->rank],
                                 .finding = {.from = -1, .to = -1}};
    s->trial.is_timed = s->of_messages > 0;
    for (int way = 0; way < DLC_PROBE_WAYS; way++)
        s->trial.bandwidth[way] = way <= DLC_PROBE_WRITE ? s->of_memory
                                                         : s->of_messages;
    s->status = try_all(s);
    s->trial.p2p = NULL;
    return NULL;
}

static void probe_ways(fault what, double of_memory, double of_messages,
                       side sides[PAIR]) {
    fake_p2p fabric;
    pthread_t thread[PAIR];
    its_fault = what;
    memset(memory, 0, sizeof memory);
    fake_p2p_open(&fabric, PAIR);
    real_send = fabric.endpoint[0].p2p.send;
    ck_assert_int_eq(pthread_barrier_init(&both, NULL, PAIR), 0);
    for (int32_t r = 0; r < PAIR; r++) {
        sides[r] = (side){.fabric = &fabric,
                          .rank = r,
                          .of_memory = of_memory,
                          .of_messages = of_messages};
        ck_assert_int_eq(pthread_create(&thread[r], NULL, run_side, &sides[r]), 0);
    }
    for (int32_t r = 0; r < PAIR; r++) {
        ck_assert_int_eq(pthread_join(thread[r], NULL), 0);
        ck_assert_int_eq(sides[r].status, DLC_OK);
    }
    (void)pthread_barrier_destroy(&both);
    ck_assert_int_eq(fake_p2p_close(&fabric), 0);
}

static void probe(fault what, double bandwidth, side sides[PAIR]) {
    probe_ways(what, bandwidth, bandwidth, sides);
}

/* A link of 1 MB a second, on which nothing here is slow. */
#define ANY 1e6
#define FAST 1e10
#define UNKNOWN 0.0 /* nothing is expected */

TEST(all_right) {
    side s[PAIR];
    probe(NONE, ANY, s);
    for (int r = 0; r < PAIR; r++) {
        ck_assert_int_eq(s[r].trial.finding.from, -1);
        ck_assert_double_gt(s[r].trial.best[DLC_PROBE_READ], 0);
        ck_assert_double_gt(s[r].trial.best[DLC_PROBE_WRITE], 0);
        ck_assert_double_gt(s[r].trial.best[DLC_PROBE_FORWARD], 0);
        /* Of two ranks, the previous one is the next one. */
        ck_assert_double_eq(s[r].trial.best[DLC_PROBE_BACKWARD], 0);
    }
}

static void check(const side *s, int32_t from, int32_t to, int slow, const char *text) {
    const dlc_probe_finding *f = &s->trial.finding;
    ck_assert_int_eq(f->from, from);
    ck_assert_int_eq(f->to, to);
    ck_assert_int_eq(f->slowdown > 0, slow);
    ck_assert_msg(strstr(f->text, text) != NULL, "%s", f->text);
}

TEST(wrong_bytes) {
    side s[PAIR];
    probe(READS_ZEROS, ANY, s);
    check(&s[0], 11, 10, 0,
          "peer memory, read, from rank 11 to rank 10: wrong bytes: 0000000000000000 "
          "instead of ");
    check(&s[1], 10, 11, 0, "IOMMU");
    probe(LOSES_WRITES, ANY, s);
    check(&s[0], 11, 10, 0, "peer memory, written, from rank 11 to rank 10: wrong");
    probe(WRONG_MESSAGES, ANY, s);
    check(&s[1], 10, 11, 0, "messages, from rank 10 to rank 11: wrong bytes: ");
    ck_assert_ptr_nonnull(strstr(s[1].trial.finding.text, " at byte 131072 (look at"));
}

/* Only what is slow by design is timed: how long two threads take to exchange messages
 * is up to the scheduler. */
TEST(slow_memory) {
    side s[PAIR];
    probe_ways(SLOW_MEMORY, FAST, UNKNOWN, s);
    for (int r = 0; r < PAIR; r++)
        ck_assert_double_gt(s[r].trial.finding.slowdown, 3);
    ck_assert_ptr_nonnull(strstr(s[0].trial.finding.text, "peer memory, "));
    ck_assert_ptr_nonnull(strstr(s[0].trial.finding.text, " GB/s, expected "));
    probe_ways(SLOW_MEMORY, ANY, UNKNOWN, s); /* as slow as the link */
    ck_assert_int_eq(s[0].trial.finding.from, -1);
}

/* On a busy machine small messages may be late, too, which excuses large ones: as
 * dlc_probe_run() does, it is tried again. */
TEST(slow_messages) {
    side s[PAIR];
    s[0].trial.finding.from = -1;
    for (int i = 0; i < ATTEMPTS && s[0].trial.finding.from < 0; i++)
        probe_ways(LATE_MESSAGES, UNKNOWN, FAST, s);
    check(&s[0], 11, 10, 1, "messages, from rank 11 to rank 10: ");
    probe(LATE_MESSAGES, UNKNOWN, s);
    ck_assert_int_eq(s[0].trial.finding.from, -1);
}

TEST(first_unusable_stays) {
    dlc_probe_trial t = {.rank = 1, .finding = {.from = -1}};
    dlc_probe_unusable(&t, DLC_PROBE_READ, 2, 1, "it is not mapped");
    dlc_probe_unusable(&t, DLC_PROBE_FORWARD, 0, 1, "it is lost");
    t.bandwidth[DLC_PROBE_FORWARD] = FAST;
    t.best[DLC_PROBE_FORWARD] = 1;
    dlc_probe_judge(&t);
    ck_assert_int_eq(t.finding.from, 2);
    ck_assert_ptr_nonnull(strstr(t.finding.text, "it is not mapped"));
}
