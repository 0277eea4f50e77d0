/* Tests options, the processes of ranks, and that a job leaves nothing behind in its
 * caller. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "job/launch/launch.h"
#include "job_fixture.h"
#include "support/test.h"
#include "topology/cores.h"

static int nothing_main(dlc_job *job, void *argument) {
    (void)argument;
    return dlc_job_rank(job) >= 0 ? 0 : 1;
}

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(bad_options, 4) {
    static const dlc_job_options bad[] = {
        {.ranks = 0},
        {.ranks = -1},
        {.ranks = DLC_JOB_RANKS_MAX + 1},
        {.ranks = 2, .threads = -1},
    };
    int code = 42;
    ck_assert_int_eq(dlc_job_run(&bad[_i], nothing_main, NULL, &code), DLC_ERR_CONFIG);
    ck_assert_int_eq(code, 42);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), _i < 3 ? "ranks" : "threads"));
}

/* ---- Threads and cores ------------------------------------------------------- */

static int bound_main(dlc_job *job, void *argument) {
    const dlc_job_options *options = argument;
    int ranks = dlc_job_ranks(job), rank = dlc_job_rank(job);
    dlc_core_set share;
    cpu_set_t mine;
    shared_enter(job);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return 1;
    /* Show the test each rank's mask, and check its number of threads. */
    atomic_store(&shared->seen[rank], (unsigned)CPU_COUNT(&mine));
    if (options->threads)
        return dlc_job_threads(job) == options->threads ? 0 : 2;
    dlc_cores *cores = NULL;
    if (dlc_cores_open(NULL, &cores) != DLC_OK)
        return 3;
    int wrong = 0;
    if (!options->unbound) { /* its share is the whole machine that it can see */
        wrong = dlc_cores_share(cores, 0, 1, &share) != DLC_OK ||
                dlc_job_threads(job) < 1 || dlc_job_threads(job) > share.cores;
    } else {
        wrong = dlc_cores_share(cores, rank, ranks, &share) != DLC_OK ||
                dlc_job_threads(job) != share.threads;
    }
    dlc_cores_close(cores);
    return wrong ? 4 : 0;
}

TEST_EACH(cores_are_split, 12) {
    dlc_cores *cores = NULL;
    cpu_set_t all;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    int count = dlc_cores_count(cores);
    dlc_cores_close(cores);
    dlc_job_options options = {
        .ranks = 1 + _i % 4, .threads = _i / 4 == 1 ? 3 : 0, .unbound = _i / 4 == 2};
    job_process process = process_start_options(&options, bound_main, &options);
    int code = process_wait(&process);
    ck_assert_msg(code == 0, "code %d: %s", code, dlc_text_string(&process.text));
    unsigned sum = 0;
    for (int r = 0; r < options.ranks; r++)
        sum += atomic_load(&shared->seen[r]);
    if (options.unbound)
        ck_assert_uint_eq(sum, (unsigned)(options.ranks * CPU_COUNT(&all)));
    else if (options.ranks <= count)
        ck_assert_uint_eq(sum, (unsigned)CPU_COUNT(&all));
    dlc_text_free(&process.text);
}

/* ---- The processes ----------------------------------------------------------- */

/* Counts descriptors above stderr that would survive an exec. */
static int leaks_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int leaks = 0;
    if (!folder)
        return 1;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd < 1000) /* valgrind's own are above */
            leaks += !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    closedir(folder);
    return leaks;
}

static int process_main(dlc_job *job, void *argument) {
    (void)argument;
    char byte;
    if (leaks_descriptors())
        return 1;
    if (read(STDIN_FILENO, &byte, 1) != 0)
        return 2;
    if (getpgrp() != getpid())
        return 3;
    int parent_death = 0; /* the signal that it would bring */
    if (prctl(PR_GET_PDEATHSIG, &parent_death) != 0 || parent_death != SIGKILL)
        return 6;
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    if (sigismember(&mask, SIGCHLD) || sigismember(&mask, SIGTSTP))
        return 4;
    return dlc_job_barrier(job) == DLC_OK ? 0 : 5;
}

