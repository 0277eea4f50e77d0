/* Tests what the hub decides, without processes: its ranks are remote ones, whose side
 * of the control channel each test plays. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/channel.h"
#include "job/hub/hub.h"
#include "job/job.h"
#include "job/launch/launch.h"
#include "job/supervise.h"
#include "support/test.h"

enum { RANKS = 3 };

static dlc_hub hub;
static dlc_peer peer[RANKS];
static int far_end[RANKS]; /* the agents' ends of the control channels */

static void setup(void) {
    uint64_t now = dlc_now_ns();
    memset(peer, 0, sizeof peer);
    hub = (dlc_hub){.ranks = RANKS,
                    .peer = peer,
                    .signals = -1,
                    .remotes = 1,
                    .last_heartbeat = now};
    for (int r = 0; r < RANKS; r++) {
        int pair[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        peer[r] = (dlc_peer){.pid = 100 + r,
                             .host = "h",
                             .running = 1,
                             .channel = {.fd = pair[0]},
                             .output = {.fd = -1},
                             .remote = 1,
                             .joined = 1,
                             .last_heard = now};
        far_end[r] = pair[1];
    }
    dlc_hub_watchdog_reset(&hub);
}

static void teardown(void) {
    for (int r = 0; r < RANKS; r++) {
        dlc_channel_close(&peer[r].channel);
        close(far_end[r]);
        dlc_payload_free(&peer[r].part);
    }
    dlc_free(hub.result);
}

/* The next frame sent to a rank, except heartbeats; its payload in `text`. kind 0:
 * none. */
static dlc_frame next_frame(int rank, char *text, size_t room) {
    dlc_frame frame;
    do {
        dlc_hub_flush(&hub, rank);
        if (recv(far_end[rank], &frame, sizeof frame, MSG_DONTWAIT) != sizeof frame)
            return (dlc_frame){0};
        ck_assert_uint_lt(frame.bytes, room);
        if (frame.bytes)
            ck_assert_int_eq(dlc_frame_read(far_end[rank], text, frame.bytes), DLC_OK);
        text[frame.bytes] = '\0';
    } while (frame.kind == DLC_FRAME_HEARTBEAT);
    return frame;
}

static void expect_frame(int rank, uint32_t kind, int32_t number, const char *says) {
    char text[1024] = "";
    dlc_frame frame = next_frame(rank, text, sizeof text);
    ck_assert_msg(frame.kind == kind && frame.number == number && strstr(text, says),
                  "rank %d: kind %u, number %d: %s", rank, frame.kind, frame.number,
                  text);
}

static void expect_nothing(int rank) {
    char text[1024];
    ck_assert_uint_eq(next_frame(rank, text, sizeof text).kind, 0);
}

static uint64_t ago(double seconds) {
    return dlc_now_ns() - (uint64_t)(seconds * 1e9);
}

static void say(int rank, const void *bytes, size_t count) {
    ck_assert_int_eq(send(far_end[rank], bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

TEST_SETTINGS(.setup = setup, .teardown = teardown);

/* ---- How a job ends ---------------------------------------------------------- */

TEST(first_failure_counts) {
    dlc_hub_rank_ended(&hub, 1, 0, 3);
    ck_assert(hub.aborting);
    ck_assert_uint_gt(hub.kill_at, dlc_now_ns()); /* the others have time to end */
    ck_assert_uint_le(hub.kill_at, dlc_now_ns() + DLC_GRACE_NS);
    for (int r = 0; r < RANKS; r++)
        expect_frame(r, DLC_FRAME_ABORT, DLC_ERR_PEER,
                     "rank 1 (host h, pid 101) ended");
    dlc_hub_rank_ended(&hub, 0, 0, 7); /* because of that */
    dlc_hub_rank_ended(&hub, 2, 0, 0);
    expect_nothing(2);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 3);
}

TEST(ranks_return) {
    const dlc_frame returned = {.kind = DLC_FRAME_RETURNED};
    say(1, &returned, sizeof returned);
    dlc_hub_read(&hub, 1);
    dlc_hub_rank_ended(&hub, 1, 0, 0);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 0);
    dlc_hub_rank_ended(&hub, 2, 0, 0);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 1);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_PEER,
                 "rank 2 (host h, pid 102) ended with exit code 0 before its work was "
                 "done: a plugin, or a library that it uses, has called _exit()");
}

