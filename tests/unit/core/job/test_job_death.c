/* Tests jobs whose ranks are killed, fail, leave or hang, and whose launcher is
 * killed. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "job_fixture.h"
#include "support/test.h"

/* ---- Killed at any moment --------------------------------------------------- */

#define BIG ((size_t)300000)

/* What the other ranks do meanwhile. */
enum { IN_BARRIER, IN_ALL_GATHER, IN_BROADCAST, AT_WORK, ACTIVITIES };

static dlc_status one_round(dlc_job *job, int what, char *memory) {
    switch (what) {
    case IN_BARRIER:
        return dlc_job_barrier(job);
    case IN_ALL_GATHER:
        return dlc_job_all_gather(job, memory, BIG, memory + BIG);
    case IN_BROADCAST:
        return dlc_job_broadcast(job, 1, memory, BIG);
    default:
        usleep(200);
        return dlc_job_check(job);
    }
}

static int victim_main(dlc_job *job, void *argument) {
    const int *what = argument;
    char *memory = dlc_alloc((size_t)dlc_job_ranks(job) + 1, BIG);
    dlc_job_activity(job, "exchange", "bucket 3", 4096);
    shared_enter(job);
    dlc_status status = memory ? DLC_OK : DLC_ERR_NOMEM;
    while (status == DLC_OK)
        status = one_round(job, *what, memory);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "was killed by signal 9"))
        atomic_fetch_add(&shared->count, 1);
    dlc_free(memory);
    return dlc_exit_code(status);
}

static void sleep_randomly(int up_to_us) {
    static unsigned seed;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    seed = seed * 1664525u + 1013904223u + (unsigned)now.tv_nsec;
    usleep((seed >> 8) % (unsigned)up_to_us);
}

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(killed, 24) {
    int what = _i % ACTIVITIES, ranks = 2 + _i % 3, victim = _i % ranks;
    job_process process = process_start(ranks, victim_main, &what);
    shared_wait_ranks(ranks);
    sleep_randomly(10000);
    pid_t pid = atomic_load(&shared->pid[victim]);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_int_eq(atomic_load(&shared->count), ranks - 1);
    char host[64] = "", expected[256];
    gethostname(host, sizeof host - 1);
    snprintf(
        expected, sizeof expected,
        "rank %d (host %s, pid %d) was killed by signal 9 (Killed) during exchange "
        "bucket 3 (4096 bytes)\n",
        victim, host, (int)pid);
    ck_assert_msg(strstr(process.text.bytes, expected) != NULL, "%s",
                  process.text.bytes);
    dlc_text_free(&process.text);
}

/* ---- Killed while the job starts -------------------------------------------- */

/* Records every process of the job, from its first instruction after fork. */
static void note_fork(void) {
    int n = atomic_fetch_add(&shared->count, 1);
    if (n < SHARED_RANKS)
        atomic_store(&shared->pid[n], getpid());
}

static int wait_main(dlc_job *job, void *argument) {
    (void)argument;
    dlc_status status = DLC_OK;
    while (status == DLC_OK) {
        status = dlc_job_barrier(job);
        usleep(1000);
    }
    return dlc_exit_code(status);
}

TEST_EACH(killed_at_start, 12) {
    ck_assert_int_eq(pthread_atfork(NULL, NULL, note_fork), 0);
    int victim = 1 + _i % 3; /* process 0 is the launcher */
    job_process process = process_start(3, wait_main, NULL);
    shared_wait_ranks(victim + 1);
    sleep_randomly(2000);
    kill(atomic_load(&shared->pid[victim]), SIGKILL);
    int code = process_wait(&process);
    ck_assert_msg(code == 5, "code %d: %s", code, process.text.bytes);
    ck_assert_ptr_nonnull(
        strstr(process.text.bytes, "was killed by signal 9 (Killed)"));
    dlc_text_free(&process.text);
}

TEST_EACH(launcher_killed, 20) {
    ck_assert_int_eq(pthread_atfork(NULL, NULL, note_fork), 0);
    job_process process = process_start(4, wait_main, NULL);
    shared_wait_ranks(1 + _i % 5);
    sleep_randomly(_i % 2 ? 20000 : 1000);
    ck_assert_int_eq(kill(process.pid, SIGKILL), 0);
    /* Reads until every writer is gone: blocks forever if a rank survives. */
    ck_assert_int_eq(process_wait(&process), -SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    ck_assert_int_eq(errno, ECHILD);
    dlc_text_free(&process.text);
}

/* ---- Failures and early exits ------------------------------------------------- */

static int hang_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    while (dlc_job_rank(job) >= 0)
        pause();
    return 0;
}

