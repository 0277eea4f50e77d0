/* Tests the out-of-band collectives over the control channel, and the buffers of
 * payloads. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "job/channel.h"
#include "job_fixture.h"
#include "support/sanitized.h"
#include "support/test.h"

static const size_t sizes[] = {0, 1, 7, 256, 4096, 100003, 1u << 20};
#define SIZES (sizeof sizes / sizeof *sizes)
#define FEW_SIZES 5 /* some of them need several reads */
static const int rank_counts[] = {1, 2, 3, 5, 8};

/* Fills in bytes that depend on rank and offset: a pattern of 1 KiB, then numbered
 * copies of it. */
static void fill(unsigned char *bytes, size_t count, int rank, size_t salt) {
    for (size_t i = 0; i < count && i < 1024; i++)
        bytes[i] = (unsigned char)((i * 31 + (size_t)rank * 7 + salt) ^ (i >> 8));
    for (size_t at = 1024; at < count; at += 1024) {
        memcpy(bytes + at, bytes, count - at < 1024 ? count - at : 1024);
        bytes[at] = (unsigned char)(at >> 10);
    }
}

static int holds(const unsigned char *bytes, size_t count, int rank, size_t salt) {
    unsigned char *expected = dlc_alloc(count, 1);
    if (!expected)
        return 0;
    fill(expected, count, rank, salt);
    int same = memcmp(bytes, expected, count) == 0;
    dlc_free(expected);
    return same;
}

static int all_gather_once(dlc_job *job, size_t bytes, size_t salt) {
    int ranks = dlc_job_ranks(job), wrong = 0;
    unsigned char *own = dlc_alloc(bytes, 1);
    unsigned char *all = dlc_alloc(bytes * (size_t)ranks, 1);
    fill(own, bytes, dlc_job_rank(job), salt);
    if (dlc_job_all_gather(job, own, bytes, all) != DLC_OK)
        wrong = 1;
    for (int r = 0; r < ranks; r++)
        wrong |= !holds(all + (size_t)r * bytes, bytes, r, salt);
    dlc_free(all);
    dlc_free(own);
    return wrong;
}

static int broadcast_once(dlc_job *job, int root, size_t bytes, size_t salt) {
    unsigned char *data = dlc_alloc(bytes, 1);
    if (dlc_job_rank(job) == root)
        fill(data, bytes, root, salt);
    int wrong = dlc_job_broadcast(job, root, data, bytes) != DLC_OK ||
                !holds(data, bytes, root, salt);
    dlc_free(data);
    return wrong;
}

static int collectives_main(dlc_job *job, void *argument) {
    (void)argument;
    int wrong = 0;
    shared_enter(job);
    for (size_t s = 0; s < (under_valgrind() ? FEW_SIZES : SIZES); s++) {
        wrong |= all_gather_once(job, sizes[s], s);
        for (int root = 0; root < dlc_job_ranks(job); root++)
            if (sizes[s] < 10000 || root == 1)
                wrong |= broadcast_once(job, root, sizes[s], s + 100);
    }
    return wrong;
}

/* How many of the numbers of ranks are tried. */
static int counts(void) {
    return under_valgrind() ? 3 : COUNT(rank_counts);
}

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(right_bytes, counts()) {
    dlc_text text;
    ck_assert_msg(process_run(rank_counts[_i], collectives_main, NULL, &text) == 0,
                  "%s", dlc_text_string(&text));
    ck_assert_str_eq(dlc_text_string(&text), "");
    dlc_text_free(&text);
}

static int barriers(void) {
    return under_valgrind() ? 20 : 200;
}

/* No rank leaves a barrier before all have entered it. */
static int barrier_main(dlc_job *job, void *argument) {
    (void)argument;
    int ranks = dlc_job_ranks(job);
    shared_enter(job);
    for (int round = 1; round <= barriers(); round++) {
        if ((round * 7 + dlc_job_rank(job)) % 13 == 0)
            usleep(300);
        atomic_fetch_add(&shared->count, 1);
        if (dlc_job_barrier(job) != DLC_OK)
            return 1;
        if (atomic_load(&shared->count) < round * ranks)
            return 2;
    }
    return 0;
}

TEST_EACH(barrier_holds, counts()) {
    dlc_text text;
    ck_assert_int_eq(process_run(rank_counts[_i], barrier_main, NULL, &text), 0);
    ck_assert_int_eq(atomic_load(&shared->count), barriers() * rank_counts[_i]);
    dlc_text_free(&text);
}

