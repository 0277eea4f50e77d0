/* Tests signals to the launcher, to its process group and to a rank; Ctrl-C and Ctrl-Z
 * on a terminal; and ranks that do not stop when asked to. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "job_fixture.h"
#include "support/test.h"

/* Works until it is asked to stop; records the requests. */
static int obey_main(dlc_job *job, void *argument) {
    const int *code = argument;
    int rank = dlc_job_rank(job);
    shared_enter(job);
    unsigned seen = 0;
    while (!(seen & DLC_JOB_STOP)) {
        if (dlc_job_check(job) != DLC_OK)
            return 5;
        seen |= dlc_job_requests(job);
        atomic_fetch_or(&shared->seen[rank], seen);
        atomic_fetch_add(&shared->count, 1);
        usleep(1000);
    }
    usleep(20000); /* a checkpoint */
    return *code;
}

static void wait_seen(int ranks, unsigned request) {
    for (int r = 0; r < ranks; r++)
        while (!(atomic_load(&shared->seen[r]) & request))
            usleep(1000);
}

enum { TO_LAUNCHER, TO_GROUP, TO_RANK, TO_ALL, TARGETS };

static void send_signal(const job_process *process, int target, int ranks, int signal) {
    pid_t last = atomic_load(&shared->pid[ranks - 1]);
    if (target == TO_LAUNCHER || target == TO_ALL)
        kill(process->pid, signal);
    if (target == TO_GROUP)
        kill(-process->pid, signal);
    if (target == TO_RANK)
        kill(last, signal);
    if (target == TO_ALL)
        for (int r = 0; r < ranks; r++)
            kill(atomic_load(&shared->pid[r]), signal);
}

static const int rank_counts[] = {1, 2, 4};
#define COUNTS (int)(sizeof rank_counts / sizeof *rank_counts)

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

/* Every target, both stop signals, several numbers of ranks. */
TEST_EACH(asked_to_stop, TARGETS *COUNTS * 2) {
    int target = _i % TARGETS, ranks = rank_counts[_i / TARGETS % COUNTS];
    int signal = _i / TARGETS / COUNTS ? SIGTERM : SIGINT, code = 0;
    job_process process = process_start(ranks, obey_main, &code);
    shared_wait_ranks(ranks);
    send_signal(&process, target, ranks, signal);
    ck_assert_int_eq(process_wait(&process), 128 + signal);
    for (int r = 0; r < ranks; r++)
        ck_assert_uint_eq(atomic_load(&shared->seen[r]), DLC_JOB_STOP);
    ck_assert_str_eq(dlc_text_string(&process.text), "");
    dlc_text_free(&process.text);
}

/* The first fork is that of the launcher, the second that of rank 0. */
static int forks;

static void count_fork(void) {
    forks++;
}

static void signal_rank_0(void) {
    if (forks == 2)
        kill(getpid(), SIGTERM); /* not raise(), which means one thread */
}

/* As a batch system does, which knows all processes, at any moment. */
TEST(asked_to_stop_while_it_starts) {
    int code = 0;
    forks = 0;
    ck_assert_int_eq(pthread_atfork(count_fork, NULL, signal_rank_0), 0);
    job_process process = process_start(3, obey_main, &code);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    ck_assert_str_eq(dlc_text_string(&process.text), "");
    dlc_text_free(&process.text);
}

/* Requests after which the job continues: a checkpoint, a reload. */
TEST_EACH(asked_and_goes_on, TARGETS *COUNTS) {
    int target = _i % TARGETS, ranks = rank_counts[_i / TARGETS], code = 0;
    job_process process = process_start(ranks, obey_main, &code);
    shared_wait_ranks(ranks);
    for (int i = 0; i < 4; i++) {
        for (int r = 0; r < ranks; r++)
            atomic_store(&shared->seen[r], 0);
        send_signal(&process, target, ranks, i % 2 ? SIGUSR1 : SIGHUP);
        wait_seen(ranks, i % 2 ? DLC_JOB_RELOAD : DLC_JOB_CHECKPOINT);
    }
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    dlc_text_free(&process.text);
}

/* The exit code of a failed checkpoint takes precedence over that of the signal. */
TEST_EACH(stop_fails, COUNTS) {
    int code = 4, ranks = rank_counts[_i];
    job_process process = process_start(ranks, obey_main, &code);
    shared_wait_ranks(ranks);
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 4);
    dlc_text_free(&process.text);
}

/* Two barriers after the signals were sent, their requests have arrived, too. */
static int late_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    while (!atomic_load(&shared->go))
        usleep(1000);
    dlc_status status = dlc_job_barrier(job);
    if (status == DLC_OK)
        status = dlc_job_barrier(job);
    atomic_store(&shared->seen[dlc_job_rank(job)], dlc_job_requests(job));
    return status == DLC_OK && !dlc_job_requests(job) ? 0 : 1;
}