TEST(a_signal_is_worse_than_a_code) {
    dlc_hub_rank_ended(&hub, 1, 0, 3);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 3);
    dlc_hub_rank_ended(&hub, 0, 1, SIGSEGV);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), dlc_exit_code(DLC_ERR_PEER));
}

TEST(own_kills_are_no_loss) {
    dlc_hub_rank_ended(&hub, 1, 0, 3);
    dlc_hub_kill_rank(&hub, 0, SIGKILL);
    dlc_hub_rank_ended(&hub, 0, 1, SIGKILL);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 3);
    dlc_hub_end_by_signal(&hub, SIGTERM);
    dlc_hub_rank_ended(&hub, 2, 1, SIGKILL);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 128 + SIGTERM);
}

TEST(first_abort_counts) {
    dlc_hub_abort(&hub, DLC_ERR_INTERNAL, "first");
    dlc_hub_abort(&hub, DLC_ERR_PEER, "second");
    expect_frame(2, DLC_FRAME_ABORT, DLC_ERR_INTERNAL, "first");
    expect_nothing(2);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), dlc_exit_code(DLC_ERR_INTERNAL));
}

/* ---- Collectives ------------------------------------------------------------- */

static int begin(int rank, dlc_frame frame) {
    peer[rank].channel.frame = frame;
    return dlc_hub_call_begin(&hub, rank);
}

static dlc_frame gather_of(size_t bytes) {
    return (dlc_frame){.kind = DLC_FRAME_ALL_GATHER, .size = bytes, .bytes = bytes};
}

TEST(contributions_are_in_rank_order) {
    static const int order[RANKS] = {2, 0, 1};
    char text[64];
    for (int i = 0; i < RANKS; i++) {
        const dlc_frame frame = gather_of(2);
        say(order[i], &frame, sizeof frame);
        say(order[i], "aabbcc" + 2 * order[i], 2);
        dlc_hub_read(&hub, order[i]);
    }
    for (int r = 0; r < RANKS; r++) {
        dlc_frame frame = next_frame(r, text, sizeof text);
        ck_assert_uint_eq(frame.kind, DLC_FRAME_RESULT);
        ck_assert_str_eq(text, "aabbcc");
    }
    ck_assert(!hub.aborting);
}

static const struct {
    dlc_frame first, second;
    const char *says;
} unlike[] = {
    {{DLC_FRAME_BROADCAST, 1, 8, 0},
     {DLC_FRAME_BROADCAST, 2, 8, 0},
     "broadcast of 8 bytes from rank 2"},
    {{DLC_FRAME_BROADCAST, 1, 8, 0},
     {DLC_FRAME_BROADCAST, 1, 9, 0},
     "broadcast of 9 bytes from rank 1"},
    {{DLC_FRAME_ALL_GATHER, 0, 8, 8}, {DLC_FRAME_BROADCAST, 1, 8, 0}, "broadcast of 8"},
    {{DLC_FRAME_ALL_GATHER, 0, 8, 8},
     {DLC_FRAME_ALL_GATHER, 0, 4, 4},
     "all-gather of 4"},
};

TEST_EACH(different_calls_are_reported, COUNT(unlike)) {
    ck_assert(begin(2, unlike[_i].first) || unlike[_i].first.number == 2);
    ck_assert(!begin(0, unlike[_i].second));
    expect_frame(1, DLC_FRAME_ABORT, DLC_ERR_INTERNAL, unlike[_i].says);
}

/* A header that does not fit the call, and a second call by the same rank. */
TEST_EACH(malformed_calls_are_reported, 5) {
    if (_i == 0) {
        ck_assert(begin(1, gather_of(4)));
        dlc_hub_call_end(&hub, 1);
        ck_assert(!begin(1, gather_of(4)));
    } else if (_i == 1) {
        ck_assert(!begin(1, (dlc_frame){DLC_FRAME_ALL_GATHER, 0, 8, 4}));
    } else if (_i == 2) {
        ck_assert(!begin(1, (dlc_frame){DLC_FRAME_BROADCAST, 0, 8, 8}));
    } else if (_i == 3) {
        ck_assert(!begin(1, (dlc_frame){DLC_FRAME_BROADCAST, 1, 8, 0}));
    } else {
        ck_assert(!begin(1, (dlc_frame){DLC_FRAME_BROADCAST, RANKS, 8, 0}));
    }
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_INTERNAL,
                 "rank 1 sent a malformed message");
}

