/* Tests external jobs whose ranks, agents or hub are killed, and ranks that hang in any
 * kind of job. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "job_fixture.h"
#include "support/test.h"

/* Waits as a transport does: calls dlc_job_check over and over, mostly asleep. */
static dlc_status wait_for_others(dlc_job *job) {
    usleep(2000);
    return dlc_job_check(job);
}

static int victim_main(dlc_job *job, void *argument) {
    (void)argument;
    dlc_job_activity(job, "backward", "conv1", 0);
    dlc_job_exchange_activity(job, "bucket 3", 4096);
    shared_enter(job);
    dlc_status status = DLC_OK;
    while (status == DLC_OK)
        status = wait_for_others(job);
    if (status == DLC_ERR_PEER)
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

static int collect_main(dlc_job *job, void *argument) {
    enum { BYTES = 100000 };
    char *bytes = dlc_alloc(BYTES, 1), *all = dlc_alloc(8, BYTES);
    dlc_job_activity(job, "backward", "conv1", 0);
    dlc_job_exchange_activity(job, "bucket 3", 4096);
    (void)argument;
    shared_enter(job);
    dlc_status status = bytes && all ? DLC_OK : DLC_ERR_NOMEM;
    while (status == DLC_OK)
        status = dlc_job_all_gather(job, bytes, BYTES, all);
    dlc_free(bytes);
    dlc_free(all);
    if (status == DLC_ERR_PEER)
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

static const char words[] =
    "during backward conv1 and exchange of bucket 3 (4096 bytes)";

/* Expects "PREFIXrank 1 (host x, pid 77)WHAT" in rank 0's output. */
static void expect_message(const external_job *job, const char *prefix, int rank,
                           pid_t pid, const char *what) {
    char host[64] = "", text[256];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%srank %d (host %s, pid %d)%s", prefix, rank, host,
             (int)pid, what);
    ck_assert_msg(external_prints(job, 0, text), "no \"%s\" in \"%s\"", text,
                  dlc_text_string(&job->process[0].text));
}

/* Waits for ranks whose parent was killed; blocks forever if one survives. */
static void reap_orphans(void) {
    while (waitpid(-1, NULL, 0) > 0)
        continue;
}

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

/* ---- Deaths ------------------------------------------------------------------ */

TEST_EACH(rank_is_killed, 12) {
    int ranks = 2 + _i % 3, victim = _i % ranks;
    external_job job = external_start(ranks, NULL, _i % 2 ? collect_main : victim_main,
                                      NULL);
    shared_wait_ranks(ranks);
    usleep(20000 + 3000 * (unsigned)_i);
    pid_t pid = atomic_load(&shared->pid[victim]);
    uint64_t start = dlc_now_ns();
    kill(pid, SIGKILL);
    external_wait(&job, 5);
    ck_assert_double_lt(dlc_since(start), 10);
    ck_assert_int_eq(atomic_load(&shared->count), ranks - 1);
    expect_message(&job, "", victim, pid, " was killed by signal 9 (Killed)");
    ck_assert(external_prints(&job, 0, words));
    external_free(&job);
}

/* The agent is killed, not the rank: no process is left that could report how the rank
 * ended. */
TEST(agent_is_killed) {
    external_job job = external_start(3, NULL, victim_main, NULL);
    shared_wait_ranks(3);
    usleep(600000); /* a heartbeat has come */
    pid_t pid = atomic_load(&shared->pid[1]);
    kill(job.process[1].pid, SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[0]), 5);
    ck_assert_int_eq(process_wait(&job.process[1]), -SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[2]), 5);
    /* The orphan may learn of it, too, before the kernel kills it. */
    ck_assert_int_ge(atomic_load(&shared->count), 2);
    expect_message(&job, "lost ", 1, pid,
                   " during backward conv1 and exchange of bucket 3");
    ck_assert(external_prints(&job, 0, "(4096 bytes): its connection was closed"));
    reap_orphans();
    external_free(&job);
}

