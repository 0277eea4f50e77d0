/* Ranks that die, fail, leave or hang, and launchers that are killed. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "session.h"

/* ---- Killed at any moment --------------------------------------------------- */

#define BIG ((size_t)300000)

/* What the others do until they learn of it. */
enum { IN_BARRIER, IN_ALLGATHER, IN_BROADCAST, AT_WORK, WAYS };

static dlc_status one_round(dlc_job *job, int way, char *memory) {
    switch (way) {
    case IN_BARRIER:
        return dlc_job_barrier(job);
    case IN_ALLGATHER:
        return dlc_job_allgather(job, memory, BIG, memory + BIG);
    case IN_BROADCAST:
        return dlc_job_broadcast(job, 1, memory, BIG);
    default:
        usleep(200);
        return dlc_job_check(job);
    }
}

static int victim_main(dlc_job *job, void *argument) {
    const int *way = argument;
    char *memory = dlc_alloc((size_t)dlc_job_ranks(job) + 1, BIG);
    dlc_job_doing(job, "exchange", "bucket 3", 4096);
    board_enter(job);
    dlc_status status = memory ? DLC_OK : DLC_ERR_NOMEM;
    while (status == DLC_OK)
        status = one_round(job, *way, memory);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "was killed by signal 9"))
        atomic_fetch_add(&board_shared->count, 1);
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

START_TEST(killed) {
    int way = _i % WAYS, ranks = 2 + _i % 3, victim = _i % ranks;
    job_session session = session_start(ranks, victim_main, &way);
    board_wait(ranks);
    sleep_randomly(10000);
    pid_t pid = atomic_load(&board_shared->pid[victim]);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(session_end(&session), 5);
    ck_assert_int_eq(atomic_load(&board_shared->count), ranks - 1);
    char host[64] = "", expected[256];
    gethostname(host, sizeof host - 1);
    snprintf(
        expected, sizeof expected,
        "rank %d (host %s, pid %d) was killed by signal 9 (Killed) during exchange "
        "bucket 3 (4096 bytes)\n",
        victim, host, (int)pid);
    ck_assert_msg(strstr(session.text.bytes, expected) != NULL, "%s",
                  session.text.bytes);
    dlc_text_free(&session.text);
}
END_TEST

/* ---- Killed while the job starts -------------------------------------------- */