/* The hub keeps only one result, which must not go while it is being sent. */
TEST(calls_before_the_result_are_reported) {
    for (int r = 0; r < RANKS; r++) {
        ck_assert(begin(r, gather_of(4)));
        dlc_hub_call_end(&hub, r);
    }
    ck_assert_ptr_nonnull(peer[1].channel.shared);
    ck_assert(!begin(1, gather_of(0)));
    expect_frame(0, DLC_FRAME_RESULT, 0, "");
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_INTERNAL,
                 "rank 1 sent a malformed message");
}

/* The limit applies to the whole result, not to each contribution. */
TEST(large_results_are_refused) {
    ck_assert(!begin(1, gather_of(DLC_FRAME_BYTES_MAX / 2)));
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_INTERNAL,
                 "too much for the control channel");
    ck_assert(!hub.call.open);
}

TEST(ended_ranks_are_not_waited_for) {
    ck_assert(begin(0, gather_of(4)));
    dlc_hub_call_end(&hub, 0);
    peer[0].returned = peer[2].returned = 1;
    dlc_hub_rank_ended(&hub, 0, 0, 0); /* its contribution is complete */
    ck_assert(!hub.aborting);
    dlc_hub_rank_ended(&hub, 2, 0, 0);
    ck_assert(hub.aborting);
    expect_frame(1, DLC_FRAME_ABORT, DLC_ERR_PEER,
                 "rank 2 (host h, pid 102) has ended");
}

/* A result larger than the socket's buffer is sent in pieces, and what follows it comes
 * after it. */