TEST(hung_ranks_are_killed) {
    job_process process = process_start(3, hang_main, NULL);
    shared_wait_ranks(3);
    kill(atomic_load(&shared->pid[1]), SIGKILL);
    uint64_t start = dlc_now_ns();
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_double_ge(dlc_since(start), 1.4); /* they were given time to end */
    ck_assert_ptr_nonnull(strstr(process.text.bytes, "rank 0 (host "));
    ck_assert_ptr_nonnull(strstr(process.text.bytes, "rank 2 (host "));
    ck_assert_ptr_nonnull(strstr(process.text.bytes, "did not end in time"));
    dlc_text_free(&process.text);
}

TEST(stopped_ranks_are_killed) {
    job_process process = process_start(2, hang_main, NULL);
    shared_wait_ranks(2);
    kill(atomic_load(&shared->pid[0]), SIGSTOP);
    kill(atomic_load(&shared->pid[1]), SIGKILL);
    ck_assert_int_eq(process_wait(&process), 5);
    dlc_text_free(&process.text);
}

TEST(two_killed_at_once) {
    int what = IN_BARRIER;
    job_process process = process_start(4, victim_main, &what);
    shared_wait_ranks(4);
    /* Stopped, so that it cannot hear of the other death before its own. */
    kill(atomic_load(&shared->pid[3]), SIGSTOP);
    kill(atomic_load(&shared->pid[1]), SIGKILL);
    kill(atomic_load(&shared->pid[3]), SIGKILL);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_int_eq(atomic_load(&shared->count), 2);
    dlc_text_free(&process.text);
}

/* Rank 0 exits on command, like a rank whose transport noticed the death first. */
static int exit_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    while (dlc_job_rank(job) == 0 && !atomic_load(&shared->go))
        usleep(1000);
    if (dlc_job_rank(job) == 0)
        return 3;
    dlc_status status = wait_main(job, NULL);
    if (strstr(dlc_detail(), "rank 2 (") && strstr(dlc_detail(), "signal 9"))
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

/* Waits until the process has ended, whether or not its parent has noticed. */
static void wait_for_zombie(pid_t pid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int tries = 0; !strstr(line, ") Z "); tries++) {
        ck_assert_int_lt(tries, 10000);
        usleep(1000);
        FILE *file = fopen(path, "re");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        fclose(file);
    }
}

/* The launcher notices a kill and an exit at the same time, the exit first: the kill is
 * the cause, the exit followed from it. */
TEST(a_kill_is_the_cause_of_an_exit) {
    job_process process = process_start(3, exit_main, NULL);
    shared_wait_ranks(3);
    ck_assert_int_eq(kill(process.pid, SIGSTOP), 0);
    ck_assert_int_eq(kill(atomic_load(&shared->pid[2]), SIGKILL), 0);
    wait_for_zombie(atomic_load(&shared->pid[2]));
    atomic_store(&shared->go, 1);
    wait_for_zombie(atomic_load(&shared->pid[0]));
    ck_assert_int_eq(kill(process.pid, SIGCONT), 0);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_int_eq(atomic_load(&shared->count), 1); /* rank 1 learned of it */
    const char *output = dlc_text_string(&process.text);
    ck_assert_msg(strstr(output, "error: rank 2 (") == output &&
                      strstr(output, "was killed by signal 9 (Killed)") &&
                      !strstr(output, "rank 0 ("),
                  "%s", output);
    dlc_text_free(&process.text);
}

/* Records activities, then rank 1 ends by a signal of its own. */
static int activity_main(dlc_job *job, void *argument) {
    shared_enter(job);
    const int *what = argument;
    dlc_job_activity(job, "forward", "conv1", 0);
    if (*what == 1)
        dlc_job_activity(
            job, "a phase of more than twenty-three letters",
            "a layer with a name that is so long that nobody would ever want to "
            "read it in an error message",
            UINT64_MAX);
    if (*what == 2)
        dlc_job_activity(job, "forward", NULL, 0);
    if (*what == 3)
        dlc_job_activity(job, NULL, "conv1", 5);
    if (dlc_job_rank(job) == 1)
        raise(SIGUSR2);
    return wait_main(job, NULL);
}

static const char *const words[] = {
    "(User defined signal 2) during forward conv1\n",
    "(User defined signal 2) during a phase of more than tw a layer with a name that "
    "is so long that nobody would ever want (18446744073709551615 bytes)\n",
    "(User defined signal 2) during forward\n",
    "(User defined signal 2)\n",
};

TEST_EACH(the_last_activity_is_reported, COUNT(words)) {
    dlc_text text;
    int what = _i;
    ck_assert_int_eq(process_run(2, activity_main, &what, &text), 5);
    ck_assert_msg(strstr(text.bytes, words[_i]) != NULL, "%s", text.bytes);
    dlc_text_free(&text);
}

static int fail_main(dlc_job *job, void *argument) {
    const int *code = argument;
    shared_enter(job);
    dlc_job_activity(job, "loading", "data", 0);
    if (dlc_job_rank(job) == 1)
        return *code;
    dlc_status status = dlc_job_barrier(job);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "during loading data"))
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