static int rank_infos_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    if (dlc_job_barrier(job) != DLC_OK)
        return 1;
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    int ranks = dlc_job_ranks(job);
    const dlc_rank_info *info = dlc_job_rank_info(job, 0);
    for (int r = 0; r < ranks; r++, info = DLC_NEXT(info)) {
        if (info != dlc_job_rank_info(job, r) || info->size != sizeof *info)
            return 2;
        if (info->pid != (uint32_t)atomic_load(&shared->pid[r]) ||
            info->uid != (uint32_t)geteuid() || info->node != 0)
            return 3;
        if (strcmp(info->host, host) || strcmp(info->device, "gpu") ||
            info->device_index != 10 + r)
            return 4;
    }
    return dlc_job_rank_info(job, -1) || dlc_job_rank_info(job, ranks) ? 5 : 0;
}

TEST_EACH(rank_infos, counts()) {
    int32_t index[] = {10, 11, 12, 13, 14, 15, 16, 17};
    dlc_job_options options = {.ranks = rank_counts[_i],
                               .device = "gpu",
                               .device_index = index,
                               .devices = rank_counts[_i]};
    job_process process = process_start_options(&options, rank_infos_main, NULL);
    ck_assert_int_eq(process_wait(&process), 0);
    dlc_text_free(&process.text);
}

/* ---- Large payloads ---- */

static size_t peak_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

/* The room grows with the received bytes: a header of 1 GiB allocates almost
 * nothing. */
TEST(room_grows_with_received_bytes) {
    dlc_payload payload = {0};
    size_t before = peak_bytes();
    ck_assert_int_eq(dlc_payload_reserve(&payload, DLC_FRAME_BYTES_MAX), DLC_OK);
    while (payload.got < 1 << 20) {
        ck_assert_int_eq(dlc_payload_reserve(&payload, DLC_FRAME_BYTES_MAX), DLC_OK);
        ck_assert_uint_gt(payload.room, payload.got);
        ck_assert_uint_le(payload.room, 2 * payload.got + (64 << 10));
        memset(payload.bytes + payload.got, 7, payload.room - payload.got);
        payload.got = payload.room;
    }
    size_t kept = 0;
    while (kept < payload.got && payload.bytes[kept] == 7)
        kept++;
    ck_assert_uint_eq(kept, payload.got);
    ck_assert_int_eq(dlc_payload_reserve(&payload, payload.got), DLC_OK);
    ck_assert_int_eq(payload.bytes[payload.got], 0);
    ck_assert_uint_lt(peak_bytes() - before, 100 << 20);
    dlc_payload_free(&payload);
    ck_assert_int_ne(dlc_payload_reserve(&payload, DLC_FRAME_BYTES_MAX + 1), DLC_OK);
    ck_assert_ptr_null(payload.bytes);
}

/* Agent and rank receive such a header, and nothing else. */
TEST(a_header_takes_no_memory) {
    int ends[2];
    dlc_frame frame = {.kind = DLC_FRAME_RESULT, .bytes = DLC_FRAME_BYTES_MAX};
    size_t before = peak_bytes();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    dlc_channel channel = {.fd = ends[0]};
    ck_assert_int_eq(send(ends[1], &frame, sizeof frame, 0), sizeof frame);
    ck_assert_int_eq(dlc_channel_read(&channel), 0);
    ck_assert_int_eq(channel.fd, ends[0]);
    close(ends[1]);
    dlc_payload payload = {0};
    ck_assert_int_eq(dlc_frame_read_payload(channel.fd, frame.bytes, &payload),
                     DLC_ERR_PEER);
    dlc_payload_free(&payload);
    ck_assert_int_eq(dlc_channel_read(&channel), 0);
    ck_assert_int_eq(channel.fd, -1);
    ck_assert_uint_lt(peak_bytes() - before, 100 << 20);
    dlc_channel_close(&channel);
}

/* ---- Ranks that disagree ---- */

typedef struct disagreement {
    dlc_status (*odd)(dlc_job *job); /* what rank 1 calls; the others gather 8 bytes */
    const char *says;
} disagreement;

static dlc_status call_same(dlc_job *job) {
    uint64_t own = 1, all[8];
    return dlc_job_all_gather(job, &own, sizeof own, all);
}