TEST(results_go_out_whole) {
    enum { BYTES = 3 << 20 };
    const int room = 1;
    const dlc_frame request = {.kind = DLC_FRAME_REQUEST, .number = 5};
    char *got = dlc_alloc(BYTES, 1);
    dlc_frame frame;
    size_t at = 0;
    ck_assert_ptr_nonnull(got);
    for (size_t i = 0; i < BYTES; i++)
        got[i] = (char)(i % 251);
    for (int r = 0; r < RANKS; r++) {
        const dlc_frame call = {DLC_FRAME_BROADCAST, 0, BYTES, r ? 0 : BYTES};
        setsockopt(peer[r].channel.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        say(r, &call, sizeof call);
        for (size_t sent = 0; r == 0 && sent < BYTES;) {
            ssize_t done = send(far_end[0], got + sent, BYTES - sent, MSG_DONTWAIT);
            sent += done > 0 ? (size_t)done : 0;
            dlc_hub_read(&hub, 0);
        }
        dlc_hub_read(&hub, r);
    }
    memset(got, 0, BYTES);
    dlc_hub_send(&hub, 1, &request, NULL);
    dlc_hub_flush(&hub, 1);
    ck_assert_int_eq(dlc_frame_read(far_end[1], &frame, sizeof frame), DLC_OK);
    ck_assert_uint_eq(frame.bytes, BYTES);
    for (int stalls = 0; at < BYTES && stalls < 1000; stalls++) {
        ssize_t done = recv(far_end[1], got + at, BYTES - at, MSG_DONTWAIT);
        stalls = done > 0 ? 0 : stalls;
        at += done > 0 ? (size_t)done : 0;
        dlc_hub_flush(&hub, 1);
    }
    ck_assert_uint_eq(at, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        if (got[i] != (char)(i % 251))
            ck_abort_msg("byte %zu is wrong", i);
    expect_frame(1, DLC_FRAME_REQUEST, 5, "");
    dlc_free(got);
}

/* ---- Receiving --------------------------------------------------------------- */

TEST(frames_come_in_pieces) {
    char bytes[sizeof(dlc_frame) + 4], text[64];
    const dlc_frame frame = gather_of(4);
    for (int r = 0; r < RANKS; r++) {
        memcpy(bytes, &frame, sizeof frame);
        snprintf(text, sizeof text, "<%d%d>", r, r);
        memcpy(bytes + sizeof frame, text, 4);
        for (size_t i = 0; i < sizeof bytes; i++) {
            say(r, bytes + i, 1);
            dlc_hub_read(&hub, r);
        }
    }
    next_frame(0, text, sizeof text);
    ck_assert_str_eq(text, "<00><11><22>");
    ck_assert(!hub.aborting);
}

static const dlc_frame unknown[] = {
    {DLC_FRAME_SIGNAL, SIGKILL, 0, 0}, {DLC_FRAME_SIGNAL, 0, 0, 0},
    {DLC_FRAME_HEARTBEAT, 0, 0, 0},    {DLC_FRAME_ABORT, 0, 0, 0},
    {DLC_FRAME_RESULT, 0, 0, 0},       {99, 0, 0, 0},
};

TEST_EACH(unknown_messages_are_refused, COUNT(unknown)) {
    say(1, &unknown[_i], sizeof unknown[_i]);
    dlc_hub_read(&hub, 1);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_INTERNAL, "sent an unknown message");
}

/* A rank that cannot take part in what all open says so to those that wait for it. */
TEST(withdrawals_are_spread) {
    const dlc_frame frame = {
        .kind = DLC_FRAME_WITHDRAWN, .number = DLC_ERR_PEER, .size = 4, .bytes = 7};
    say(1, &frame, sizeof frame);
    say(1, "no link", 7);
    dlc_hub_read(&hub, 1);
    for (int r = 0; r < RANKS; r++)
        expect_frame(r, DLC_FRAME_WITHDRAWN, DLC_ERR_PEER,
                     "rank 1 (host h, pid 101): no link");
    ck_assert(!hub.aborting);
}

/* Only remote ranks send heartbeats; those of children are taken by the hub. */
TEST(heartbeats_come_from_remote_ranks) {
    const dlc_frame frame = {.kind = DLC_FRAME_HEARTBEAT,
                             .bytes = sizeof(dlc_heartbeat)};
    const dlc_heartbeat heartbeat = {.pid = 77, .state = 'R', .steps = 5};
    say(1, &frame, sizeof frame);
    say(1, &heartbeat, sizeof heartbeat);
    dlc_hub_read(&hub, 1);
    ck_assert_int_eq(peer[1].pid, 77);
    ck_assert_uint_eq(peer[1].heartbeat.steps, 5);
    ck_assert(!hub.aborting);
    peer[2].remote = 0;
    say(2, &frame, sizeof frame);
    say(2, &heartbeat, sizeof heartbeat);
    dlc_hub_read(&hub, 2);
    ck_assert_int_eq(peer[2].pid, 102);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_INTERNAL, "sent an unknown message");
    peer[2].remote = 1;
}

TEST(channels_pass_frames_on) {
    const dlc_frame frame = {.kind = DLC_FRAME_ABORT, .number = 7, .bytes = 5};
    const dlc_frame huge = {.kind = DLC_FRAME_ABORT,
                            .bytes = DLC_FRAME_BYTES_MAX + 1ull};
    dlc_channel to = {.fd = peer[0].channel.fd}, from = {.fd = far_end[0]};
    dlc_channel_send(&to, &frame, "hello");
    dlc_channel_send(&to, &frame, "again");
    dlc_channel_flush(&to);
    ck_assert(!dlc_channel_has_output(&to));
    ck_assert_int_eq(dlc_channel_read(&from), 1);
    ck_assert_int_eq(from.frame.number, 7);
    ck_assert_mem_eq(from.payload.bytes, "hello", 6); /* NUL-terminated */
    ck_assert_int_eq(dlc_channel_read(&from), 1);
    ck_assert_str_eq(from.payload.bytes, "again");
    ck_assert_int_eq(dlc_channel_read(&from), 0);
    ck_assert_int_ge(from.fd, 0);
    ck_assert_int_eq(send(to.fd, &huge, sizeof huge, MSG_NOSIGNAL), sizeof huge);
    ck_assert_int_eq(dlc_channel_read(&from), 0);
    ck_assert_int_eq(from.fd, -1); /* malformed */
    far_end[0] = dup(to.fd);
    dlc_channel_close(&to);
    dlc_channel_close(&from);
    peer[0].channel.fd = -1;
}