static const int fail_codes[][2] = {{4, 4},     {1, 1},   {5, 5},
                                    {255, 255}, {256, 1}, {-1, 255}};

TEST_EACH(a_rank_fails, COUNT(fail_codes)) {
    dlc_text text;
    int code = fail_codes[_i][0];
    ck_assert_int_eq(process_run(3, fail_main, &code, &text), fail_codes[_i][1]);
    ck_assert_ptr_nonnull(strstr(text.bytes, "ended with exit code"));
    ck_assert_int_eq(atomic_load(&shared->count), 2);
    dlc_text_free(&text);
}

typedef struct failure_case {
    const char *why[3]; /* of each rank; NULL: it waits for the others */
    dlc_status status;
    const char *logged; /* what is logged; NULL: the error with the name of rank 1 */
    int code;
} failure_case;

static int say_main(dlc_job *job, void *argument) {
    const failure_case *fails = argument;
    const char *why = fails->why[dlc_job_rank(job)];
    dlc_status status = DLC_OK;
    shared_enter(job);
    shared_wait_ranks(3);
    while (!why && status == DLC_OK) {
        usleep(1000);
        status = dlc_job_check(job);
    }
    if (!why)
        return dlc_job_report_failure(job, status, dlc_detail()) ? dlc_exit_code(status)
                                                                 : 99;
    return dlc_job_report_failure(job, fails->status, why)
               ? dlc_exit_code(fails->status)
               : 99;
}

static failure_case failure_cases[] = {
    {{"it broke", "it broke", "it broke"}, DLC_ERR_IO, "error: it broke\n", 1},
    {{NULL, "it broke", NULL}, DLC_ERR_IO, NULL, 1},
    {{NULL, NULL, "wrong"}, DLC_ERR_CONFIG, "error: wrong\n", 2},
    {{"wrong", "wrong", NULL}, DLC_ERR_DATA, "error: wrong\n", 4},
};

/* A failure is logged once, with the rank if it concerns that rank only. */
TEST_EACH(a_failure_is_logged_once, COUNT(failure_cases)) {
    const failure_case *fails = &failure_cases[_i];
    char host[64] = "", expected[256];
    dlc_text text;
    int code = process_run(3, say_main, &failure_cases[_i], &text);
    gethostname(host, sizeof host - 1);
    snprintf(expected, sizeof expected, "error: rank 1 (host %s, pid %d): it broke\n",
             host, (int)atomic_load(&shared->pid[1]));
    ck_assert_str_eq(dlc_text_string(&text), fails->logged ? fails->logged : expected);
    ck_assert_int_eq(code, fails->code);
    dlc_text_free(&text);
}

/* Two ranks that fail at the same time for different reasons are both logged. */
TEST(different_failures_are_logged) {
    failure_case fails = {{"first", "second", NULL}, DLC_ERR_IO, NULL, 1};
    dlc_text text;
    int code = process_run(3, say_main, &fails, &text);
    ck_assert_int_eq(code, 1);
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text), "): first\n"));
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text), "): second\n"));
    dlc_text_free(&text);
}

static int leave_main(dlc_job *job, void *argument) {
    const int *late = argument;
    shared_enter(job);
    if (dlc_job_rank(job) == 1) {
        usleep(*late ? 50000 : 0);
        return 0;
    }
    usleep(*late ? 0 : 50000);
    dlc_status status = dlc_job_barrier(job);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "has ended, but rank"))
        atomic_fetch_add(&shared->count, 1);
    return dlc_exit_code(status);
}

TEST_EACH(a_rank_leaves, 2) {
    dlc_text text;
    int late = _i;
    ck_assert_int_eq(process_run(3, leave_main, &late, &text), 5);
    ck_assert_ptr_nonnull(strstr(text.bytes, "is waiting for it (barrier)"));
    ck_assert_int_eq(atomic_load(&shared->count), 2);
    dlc_text_free(&text);
}

/* Ranks may end at different times if none waits for another. */
static int finish_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    usleep(30000 * (unsigned)dlc_job_rank(job));
    return dlc_job_check(job) == DLC_OK ? 0 : 1;
}

TEST(ranks_end_one_by_one) {
    dlc_text text;
    ck_assert_int_eq(process_run(4, finish_main, NULL, &text), 0);
    ck_assert_str_eq(dlc_text_string(&text), "");
    dlc_text_free(&text);
}

static int same_main(dlc_job *job, void *argument) {
    (void)job;
    return *(const int *)argument;
}

TEST_RANGE(all_fail_with_the_same_code, 1, 4) {
    dlc_text text;
    int code = 3;
    ck_assert_int_eq(process_run(_i, same_main, &code, &text), 3);
    dlc_text_free(&text);
}