TEST(processes) {
    for (int fd = 3; fd < 1000; fd++) /* inherited by this test */
        if (fcntl(fd, F_GETFD) >= 0)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    /* Input that only the launcher may read. */
    int input[2], before = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    ck_assert_int_eq(pipe2(input, O_CLOEXEC), 0);
    ck_assert_int_eq(write(input[1], "input", 5), 5);
    ck_assert_int_eq(dup2(input[0], STDIN_FILENO), STDIN_FILENO);
    dlc_text text;
    int code = process_run(3, process_main, NULL, &text);
    ck_assert_msg(code == 0, "code %d: %s", code, dlc_text_string(&text));
    if (before >= 0)
        dup2(before, STDIN_FILENO);
    close(before);
    close(input[0]);
    close(input[1]);
    dlc_text_free(&text);
}

/* ---- The caller -------------------------------------------------------------- */

static int count_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Also if the caller ignores SIGCHLD, as some launchers do. */
TEST_EACH(the_caller_is_unchanged, 4) {
    sigset_t before, after;
    struct sigaction child = {.sa_handler = SIG_IGN}, now;
    if (_i % 2)
        ck_assert_int_eq(sigaction(SIGCHLD, &child, NULL), 0);
    sigprocmask(SIG_SETMASK, NULL, &before);
    int descriptors = count_descriptors();
    dlc_job_options options = {.ranks = 1 + _i / 2 * 2};
    int code = 3;
    ck_assert_int_eq(dlc_job_run(&options, nothing_main, NULL, &code), DLC_OK);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(count_descriptors(), descriptors);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int signal = 1; signal < 32; signal++)
        ck_assert_int_eq(sigismember(&after, signal), sigismember(&before, signal));
    sigaction(SIGCHLD, NULL, &now);
    ck_assert(now.sa_handler == (_i % 2 ? SIG_IGN : SIG_DFL));
}

/* Several jobs, one after the other, in one process. */
TEST(jobs_run_one_after_another) {
    for (int i = 0; i < 5; i++) {
        dlc_job_options options = {.ranks = 1 + i};
        int code = 3;
        ck_assert_int_eq(dlc_job_run(&options, nothing_main, NULL, &code), DLC_OK);
        ck_assert_int_eq(code, 0);
    }
}

/* ---- No leftovers ------------------------------------------------------------ */

TEST(no_descriptors_left) {
    struct rlimit before, limit;
    int base = count_descriptors();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    int failures = 0, runs = 0;
    for (int room = 0; room < 20; room++) {
        limit = before;
        limit.rlim_cur = (rlim_t)(base + room);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        dlc_job_options options = {.ranks = 4};
        int code = 42;
        dlc_status status = dlc_job_run(&options, nothing_main, NULL, &code);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
        ck_assert_int_eq(count_descriptors(), base);
        check_no_process_left();
        failures += status != DLC_OK;
        runs += status == DLC_OK && code == 0;
        if (status != DLC_OK)
            ck_assert_int_eq(code, 42);
    }
    ck_assert_int_gt(failures, 0);
    ck_assert_int_gt(runs, 0);
}

/* An allocation fails in the launcher or in a rank: an error, and nothing left
 * behind. */
TEST_RANGE(no_memory_left, 1, 4) {
    int descriptors = count_descriptors();
    int failures = 0;
    for (size_t n = 1; n <= 12; n++) {
        dlc_job_options options = {.ranks = _i};
        int code = 42;
        dlc_memory_fail_at(n);
        dlc_status status = dlc_job_run(&options, nothing_main, NULL, &code);
        dlc_memory_fail_at(0);
        failures += status != DLC_OK || code != 0;
        if (status != DLC_OK)
            ck_assert_int_eq(code, 42);
        ck_assert_int_eq(count_descriptors(), descriptors);
        check_no_process_left();
    }
    ck_assert_int_ge(failures, 4);
}

/* A code that the kernel cannot pass on must not become that of success. */
TEST(exit_codes_fit_a_byte) {
    static const int codes[][2] = {{0, 0},   {1, 1},   {255, 255}, {256, 1},
                                   {257, 1}, {512, 1}, {-1, 255},  {0x305, 5}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        ck_assert_int_eq(dlc_exit_byte(codes[i][0]), codes[i][1]);
}