/* Writes in two pieces, with a pause that the reader has to wait through. */
static void *send_in_two(void *argument) {
    const int *fd = argument;
    (void)!write(*fd, "hel", 3);
    usleep(50000);
    (void)!write(*fd, "lo", 2);
    return NULL;
}

TEST(frames_are_read_whole) {
    pthread_t thread;
    char text[6] = "";
    ck_assert_int_eq(pthread_create(&thread, NULL, send_in_two, &peer[0].channel.fd),
                     0);
    ck_assert_int_eq(dlc_frame_read(far_end[0], text, 5), DLC_OK);
    pthread_join(thread, NULL);
    ck_assert_str_eq(text, "hello");
}

/* ---- Hangs ------------------------------------------------------------------- */

/* All ranks have been idle for so long: no progress, not busy, no dlc_job_check. */
static void set_idle(double seconds) {
    hub.hang_timeout = 1;
    hub.last_heartbeat = dlc_now_ns();
    hub.last_work = ago(seconds);
    for (int r = 0; r < RANKS; r++) {
        peer[r].last_progress = peer[r].last_busy = peer[r].last_check = ago(seconds);
        peer[r].last_heard = hub.last_heartbeat;
        peer[r].heartbeat.steps = 1;
    }
}

TEST(waiting_ranks_are_not_culprits) {
    set_idle(2);
    peer[0].last_check = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    ck_assert(hub.aborting);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_PEER, "rank 1 (host h, pid 101) hangs");
    expect_nothing(0);
    for (int r = 1; r < RANKS; r++) {
        expect_frame(r, DLC_FRAME_ABORT, DLC_ERR_PEER, "rank 1");
        expect_frame(r, DLC_FRAME_KILL, SIGKILL, "");
    }
    ck_assert_int_eq(dlc_hub_exit_code(&hub), dlc_exit_code(DLC_ERR_PEER));
}

TEST(all_wait_for_each_other) {
    set_idle(2);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_check = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_PEER, "all wait for each other");
    expect_nothing(0);
}

/* A computing rank has ten times the hang timeout, and no more. */
TEST(computing_ranks_get_more_time) {
    set_idle(9);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_check = dlc_now_ns();
    peer[1].last_busy = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    ck_assert(!hub.aborting);
    set_idle(11);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_check = dlc_now_ns();
    peer[1].last_busy = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    ck_assert(hub.aborting);
}

/* What a rank has computed reaches the others a moment after it begins to wait. */
TEST_EACH(computing_ends, 2) {
    set_idle(11);
    hub.stop_signal = _i ? SIGTERM : 0;
    hub.stopped_at = ago(2);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_wait = dlc_now_ns();
    peer[1].last_wait = ago(5);
    peer[1].last_busy = dlc_now_ns();
    hub.hang_timeout = 100;
    dlc_hub_watchdog_check(&hub); /* sees that it computes */
    hub.hang_timeout = 2;
    peer[1].last_wait = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    ck_assert(!hub.aborting && !hub.killed);
    hub.last_work = ago(11);
    dlc_hub_watchdog_check(&hub);
    ck_assert_int_eq(hub.aborting, !_i);
    ck_assert_int_eq(hub.killed, _i);
}

/* Threads that read data, or a full machine, make ranks look busy whose main threads
 * wait. The report names what was lost. */
TEST(busy_ranks_may_wait) {
    set_idle(2);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_wait = peer[r].last_check = peer[r].last_busy = dlc_now_ns();
    peer[1].last_progress = ago(3);
    peer[1].heartbeat.activity = (dlc_activity){.phase = "update",
                                                .exchanged = "bucket 3",
                                                .exchanged_bytes = 64,
                                                .transport = "ucx",
                                                .awaited = 2};
    dlc_hub_watchdog_check(&hub);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_PEER,
                 "all wait for each other; rank 1 (host h, pid 101) was the first, "
                 "during update and exchange of bucket 3 (64 bytes) over ucx with rank "
                 "2");
    expect_nothing(0);
}

TEST(silent_agents_are_lost) {
    set_idle(0);
    peer[1].last_heard = ago(2);
    peer[2].last_heard = ago(2);
    peer[2].joined = 0; /* has not joined yet: left to the acceptor */
    dlc_hub_watchdog_check(&hub);
    ck_assert(hub.aborting && !peer[1].running && peer[2].running);
    expect_frame(0, DLC_FRAME_ABORT, DLC_ERR_PEER, "lost rank 1 (host h, pid 101)");
}