/* A request does not replace those before it. */
TEST(requests_add_up) {
    const unsigned all = DLC_JOB_CHECKPOINT | DLC_JOB_RELOAD | DLC_JOB_STOP;
    const int sent[] = {SIGHUP, SIGUSR1, SIGTERM};
    job_process process = process_start(3, late_main, NULL);
    shared_wait_ranks(3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(kill(process.pid, sent[i]), 0);
    atomic_store(&shared->go, 1);
    int code = process_wait(&process);
    for (int r = 0; r < 3; r++)
        ck_assert_uint_eq(atomic_load(&shared->seen[r]), all);
    ck_assert_int_eq(code, 128 + SIGTERM);
    dlc_text_free(&process.text);
}

static int unresponsive_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    while (dlc_job_rank(job) >= 0) {
        atomic_fetch_or(&shared->seen[dlc_job_rank(job)], dlc_job_requests(job));
        usleep(1000);
    }
    return 0;
}

TEST_EACH(asked_twice, 2 * COUNTS) {
    int ranks = rank_counts[_i % COUNTS];
    int target = _i / COUNTS ? TO_RANK : TO_LAUNCHER;
    job_process process = process_start(ranks, unresponsive_main, NULL);
    shared_wait_ranks(ranks);
    send_signal(&process, target, ranks, SIGTERM);
    wait_seen(ranks, DLC_JOB_STOP);
    usleep(300000);
    send_signal(&process, target, ranks, SIGINT);
    ck_assert_int_eq(process_wait(&process), 128 + SIGINT);
    dlc_text_free(&process.text);
}

/* ---- Ranks that do not stop ------------------------------------------------------ */

#define HANG_TIMEOUT 1.0

/* The last rank makes no progress and never checks; the others wait for it. */
enum { COMPUTES, SLEEPS, KINDS };

static int stuck_main(dlc_job *job, void *argument) {
    const int *how = argument;
    int stuck = dlc_job_rank(job) == dlc_job_ranks(job) - 1;
    shared_enter(job);
    dlc_job_activity(job, "forward", "conv2", 0);
    while (stuck)
        if (*how == SLEEPS)
            pause();
    while (dlc_job_check(job) == DLC_OK)
        usleep(1000);
    return 5;
}

static job_process start_stuck(int ranks, double hang_timeout, int *how) {
    dlc_job_options options = {.ranks = ranks, .hang_timeout = hang_timeout};
    job_process process = process_start_options(&options, stuck_main, how);
    shared_wait_ranks(ranks);
    usleep(100000); /* until it is stuck */
    return process;
}

/* One signal and the hang timeout end a job whatever its ranks do, and not earlier. */
TEST_EACH(asked_once_and_stuck, COUNTS *KINDS) {
    int how = _i % KINDS, ranks = rank_counts[_i / KINDS];
    job_process process = start_stuck(ranks, HANG_TIMEOUT, &how);
    uint64_t start = dlc_now_ns();
    kill(process.pid, SIGTERM);
    int code = process_wait(&process);
    const char *text = dlc_text_string(&process.text);
    ck_assert_double_ge(dlc_since(start), 0.9 * HANG_TIMEOUT);
    ck_assert_double_lt(dlc_since(start), 6 * HANG_TIMEOUT);
    if (how == SLEEPS && code == 5) /* detected as a hang, which is as good */
        ck_assert_msg(strstr(text, "hangs") != NULL, "%s", text);
    else
        ck_assert_msg(code == 128 + SIGTERM && strstr(text, "makes no progress during "
                                                            "forward conv2"),
                      "%d: %s", code, text);
    dlc_text_free(&process.text);
}

/* The last rank takes long to stop, and is making progress. */
static int slow_main(dlc_job *job, void *argument) {
    int slow = dlc_job_rank(job) == dlc_job_ranks(job) - 1;
    (void)argument;
    shared_enter(job);
    while (!(dlc_job_requests(job) & DLC_JOB_STOP))
        usleep(1000);
    uint64_t asked = dlc_now_ns();
    while (slow && dlc_since(asked) < 2.5 * HANG_TIMEOUT) {
        dlc_job_activity(job, "forward", "conv2", 0);
        usleep(10000);
    }
    atomic_fetch_add(&shared->count, 1);
    return 0;
}

TEST_EACH(asked_once_and_slow, COUNTS) {
    int ranks = rank_counts[_i];
    dlc_job_options options = {.ranks = ranks, .hang_timeout = HANG_TIMEOUT};
    job_process process = process_start_options(&options, slow_main, NULL);
    shared_wait_ranks(ranks);
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    ck_assert_int_eq(atomic_load(&shared->count), ranks);
    ck_assert_str_eq(dlc_text_string(&process.text), "");
    dlc_text_free(&process.text);
}

/* A second signal ends it at once. */
TEST_EACH(asked_twice_and_stuck, COUNTS *KINDS) {
    int how = _i % KINDS, ranks = rank_counts[_i / KINDS];
    job_process process = start_stuck(ranks, 20, &how);
    uint64_t start = dlc_now_ns();
    kill(process.pid, SIGTERM);
    usleep(300000);
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    ck_assert_double_lt(dlc_since(start), 5);
    dlc_text_free(&process.text);
}