TEST(hub_is_killed) {
    external_job job = external_start(3, NULL, victim_main, NULL);
    shared_wait_ranks(3);
    kill(job.process[0].pid, SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[0]), -SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[1]), 5);
    ck_assert_int_eq(process_wait(&job.process[2]), 5);
    ck_assert(external_prints(&job, 1, "rank 0's process at 127.0.0.1:"));
    ck_assert(external_prints(&job, 2, "is gone"));
    /* The orphan may learn of it, too, before the kernel kills it. */
    ck_assert_int_ge(atomic_load(&shared->count), 2);
    reap_orphans();
    external_free(&job);
}

static int unresponsive_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    while (dlc_job_rank(job) >= 0)
        pause();
    return 0;
}

TEST_EACH(unresponsive_ranks_are_killed, 2) {
    external_job job = external_start(3, NULL, unresponsive_main, NULL);
    shared_wait_ranks(3);
    kill(_i ? job.process[0].pid : atomic_load(&shared->pid[1]), SIGKILL);
    int first = process_wait(&job.process[0]);
    ck_assert_int_eq(first, _i ? -SIGKILL : 5);
    ck_assert_int_eq(process_wait(&job.process[1]), 5);
    ck_assert_int_eq(process_wait(&job.process[2]), 5);
    /* Either end of the connection may time out first. */
    ck_assert(external_prints(&job, 0, "did not end in time") ||
              external_prints(&job, 2, "did not end in time"));
    reap_orphans();
    external_free(&job);
}

/* A process is killed before all ranks have joined. */
TEST_EACH(killed_early, 2) {
    external_job job = {.ranks = 3, .port = free_port()};
    external_start_rank(&job, 0, NULL, NULL, victim_main, NULL);
    external_start_rank(&job, 1, NULL, NULL, victim_main, NULL);
    usleep(400000);
    kill(job.process[_i].pid, SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[_i]), -SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[1 - _i]), 5);
    reap_orphans();
    external_free(&job);
}

/* ---- Hangs ------------------------------------------------------------------- */

#define HANG_TIMEOUT 1.0

/* Rank 1 hangs; the others wait for it. */
enum { STOPS, SLEEPS };

static int hang_main(dlc_job *job, void *argument) {
    const int *how = argument;
    shared_enter(job);
    dlc_job_activity(job, "forward", "conv2", 0);
    dlc_status status = dlc_job_barrier(job);
    if (dlc_job_rank(job) == 1) {
        if (*how == STOPS)
            raise(SIGSTOP);
        while (*how == SLEEPS)
            pause();
    }
    dlc_job_activity(job, "exchange", "bucket 1", 8192);
    while (status == DLC_OK)
        status = wait_for_others(job);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "rank 1 (host") &&
        strstr(dlc_detail(), "during forward conv2"))
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

/* Checks the report in rank 0's output. */
static void check_report(const char *rank_0, int how) {
    char expected[256];
    snprintf(expected, sizeof expected, "rank 1 (host ");
    ck_assert_msg(strstr(rank_0, expected) != NULL, "%s", rank_0);
    ck_assert_msg(strstr(rank_0, how == STOPS
                                     ? "hangs, stopped by a signal: no progress"
                                     : "hangs: no progress") != NULL,
                  "%s", rank_0);
    ck_assert_msg(strstr(rank_0, "during forward conv2") != NULL, "%s", rank_0);
    ck_assert_msg(strstr(rank_0, "\n  rank 0 (host ") != NULL, "%s", rank_0);
    ck_assert_msg(strstr(rank_0, ") is waiting for rank 1, last progress ") != NULL,
                  "%s", rank_0);
    ck_assert_msg(strstr(rank_0, "during exchange bucket 1 (8192 bytes)") != NULL, "%s",
                  rank_0);
    /* One report, and none about the end of the rank, which the hub itself killed. */
    const char *first = strstr(rank_0, "hangs");
    ck_assert_msg(strstr(first + 1, "hangs") == NULL, "%s", rank_0);
    ck_assert_msg(strstr(rank_0, "was killed by signal") == NULL, "%s", rank_0);
}