/* Every process of the session, from its first instruction after fork. */
static void note_fork(void) {
    int n = atomic_fetch_add(&board_shared->count, 1);
    if (n < BOARD_RANKS)
        atomic_store(&board_shared->pid[n], getpid());
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

START_TEST(killed_at_start) {
    ck_assert_int_eq(pthread_atfork(NULL, NULL, note_fork), 0);
    int victim = 1 + _i % 3; /* process 0 is the launcher */
    job_session session = session_start(3, wait_main, NULL);
    board_wait(victim + 1);
    sleep_randomly(2000);
    kill(atomic_load(&board_shared->pid[victim]), SIGKILL);
    int code = session_end(&session);
    ck_assert_msg(code == 5, "code %d: %s", code, session.text.bytes);
    ck_assert_ptr_nonnull(
        strstr(session.text.bytes, "was killed by signal 9 (Killed)"));
    dlc_text_free(&session.text);
}
END_TEST

START_TEST(launcher_killed) {
    ck_assert_int_eq(pthread_atfork(NULL, NULL, note_fork), 0);
    job_session session = session_start(4, wait_main, NULL);
    board_wait(1 + _i % 5);
    sleep_randomly(_i % 2 ? 20000 : 1000);
    ck_assert_int_eq(kill(session.pid, SIGKILL), 0);
    /* Reads until every writer is gone: hangs here if a rank lives on. */
    ck_assert_int_eq(session_end(&session), -SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    ck_assert_int_eq(errno, ECHILD);
    dlc_text_free(&session.text);
}
END_TEST

/* ---- Other ends --------------------------------------------------------------- */

static int hang_main(dlc_job *job, void *argument) {
    (void)argument;
    board_enter(job);
    while (dlc_job_rank(job) >= 0)
        pause();
    return 0;
}

START_TEST(hung_ranks_are_killed) {
    job_session session = session_start(3, hang_main, NULL);
    board_wait(3);
    kill(atomic_load(&board_shared->pid[1]), SIGKILL);
    uint64_t start = dlc_now_ns();
    ck_assert_int_eq(session_end(&session), 5);
    ck_assert_double_ge(dlc_since(start), 1.4); /* they were given time */
    ck_assert_ptr_nonnull(strstr(session.text.bytes, "rank 0 (host "));
    ck_assert_ptr_nonnull(strstr(session.text.bytes, "rank 2 (host "));
    ck_assert_ptr_nonnull(strstr(session.text.bytes, "did not end in time"));
    dlc_text_free(&session.text);
}
END_TEST

START_TEST(stopped_ranks_are_killed) {
    job_session session = session_start(2, hang_main, NULL);
    board_wait(2);
    kill(atomic_load(&board_shared->pid[0]), SIGSTOP);
    kill(atomic_load(&board_shared->pid[1]), SIGKILL);
    ck_assert_int_eq(session_end(&session), 5);
    dlc_text_free(&session.text);
}
END_TEST

START_TEST(two_killed_at_once) {
    int way = IN_BARRIER;
    job_session session = session_start(4, victim_main, &way);
    board_wait(4);
    /* Stopped, it cannot hear of the other before it is killed itself. */
    kill(atomic_load(&board_shared->pid[3]), SIGSTOP);
    kill(atomic_load(&board_shared->pid[1]), SIGKILL);
    kill(atomic_load(&board_shared->pid[3]), SIGKILL);
    ck_assert_int_eq(session_end(&session), 5);
    ck_assert_int_eq(atomic_load(&board_shared->count), 2);
    dlc_text_free(&session.text);
}
END_TEST

/* Rank 0 exits when it is told to, as one whose transport noticed the death first. */
static int exit_main(dlc_job *job, void *argument) {
    (void)argument;
    board_enter(job);
    while (dlc_job_rank(job) == 0 && !atomic_load(&board_shared->go))
        usleep(1000);
    if (dlc_job_rank(job) == 0)
        return 3;
    dlc_status status = wait_main(job, NULL);
    if (strstr(dlc_detail(), "rank 2 (") && strstr(dlc_detail(), "signal 9"))
        atomic_fetch_add(&board_shared->count, 1);
    return dlc_exit_code(status);
}

/* Until it has ended, whether or not its parent has noticed. */
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

/* The launcher finds both at the same time, the one of the smaller number first: what
 * followed from the kill is not the cause. */
START_TEST(a_kill_is_the_cause_of_an_exit) {
    job_session session = session_start(3, exit_main, NULL);
    board_wait(3);
    ck_assert_int_eq(kill(session.pid, SIGSTOP), 0);
    ck_assert_int_eq(kill(atomic_load(&board_shared->pid[2]), SIGKILL), 0);
    wait_for_zombie(atomic_load(&board_shared->pid[2]));
    atomic_store(&board_shared->go, 1);
    wait_for_zombie(atomic_load(&board_shared->pid[0]));
    ck_assert_int_eq(kill(session.pid, SIGCONT), 0);
    ck_assert_int_eq(session_end(&session), 5);
    ck_assert_int_eq(atomic_load(&board_shared->count), 1); /* so rank 1 was told */
    const char *said = dlc_text_string(&session.text);
    ck_assert_msg(strstr(said, "error: rank 2 (") == said &&
                      strstr(said, "was killed by signal 9 (Killed)") &&
                      !strstr(said, "rank 0 ("),
                  "%s", said);
    dlc_text_free(&session.text);
}
END_TEST

/* What a rank was doing when another signal, its own, ended it. */
static int words_main(dlc_job *job, void *argument) {
    board_enter(job);
    const int *what = argument;
    dlc_job_doing(job, "forward", "conv1", 0);
    if (*what == 1)
        dlc_job_doing(
            job, "a phase of more than twenty-three letters",
            "a layer with a name that is so long that nobody would ever want to "
            "read it in an error message",
            UINT64_MAX);
    if (*what == 2)
        dlc_job_doing(job, "forward", NULL, 0);
    if (*what == 3)
        dlc_job_doing(job, NULL, "conv1", 5);
    if (dlc_job_rank(job) == 1)
        raise(SIGUSR2);
    return wait_main(job, NULL);
}

static const char *const words[] = {
    "(User defined signal 2) during forward conv1\n",
    "(User defined signal 2) during a phase of more than tw a layer with a name that is so "
    "long that nobody would ever want (18446744073709551615 bytes)\n",
    "(User defined signal 2) during forward\n",
    "(User defined signal 2)\n",
};

START_TEST(what_it_was_doing) {
    dlc_text text;
    int what = _i;
    ck_assert_int_eq(session_run(2, words_main, &what, &text), 5);
    ck_assert_msg(strstr(text.bytes, words[_i]) != NULL, "%s", text.bytes);
    dlc_text_free(&text);
}
END_TEST

static int fail_main(dlc_job *job, void *argument) {
    const int *code = argument;
    board_enter(job);
    dlc_job_doing(job, "loading", "data", 0);
    if (dlc_job_rank(job) == 1)
        return *code;
    dlc_status status = dlc_job_barrier(job);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "during loading data"))
        atomic_fetch_add(&board_shared->count, 1);
    return dlc_exit_code(status);
}

static const int fail_codes[][2] = {{4, 4},     {1, 1},   {5, 5},
                                    {255, 255}, {256, 1}, {-1, 255}};

START_TEST(a_rank_fails) {
    dlc_text text;
    int code = fail_codes[_i][0];
    ck_assert_int_eq(session_run(3, fail_main, &code, &text), fail_codes[_i][1]);
    ck_assert_ptr_nonnull(strstr(text.bytes, "ended with exit code"));
    ck_assert_int_eq(atomic_load(&board_shared->count), 2);
    dlc_text_free(&text);
}
END_TEST

typedef struct failure_case {
    const char *why[3]; /* of each rank; NULL: it waits for the others */
    dlc_status status;
    const char *said; /* by the job; NULL: it is rank 1's own */
    int code;
} failure_case;