/* A stopping job waits for ranks that wait or save, but not for one that goes on
 * computing. */
TEST(stopping_has_an_end) {
    set_idle(5);
    hub.stop_signal = SIGTERM;
    hub.stopped_at = ago(3);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_check = peer[r].last_progress = dlc_now_ns();
    peer[0].last_progress = ago(5); /* waits */
    dlc_hub_watchdog_check(&hub);
    ck_assert(!hub.killed && !hub.aborting);
    peer[1].last_progress = ago(5);
    peer[1].last_busy = peer[1].last_disk_wait = dlc_now_ns(); /* saves */
    hub.last_heartbeat = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    ck_assert(!hub.killed && !hub.aborting);
    peer[1].last_disk_wait = 0;
    hub.last_heartbeat = dlc_now_ns();
    dlc_hub_watchdog_check(&hub);
    ck_assert(hub.killed);
    for (int r = 0; r < RANKS; r++)
        expect_frame(r, DLC_FRAME_KILL, SIGKILL, "");
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 128 + SIGTERM);
}

/* Ranks whose agents do not answer are killed when their time is over, and then no
 * longer waited for. */
TEST(killed_ranks_are_abandoned) {
    int code = 99;
    uint64_t start = dlc_now_ns();
    dlc_hub_rank_ended(&hub, 1, 0, 3);
    hub.kill_at = dlc_now_ns() + 100000000u;
    ck_assert_int_eq(dlc_hub_run(&hub, &code), DLC_OK);
    ck_assert_double_lt(dlc_since(start), 10);
    ck_assert_int_eq(code, 3);
    for (int r = 0; r < RANKS; r += 2) {
        expect_frame(r, DLC_FRAME_ABORT, DLC_ERR_PEER, "rank 1");
        expect_frame(r, DLC_FRAME_KILL, SIGKILL, "");
        expect_frame(r, DLC_FRAME_DONE, 3, "");
        ck_assert(peer[r].killed_by_hub && !peer[r].running);
    }
}

/* A rank that ended is not signalled again, and one that is asked to end by another
 * signal than SIGKILL ends by itself. */
TEST(kills_are_told_apart) {
    peer[2].running = 0;
    dlc_hub_kill_rank(&hub, 2, SIGKILL);
    expect_nothing(2);
    ck_assert(!peer[2].killed_by_hub);
    dlc_hub_kill_rank(&hub, 1, SIGTERM);
    expect_frame(1, DLC_FRAME_KILL, SIGTERM, "");
    ck_assert(!peer[1].killed_by_hub);
    dlc_hub_rank_ended(&hub, 1, 1, SIGTERM);
    ck_assert_int_eq(dlc_hub_exit_code(&hub), dlc_exit_code(DLC_ERR_PEER));
}

/* After a time in which this process was stopped, all timers begin anew: nobody was
 * silent, stuck or slow. */
TEST(a_stopped_hub_blames_nobody) {
    set_idle(50);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_heard = peer[r].last_disk_wait = ago(50);
    hub.last_heartbeat = ago(50);
    dlc_hub_watchdog_check(&hub);
    ck_assert(!hub.aborting && !hub.killed);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_uint_gt(peer[r].last_progress, ago(10));
        ck_assert_uint_gt(peer[r].last_busy, ago(10));
        ck_assert_uint_gt(peer[r].last_check, ago(10));
        ck_assert_uint_gt(peer[r].last_heard, ago(10));
        ck_assert_uint_eq(peer[r].last_disk_wait, 0);
    }
    ck_assert_uint_gt(hub.last_heartbeat, ago(10));
}