TEST_RANGE(local_rank_hangs, STOPS, SLEEPS + 1) {
    int how = _i;
    dlc_job_options options = {.ranks = 3, .hang_timeout = HANG_TIMEOUT};
    uint64_t start = dlc_now_ns();
    job_process process = process_start_options(&options, hang_main, &how);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_double_ge(dlc_since(start), HANG_TIMEOUT);
    check_report(dlc_text_string(&process.text), how);
    ck_assert_int_eq(atomic_load(&shared->count), 2);
    dlc_text_free(&process.text);
}

TEST_RANGE(external_rank_hangs, STOPS, SLEEPS + 1) {
    int how = _i;
    dlc_job_options options = {.ranks = 1, .hang_timeout = HANG_TIMEOUT};
    external_job job = external_start(3, &options, hang_main, &how);
    external_wait(&job, 5);
    check_report(dlc_text_string(&job.process[0].text), how);
    ck_assert_int_eq(atomic_load(&shared->count), 2);
    external_free(&job);
}

static void *compute(void *argument) {
    for (atomic_int *end = argument; !atomic_load(end);)
        continue;
    return NULL;
}

/* All ranks wait for each other: a message was lost, and no rank is the culprit, though
 * a thread of each computes. */
static int lost_main(dlc_job *job, void *argument) {
    pthread_t thread;
    atomic_int end = 0;
    (void)argument;
    if (pthread_create(&thread, NULL, compute, &end))
        return 1;
    dlc_job_activity(job, "exchange", "bucket 1", 8192);
    dlc_status status = DLC_OK;
    while (status == DLC_OK) {
        dlc_job_wait(job, "ucx", 1 - dlc_job_rank(job));
        status = wait_for_others(job);
    }
    atomic_store(&end, 1);
    pthread_join(thread, NULL);
    return dlc_exit_code(status);
}

TEST(all_wait) {
    dlc_job_options options = {.ranks = 2, .hang_timeout = HANG_TIMEOUT};
    job_process process = process_start_options(&options, lost_main, NULL);
    ck_assert_int_eq(process_wait(&process), 5);
    const char *text = dlc_text_string(&process.text);
    ck_assert_msg(strstr(text, "all wait for each other") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "has computed") == NULL, "%s", text);
    ck_assert_msg(strstr(text, "\n  rank 1 (host ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, " during exchange bucket 1 (8192 bytes) over ucx with "
                               "rank 0") != NULL,
                  "%s", text);
    dlc_text_free(&process.text);
}

/* An agent, or the hub, is stopped. */
TEST_EACH(process_is_stopped, 2) {
    dlc_job_options options = {.ranks = 1, .hang_timeout = HANG_TIMEOUT};
    external_job job = external_start(2, &options, victim_main, NULL);
    shared_wait_ranks(2);
    usleep(600000);
    kill(job.process[_i].pid, SIGSTOP);
    ck_assert_int_eq(process_wait(&job.process[1 - _i]), 5);
    shared_wait_for(&shared->count, 2); /* its rank detects that by itself */
    kill(job.process[_i].pid, SIGKILL);
    ck_assert_int_eq(process_wait(&job.process[_i]), -SIGKILL);
    ck_assert_msg(
        external_prints(&job, 1 - _i,
                        _i ? "nothing was heard from" : "has not been heard from for"),
        "%s", dlc_text_string(&job.process[1 - _i].text));
    reap_orphans();
    external_free(&job);
}

/* ---- Not hangs --------------------------------------------------------------- */

/* Rank 1 takes long; the others wait in a collective, or for a message. */
enum { COMPUTES, PROGRESSES, BETWEEN };