static dlc_status call_smaller(dlc_job *job) {
    uint32_t own = 1, all[8];
    return dlc_job_all_gather(job, &own, sizeof own, all);
}

static dlc_status call_broadcast(dlc_job *job) {
    uint64_t data = 0;
    return dlc_job_broadcast(job, 2, &data, sizeof data);
}

static dlc_status call_large(dlc_job *job) {
    size_t bytes = 1u << 20;
    char *own = dlc_alloc(9, bytes);
    if (!own)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(job, own, bytes, own + bytes);
    dlc_free(own);
    return status;
}

static const disagreement disagreements[] = {
    {call_smaller, "all-gather of 4 bytes"},
    {dlc_job_barrier, "barrier"},
    {call_broadcast, "broadcast of 8 bytes from rank 2"},
    {call_large, "all-gather of 1048576 bytes"},
};

static int disagree_main(dlc_job *job, void *argument) {
    const disagreement *test = argument;
    shared_enter(job);
    dlc_status status = dlc_job_rank(job) == 1 ? test->odd(job) : call_same(job);
    if (status == DLC_ERR_INTERNAL && dlc_job_check(job) == status &&
        strstr(dlc_detail(), "different collectives") &&
        strstr(dlc_detail(), test->says))
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

TEST_EACH(disagreement_is_reported, COUNT(disagreements)) {
    disagreement test = disagreements[_i];
    dlc_text text;
    ck_assert_int_eq(process_run(3, disagree_main, &test, &text), 1);
    ck_assert_msg(atomic_load(&shared->count) == 3, "%s", text.bytes);
    ck_assert_ptr_nonnull(strstr(text.bytes, "rank 1"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "all-gather of 8 bytes"));
    ck_assert_ptr_nonnull(strstr(text.bytes, test.says));
    dlc_text_free(&text);
}

/* Rank 1 cannot open something that the others wait for inside of a library. They learn
 * why, twice, and go on with collectives. */
static int withdraw_main(dlc_job *job, void *argument) {
    (void)argument;
    for (int round = 0; round < 2; round++) {
        const char *why = round ? "no wire" : "no plug";
        dlc_status status = dlc_job_barrier(job);
        if (status != DLC_OK)
            return 1;
        if (dlc_job_rank(job) == 1)
            dlc_job_withdraw(job, DLC_ERR_UNAVAILABLE, why);
        while (dlc_job_rank(job) != 1 && status == DLC_OK)
            status = dlc_job_check(job);
        if (status != DLC_OK &&
            (status != DLC_ERR_UNAVAILABLE || !strstr(dlc_detail(), "rank 1 (host ") ||
             !strstr(dlc_detail(), why)))
            return 2;
        if (dlc_job_barrier(job) != DLC_OK || dlc_job_check(job) != DLC_OK)
            return 3;
        if (dlc_job_withdrawal(job) != DLC_ERR_UNAVAILABLE ||
            !strstr(dlc_detail(), why))
            return 4;
    }
    return 0;
}

TEST(a_rank_withdraws) {
    dlc_text text;
    ck_assert_int_eq(process_run(3, withdraw_main, NULL, &text), 0);
    dlc_text_free(&text);
}

static int roots_main(dlc_job *job, void *argument) {
    (void)argument;
    char byte = 0;
    if (dlc_job_broadcast(job, -1, &byte, 1) != DLC_ERR_CONFIG ||
        dlc_job_broadcast(job, dlc_job_ranks(job), &byte, 1) != DLC_ERR_CONFIG)
        return 1;
    return dlc_job_check(job) == DLC_OK ? 0 : 2;
}

TEST_EACH(no_such_root, 2) {
    dlc_text text;
    ck_assert_int_eq(process_run(_i + 1, roots_main, NULL, &text), 0);
    dlc_text_free(&text);
}

/* A broadcast that is too large is refused before anything is allocated. */
static int huge_main(dlc_job *job, void *argument) {
    (void)argument;
    static char byte;
    dlc_status status = dlc_job_rank(job)
                            ? dlc_job_broadcast(job, 0, &byte, (size_t)1 << 40)
                            : dlc_job_barrier(job);
    return status == DLC_ERR_INTERNAL ? 1 : 77;
}

TEST(too_large) {
    dlc_text text;
    ck_assert_int_eq(process_run(2, huge_main, NULL, &text), 1);
    ck_assert_ptr_nonnull(strstr(text.bytes, "1099511627776 bytes"));
    dlc_text_free(&text);
}