/* What a heartbeat reports is noted each by itself. */
TEST(heartbeats_move_their_timers) {
    static const dlc_heartbeat news[] = {{.steps = 2, .checks = 7},
                                         {.steps = 1, .checks = 8},
                                         {.steps = 1, .checks = 7, .busy = 1},
                                         {.steps = 1, .checks = 7, .disk_wait = 1}};
    for (int i = 0; i < 4; i++) {
        dlc_peer *p = &peer[1];
        set_idle(50);
        p->last_disk_wait = ago(50);
        p->heartbeat.checks = 7;
        dlc_hub_heartbeat(&hub, 1, &news[i]);
        ck_assert_int_eq(p->last_progress > ago(10), i == 0);
        ck_assert_int_eq(p->last_check > ago(10), i == 1);
        ck_assert_int_eq(p->last_busy > ago(10), i == 2);
        ck_assert_int_eq(p->last_disk_wait > ago(10), i == 3);
        ck_assert_uint_eq(p->heartbeat.checks, news[i].checks);
        ck_assert_uint_lt(peer[2].last_progress, ago(10));
    }
}

/* The result of a collective ends a wait, which was no hang, for every rank. */
TEST(results_count_as_progress) {
    set_idle(50);
    for (int r = 0; r < RANKS; r++) {
        ck_assert(begin(r, gather_of(0)));
        dlc_hub_call_end(&hub, r);
        ck_assert_int_eq(peer[r].called, r + 1 < RANKS);
    }
    for (int r = 0; r < RANKS; r++) {
        ck_assert(!peer[r].called && !peer[r].channel.shared);
        ck_assert_uint_gt(peer[r].last_progress, ago(10));
        expect_frame(r, DLC_FRAME_RESULT, 0, "");
    }
    ck_assert(!hub.call.open);
    ck_assert(begin(2, gather_of(4))); /* the next call may be another one */
}

/* A stall is warned of once, and the next one again. */
TEST(each_stall_is_warned_of) {
    for (int i = 0; i < 2; i++) {
        set_idle(3 + i);
        for (int r = 0; r < RANKS; r++)
            peer[r].last_check = dlc_now_ns();
        peer[1].last_busy = dlc_now_ns();
        uint64_t before = hub.warned_stall;
        dlc_hub_watchdog_check(&hub);
        ck_assert_uint_ne(hub.warned_stall, before);
        ck_assert_uint_eq(hub.warned_stall,
                          peer[0].last_progress > peer[2].last_progress
                              ? peer[0].last_progress
                              : peer[2].last_progress);
    }
}

/* Ranks that have waited for each other for long never stop, with any hang timeout;
 * those that wait for one that computes, or that has just made progress, do. */
TEST_EACH(hung_jobs_stop, 6) {
    enum { ALL_WAIT, ONE_COMPUTES, ONE_PROGRESSES };
    int what = _i / 2;
    set_idle(11);
    hub.hang_timeout = _i % 2 ? 0 : 100;
    hub.stop_signal = SIGTERM;
    hub.stopped_at = ago(2);
    for (int r = 0; r < RANKS; r++)
        peer[r].last_wait = dlc_now_ns();
    if (what == ONE_COMPUTES)
        peer[1].last_wait = ago(5);
    else if (what == ONE_PROGRESSES)
        peer[1].last_progress = ago(5);
    dlc_hub_watchdog_check(&hub);
    ck_assert_int_eq(hub.killed, what == ALL_WAIT);
    ck_assert(!hub.aborting);
}

/* Exit codes are cut to a byte; only 0 becomes 0. */
TEST(codes_fit_a_byte) {
    static const struct {
        int code, byte;
    } cases[] = {{0, 0}, {1, 1}, {255, 255}, {256, 1}, {257, 1}, {512, 1}, {-1, 255}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(dlc_exit_byte(cases[i].code), cases[i].byte);
}

/* ---- Signals ----------------------------------------------------------------- */

TEST(asked_again) {
    uint64_t mine = 0, other = 0;
    dlc_hub_signal(&hub, SIGINT, &mine);
    expect_frame(1, DLC_FRAME_REQUEST, DLC_JOB_STOP, "");
    dlc_hub_signal(&hub, SIGINT, &mine); /* a duplicate of the first */
    dlc_hub_signal(&hub, SIGTERM,
                   &other); /* to another process: not a second request */
    ck_assert(!hub.killed);
    expect_nothing(1);
    usleep(250000);
    dlc_hub_signal(&hub, SIGINT, &mine);
    ck_assert(hub.killed);
    expect_frame(1, DLC_FRAME_KILL, SIGKILL, "");
    ck_assert_int_eq(dlc_hub_exit_code(&hub), 128 + SIGINT);
}