static int say_main(dlc_job *job, void *argument) {
    const failure_case *fails = argument;
    const char *why = fails->why[dlc_job_rank(job)];
    dlc_status status = DLC_OK;
    board_enter(job);
    board_wait(3);
    while (!why && status == DLC_OK) {
        usleep(1000);
        status = dlc_job_check(job);
    }
    if (!why)
        return dlc_job_fails(job, status, dlc_detail()) ? dlc_exit_code(status) : 99;
    return dlc_job_fails(job, fails->status, why) ? dlc_exit_code(fails->status) : 99;
}

static failure_case failure_cases[] = {
    {{"it broke", "it broke", "it broke"}, DLC_ERR_IO, "error: it broke\n", 1},
    {{NULL, "it broke", NULL}, DLC_ERR_IO, NULL, 1},
    {{NULL, NULL, "wrong"}, DLC_ERR_CONFIG, "error: wrong\n", 2},
    {{"wrong", "wrong", NULL}, DLC_ERR_DATA, "error: wrong\n", 4},
};

/* Once, with the rank where it is that rank's own. */
START_TEST(a_failure_is_said_once) {
    const failure_case *fails = &failure_cases[_i];
    char host[64] = "", expected[256];
    dlc_text text;
    int code = session_run(3, say_main, &failure_cases[_i], &text);
    gethostname(host, sizeof host - 1);
    snprintf(expected, sizeof expected, "error: rank 1 (host %s, pid %d): it broke\n",
             host, (int)atomic_load(&board_shared->pid[1]));
    ck_assert_str_eq(dlc_text_string(&text), fails->said ? fails->said : expected);
    ck_assert_int_eq(code, fails->code);
    dlc_text_free(&text);
}
END_TEST

/* Two that fail at the same time for unlike reasons are both heard. */
START_TEST(unlike_failures_are_said) {
    failure_case fails = {{"first", "second", NULL}, DLC_ERR_IO, NULL, 1};
    dlc_text text;
    int code = session_run(3, say_main, &fails, &text);
    ck_assert_int_eq(code, 1);
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text), "): first\n"));
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text), "): second\n"));
    dlc_text_free(&text);
}
END_TEST

static int leave_main(dlc_job *job, void *argument) {
    const int *late = argument;
    board_enter(job);
    if (dlc_job_rank(job) == 1) {
        usleep(*late ? 50000 : 0);
        return 0;
    }
    usleep(*late ? 0 : 50000);
    dlc_status status = dlc_job_barrier(job);
    if (status == DLC_ERR_PEER && strstr(dlc_detail(), "has ended, but rank"))
        atomic_fetch_add(&board_shared->count, 1);
    return dlc_exit_code(status);
}

START_TEST(a_rank_leaves) {
    dlc_text text;
    int late = _i;
    ck_assert_int_eq(session_run(3, leave_main, &late, &text), 5);
    ck_assert_ptr_nonnull(strstr(text.bytes, "waits for it in a barrier"));
    ck_assert_int_eq(atomic_load(&board_shared->count), 2);
    dlc_text_free(&text);
}
END_TEST

/* Ranks need not end at the same time when nobody waits. */
static int finish_main(dlc_job *job, void *argument) {
    (void)argument;
    board_enter(job);
    usleep(30000 * (unsigned)dlc_job_rank(job));
    return dlc_job_check(job) == DLC_OK ? 0 : 1;
}

START_TEST(ranks_end_one_by_one) {
    dlc_text text;
    ck_assert_int_eq(session_run(4, finish_main, NULL, &text), 0);
    ck_assert_str_eq(dlc_text_string(&text), "");
    dlc_text_free(&text);
}
END_TEST

static int same_main(dlc_job *job, void *argument) {
    (void)job;
    return *(const int *)argument;
}

START_TEST(all_fail_alike) {
    dlc_text text;
    int code = 3;
    ck_assert_int_eq(session_run(_i, same_main, &code, &text), 3);
    dlc_text_free(&text);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("death");
    tcase_add_loop_test(tests, killed, 0, 24);
    tcase_add_loop_test(tests, killed_at_start, 0, 12);
    tcase_add_loop_test(tests, launcher_killed, 0, 20);
    tcase_add_test(tests, hung_ranks_are_killed);
    tcase_add_test(tests, stopped_ranks_are_killed);
    tcase_add_test(tests, two_killed_at_once);
    tcase_add_test(tests, a_kill_is_the_cause_of_an_exit);
    tcase_add_loop_test(tests, what_it_was_doing, 0, sizeof words / sizeof *words);
    tcase_add_loop_test(tests, a_rank_fails, 0, sizeof fail_codes / sizeof *fail_codes);
    tcase_add_loop_test(tests, a_failure_is_said_once, 0,
                        sizeof failure_cases / sizeof *failure_cases);
    tcase_add_test(tests, unlike_failures_are_said);
    tcase_add_loop_test(tests, a_rank_leaves, 0, 2);
    tcase_add_test(tests, ranks_end_one_by_one);
    tcase_add_loop_test(tests, all_fail_alike, 1, 4);
    return run_tests("job: death", tests);
}