/* Without a signal, a rank that sleeps counts as hung, also if it is the only one; a
 * rank that computes is warned about and goes on. */
TEST(single_rank_is_stuck) {
    int how = SLEEPS;
    job_process process = start_stuck(1, HANG_TIMEOUT, &how);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&process.text), "hangs: no progress"));
    ck_assert_ptr_nonnull(
        strstr(dlc_text_string(&process.text), " during forward conv2"));
    dlc_text_free(&process.text);
}

TEST_EACH(computing_is_named, 2) {
    int how = COMPUTES, ranks = rank_counts[_i];
    job_process process = start_stuck(ranks, HANG_TIMEOUT, &how);
    usleep((useconds_t)(3e6 * HANG_TIMEOUT));
    ck_assert_int_eq(kill(process.pid, 0), 0);
    kill(process.pid, SIGTERM);
    usleep(300000);
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    const char *named = strstr(dlc_text_string(&process.text), "has computed for ");
    ck_assert_msg(named != NULL, "%s", dlc_text_string(&process.text));
    ck_assert_msg(strstr(named, "during forward conv2") != NULL, "%s", named);
    ck_assert_msg(strstr(named + 1, "has computed for ") == NULL, "%s", named);
    dlc_text_free(&process.text);
}

/* Several signals in a row count as one request: launchers may signal the process and
 * its group. */
TEST_EACH(a_burst_is_one_request, COUNTS) {
    int ranks = rank_counts[_i], code = 0;
    job_process process = process_start(ranks, obey_main, &code);
    shared_wait_ranks(ranks);
    for (int i = 0; i < 10; i++)
        send_signal(&process, i % TARGETS, ranks, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    ck_assert_str_eq(dlc_text_string(&process.text), "");
    dlc_text_free(&process.text);
}

/* ---- A terminal ---------------------------------------------------------------- */

static int talk_main(dlc_job *job, void *argument) {
    int code = 0;
    (void)argument;
    if (dlc_job_rank(job) == 0)
        fputs("rank 0 may write here\n", stderr);
    else
        fputs("so may rank 1\n", stderr);
    return obey_main(job, &code);
}

/* Starts a job on a terminal that stops background processes which write to it. */
static pid_t start_on_terminal(int *terminal) {
    fflush(NULL);
    pid_t pid = forkpty(terminal, NULL, NULL, NULL);
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    struct termios settings;
    tcgetattr(STDIN_FILENO, &settings);
    settings.c_lflag |= TOSTOP;
    tcsetattr(STDIN_FILENO, TCSANOW, &settings);
    setenv("TERM", "vt100", 1);
    dlc_job_options options = {.ranks = 2};
    int code = 98;
    dlc_status status = dlc_job_run(&options, talk_main, NULL, &code);
    _exit(status == DLC_OK ? code : 97);
}

/* Reads until `words` have arrived. */
static void read_until(int terminal, dlc_text *text, const char *words) {
    while (!strstr(dlc_text_string(text), words)) {
        char bytes[256];
        ssize_t got = read(terminal, bytes, sizeof bytes);
        ck_assert_msg(got > 0, "only this came: %s", dlc_text_string(text));
        dlc_text_append(text, bytes, (size_t)got);
    }
}

static void press(int terminal, char key) {
    ck_assert_int_eq(write(terminal, &key, 1), 1);
}

TEST(ctrl_c) {
    int terminal, status = 0;
    dlc_text text = {0};
    pid_t pid = start_on_terminal(&terminal);
    read_until(terminal, &text, "rank 0 may write here");
    read_until(terminal, &text, "\r\033[K[rank 1] so may rank 1");
    shared_wait_ranks(2);
    press(terminal, 3);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 128 + SIGINT);
    ck_assert_uint_eq(atomic_load(&shared->seen[1]), DLC_JOB_STOP);
    close(terminal);
    dlc_text_free(&text);
}

static char process_state(pid_t pid) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(line, sizeof line, file))
            line[0] = '\0';
        fclose(file);
    }
    const char *end = strrchr(line, ')');
    return end ? end[2] : '?';
}

TEST(ctrl_z) {
    int code = 0, status = 0;
    job_process process = process_start(2, obey_main, &code);
    shared_wait_ranks(2);
    kill(process.pid, SIGTSTP);
    ck_assert_int_eq(waitpid(process.pid, &status, WUNTRACED), process.pid);
    ck_assert(WIFSTOPPED(status));
    for (int r = 0; r < 2; r++)
        while (process_state(atomic_load(&shared->pid[r])) != 'T')
            usleep(1000);
    int count = atomic_load(&shared->count);
    usleep(20000);
    ck_assert_int_eq(atomic_load(&shared->count), count);
    kill(process.pid, SIGCONT);
    shared_wait_for(&shared->count, count + 10);
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process), 128 + SIGTERM);
    dlc_text_free(&process.text);
}
