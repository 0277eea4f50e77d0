/* Tests a rank alone, at the end of a control channel whose other end, the hub, does
 * what a hub never should; and sending on such a channel. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job/channel.h"
#include "job/rank/rank.h"
#include "job/supervise.h"
#include "support/test.h"

typedef struct fake_hub {
    int channel;
    size_t more;           /* bytes that results have too many, from the third on */
    const char *aborts[2]; /* reasons, sent instead of the third result */
    pthread_t thread;
} fake_hub;

static dlc_status send_abort(const fake_hub *hub, dlc_status status,
                             const char *reason) {
    dlc_frame frame = {
        .kind = DLC_FRAME_ABORT, .number = status, .bytes = strlen(reason) + 1};
    return dlc_frame_send(hub->channel, &frame, reason);
}

/* Answers a call of the job's only rank: the result is its contribution. */
static dlc_status answer(const fake_hub *hub, int number) {
    static char result[4096];
    dlc_frame frame = {0};
    dlc_payload payload = {0};
    DLC_TRY(dlc_frame_read(hub->channel, &frame, sizeof frame));
    DLC_TRY(dlc_frame_read_payload(hub->channel, frame.bytes, &payload));
    memset(result, 0, sizeof result);
    if (frame.bytes)
        memcpy(result, payload.bytes, frame.bytes);
    dlc_payload_free(&payload);
    if (number >= 2 && hub->aborts[0]) {
        DLC_TRY(send_abort(hub, DLC_ERR_PEER, hub->aborts[0]));
        return send_abort(hub, DLC_ERR_IO, hub->aborts[1]);
    }
    dlc_frame reply = {.kind = DLC_FRAME_RESULT,
                       .bytes = frame.bytes + (number >= 2 ? hub->more : 0)};
    return dlc_frame_send(hub->channel, &reply, result);
}

static void *hub_main(void *argument) {
    fake_hub *hub = argument;
    for (int number = 0; answer(hub, number) == DLC_OK; number++)
        continue;
    return NULL;
}

static dlc_job *open_rank(fake_hub *hub) {
    static dlc_shared_activity activity;
    int ends[2];
    sigset_t signals;
    dlc_cores *cores = NULL;
    dlc_job *job = NULL;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    dlc_rank_signals(&signals);
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &signals, NULL), 0);
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    hub->channel = ends[1];
    ck_assert_int_eq(pthread_create(&hub->thread, NULL, hub_main, hub), 0);
    const dlc_job_options options = {.settings = "", .device = "cpu", .unbound = 1};
    const dlc_rank_args args = {.options = &options,
                                .ranks = 1,
                                .control = ends[0],
                                .activity = &activity,
                                .local_rank = -1,
                                .cores = cores};
    dlc_status status = dlc_rank_open(&args, &job);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    dlc_cores_close(cores);
    return job;
}

static void close_rank(dlc_job *job, fake_hub *hub) {
    dlc_rank_close(job); /* and so the channel */
    ck_assert_int_eq(pthread_join(hub->thread, NULL), 0);
    close(hub->channel);
}

TEST_SETTINGS(.timeout = 30);

TEST(a_result) {
    fake_hub hub = {0};
    int32_t mine = 7, all = 0;
    dlc_job *job = open_rank(&hub);
    ck_assert_int_eq(dlc_job_all_gather(job, &mine, sizeof mine, &all), DLC_OK);
    ck_assert_int_eq(all, 7);
    close_rank(job, &hub);
}

TEST(a_result_of_another_size) {
    fake_hub hub = {.more = 4};
    int32_t mine = 7, all = 0;
    dlc_job *job = open_rank(&hub);
    ck_assert_int_eq(dlc_job_all_gather(job, &mine, sizeof mine, &all),
                     DLC_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "a result of the wrong size"));
    ck_assert_int_eq(all, 0);
    close_rank(job, &hub);
}

/* What ends the job is the first cause; what comes after it may be a consequence. */
TEST(two_causes) {
    fake_hub hub = {.aborts = {"the first", "the second"}};
    dlc_job *job = open_rank(&hub);
    ck_assert_int_eq(dlc_job_barrier(job), DLC_ERR_PEER);
    ck_assert_int_eq(dlc_job_report_failure(job, DLC_ERR_PEER, "the first"), 1);
    /* The hub reads the report and hangs up: a cause after the second. */
    shutdown(hub.channel, SHUT_RDWR);
    usleep(100000);
    ck_assert_int_eq(dlc_job_check(job), DLC_ERR_PEER);
    ck_assert_str_eq(dlc_detail(), "the first");
    close_rank(job, &hub);
}

/* ---- Sending ----------------------------------------------------------------- */

typedef struct interrupter {
    int fd;
    pthread_t sender;
    size_t got;
} interrupter;

static void ignore_signal(int signal) {
    (void)signal;
}

/* Interrupts the sender after every few bytes that it has sent. */
static void *read_and_interrupt(void *argument) {
    interrupter *it = argument;
    static char some[4096];
    for (ssize_t n; (n = recv(it->fd, some, sizeof some, 0)) > 0;) {
        it->got += (size_t)n;
        pthread_kill(it->sender, SIGUSR2);
    }
    return NULL;
}

TEST(frames_are_sent_whole) {
    enum { BYTES = 4 << 20 }; /* more than a socket buffers */
    static char payload[BYTES];
    const dlc_frame frame = {.kind = DLC_FRAME_RESULT, .bytes = BYTES};
    int ends[2];
    pthread_t thread;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ck_assert_int_eq(
        sigaction(SIGUSR2, &(struct sigaction){.sa_handler = ignore_signal}, NULL), 0);
    interrupter it = {.fd = ends[1], .sender = pthread_self()};
    ck_assert_int_eq(pthread_create(&thread, NULL, read_and_interrupt, &it), 0);
    ck_assert_int_eq(dlc_frame_send(ends[0], &frame, payload), DLC_OK);
    ck_assert_int_eq(shutdown(ends[0], SHUT_WR), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(it.got, sizeof frame + BYTES);
    close(ends[0]);
    close(ends[1]);
}