static int slow_main(dlc_job *job, void *argument) {
    const int *how = argument;
    shared_enter(job);
    dlc_job_activity(job, "forward", "conv2", 0);
    uint64_t start = dlc_now_ns();
    if (dlc_job_rank(job) == 1)
        while (dlc_since(start) < 2.5 * HANG_TIMEOUT) {
            if (*how == PROGRESSES) {
                usleep(100000);
                dlc_job_activity(job, "test", NULL, 0);
            }
        }
    else if (*how == BETWEEN) /* it waits a moment longer than rank 1 computes */
        while (dlc_since(start) < 2.5 * HANG_TIMEOUT + 0.6)
            if (wait_for_others(job) != DLC_OK)
                return 5;
    return dlc_exit_code(dlc_job_barrier(job));
}

TEST_RANGE(slow_is_not_hung, COMPUTES, BETWEEN + 1) {
    int how = _i;
    dlc_job_options options = {.ranks = 2, .hang_timeout = HANG_TIMEOUT, .unbound = 1};
    dlc_text text = {0};
    job_process process = process_start_options(&options, slow_main, &how);
    int code = process_wait(&process);
    text = process.text;
    ck_assert_msg(code == 0, "exit code %d: %s", code, dlc_text_string(&text));
    dlc_text_free(&text);
}

enum { LONG = 5 }; /* seconds: more than its hang timeout and a grace */

static int long_main(dlc_job *job, void *argument) {
    uint64_t start = dlc_now_ns();
    dlc_status status = DLC_OK;
    (void)argument;
    for (int done = 0; status == DLC_OK && !done; usleep(10000)) {
        int32_t mine = dlc_since(start) > LONG, all[2] = {0, 0};
        status = dlc_job_all_gather(job, &mine, sizeof mine, all);
        if (status == DLC_OK)
            status = dlc_job_check(job);
        done = all[0] && all[1];
    }
    return dlc_exit_code(status);
}

/* A rank whose parent is well finds that it is, however often it looks. */
TEST(long_job) {
    dlc_job_options options = {.ranks = 1, .hang_timeout = 2};
    external_job job = external_start(2, &options, long_main, NULL);
    external_wait(&job, 0);
    external_free(&job);
}

/* Makes progress until it is told to end. */
static int paused_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    while (!atomic_load(&shared->go)) {
        dlc_job_activity(job, "forward", "conv2", 0);
        if (dlc_job_check(job) != DLC_OK)
            return 5;
        usleep(10000);
    }
    return dlc_exit_code(dlc_job_barrier(job));
}

/* A batch system stops all processes of a job for longer than the hang timeout, and
 * continues them one after another: those of one rank first. */
TEST_EACH(all_are_stopped, 2) {
    dlc_job_options options = {.ranks = 1, .hang_timeout = 2.5};
    external_job job = external_start(2, &options, paused_main, NULL);
    shared_wait_ranks(2);
    usleep(700000); /* all have joined */
    for (int r = 0; r < 2; r++) {
        kill(job.process[r].pid, SIGSTOP);
        kill(atomic_load(&shared->pid[r]), SIGSTOP);
        usleep(200000); /* the agent has read all that the hub has sent */
    }
    usleep(4000000);
    for (int i = 0; i < 2; i++) {
        int r = _i ? i : 1 - i;
        kill(job.process[r].pid, SIGCONT);
        kill(atomic_load(&shared->pid[r]), SIGCONT);
        usleep(700000);
    }
    atomic_store(&shared->go, 1);
    external_wait(&job, 0);
    ck_assert_str_eq(dlc_text_string(&job.process[1].text), "");
    external_free(&job);
}

/* Without a hang timeout no rank is killed. */
TEST(no_deadline) {
    dlc_job_options options = {.ranks = 2};
    int how = SLEEPS;
    job_process process = process_start_options(&options, hang_main, &how);
    shared_wait_ranks(2);
    usleep(1500000);
    ck_assert_int_eq(kill(atomic_load(&shared->pid[1]), SIGKILL), 0);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&process.text), "killed by signal 9"));
    dlc_text_free(&process.text);
}
