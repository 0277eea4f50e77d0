/* See session.h. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

board *board_shared;

void session_setup(void) {
    void *shared = mmap(NULL, sizeof *board_shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    board_shared = shared;
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

/* The leak sanitizer looks at a process from another one, which outlives it for a
 * moment when it is killed meanwhile. */
#ifdef __SANITIZE_ADDRESS__
#define WAIT_HOW 0
#else
#define WAIT_HOW WNOHANG
#endif

void session_nothing_left(void) {
    pid_t left;
    do
        left = waitpid(-1, NULL, WAIT_HOW);
    while (WAIT_HOW == 0 && left > 0);
    ck_assert_msg(left < 0 && errno == ECHILD, "process %d was left behind", (int)left);
}

void session_teardown(void) {
    session_nothing_left();
    for (int r = 0; r < BOARD_RANKS; r++) {
        pid_t pid = atomic_load(&board_shared->pid[r]);
        if (pid)
            ck_assert_msg(kill(pid, 0) && errno == ESRCH, "rank %d still lives", r);
    }
    munmap(board_shared, sizeof *board_shared);
}

static void set_variable(const char *text) {
    char name[64];
    size_t length = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    setenv(name, text + length + 1, 1);
}

job_session session_start_in(const char *const *environment,
                             const dlc_job_options *options, dlc_job_main main,
                             void *argument) {
    int output[2];
    ck_assert_int_eq(pipe2(output, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        setpgid(0, 0); /* a shell gives a command a group of its own */
        close(output[0]);
        if (dup2(output[1], STDOUT_FILENO) < 0 || dup2(output[1], STDERR_FILENO) < 0)
            _exit(99);
        close(output[1]);
        for (size_t i = 0; environment[i]; i++)
            set_variable(environment[i]);
        int code = 98;
        dlc_status status = dlc_job_run(options, main, argument, &code);
        if (status != DLC_OK)
            fprintf(stderr, "job: %s\n", dlc_detail());
        exit(status == DLC_OK ? code : dlc_exit_code(status));
    }
    close(output[1]);
    return (job_session){.pid = pid, .output = output[0]};
}

job_session session_start_options(const dlc_job_options *options, dlc_job_main main,
                                  void *argument) {
    const char *nothing = NULL;
    return session_start_in(&nothing, options, main, argument);
}

job_session session_start(int ranks, dlc_job_main main, void *argument) {
    dlc_job_options options = {.ranks = ranks};
    return session_start_options(&options, main, argument);
}

int session_end(job_session *session) {
    char bytes[65536];
    ssize_t got;
    while ((got = read(session->output, bytes, sizeof bytes)) > 0)
        dlc_text_append(&session->text, bytes, (size_t)got);
    close(session->output);
    ck_assert_int_eq(dlc_text_status(&session->text), DLC_OK);
    int status = 0;
    ck_assert_int_eq(waitpid(session->pid, &status, 0), session->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int session_run(int ranks, dlc_job_main main, void *argument, dlc_text *text) {
    job_session session = session_start(ranks, main, argument);
    int code = session_end(&session);
    *text = session.text;
    return code;
}

/* ---- Ranks from outside ------------------------------------------------------ */

static int is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_ANY)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
    close(fd);
    return bound == 0;
}

/* None of those that the system gives to whoever asks for any (from 32768 on): another
 * process could be given it before the ranks are there. */
int free_port(void) {
    enum { FIRST = 10000, PORTS = 20000, APART = 97 };
    for (int next = getpid() % PORTS;; next = (next + APART) % PORTS)
        if (is_free(FIRST + next))
            return FIRST + next;
}

void outside_start_rank(outside_job *job, int rank, const char *const *extra,
                        const dlc_job_options *options, dlc_job_main main,
                        void *argument) {
    char rank_is[32], ranks_are[32], port_is[32];
    const char *environment[16] = {rank_is, ranks_are, port_is,
                                   "MASTER_ADDR=127.0.0.1"};
    size_t count = 4;
    dlc_job_options with = options ? *options : (dlc_job_options){.ranks = 1};
    with.outside = 1;
    snprintf(rank_is, sizeof rank_is, "RANK=%d", rank);
    snprintf(ranks_are, sizeof ranks_are, "WORLD_SIZE=%d", job->ranks);
    snprintf(port_is, sizeof port_is, "MASTER_PORT=%d", job->port);
    for (; extra && *extra; extra++)
        environment[count++] = *extra;
    job->session[rank] = session_start_in(environment, &with, main, argument);
}

outside_job outside_start(int ranks, const dlc_job_options *options, dlc_job_main main,
                          void *argument) {
    outside_job job = {.ranks = ranks, .port = free_port()};
    for (int r = 0; r < ranks; r++)
        outside_start_rank(&job, r, NULL, options, main, argument);
    return job;
}

void outside_end(outside_job *job, int code) {
    for (int r = 0; r < job->ranks; r++)
        job->code[r] = session_end(&job->session[r]);
    for (int r = 0; r < job->ranks; r++)
        ck_assert_msg(job->code[r] == code, "rank %d ended with %d, not %d: %s", r,
                      job->code[r], code, dlc_text_string(&job->session[r].text));
}

void outside_free(outside_job *job) {
    for (int r = 0; r < job->ranks; r++)
        dlc_text_free(&job->session[r].text);
}

int outside_says(const outside_job *job, int rank, const char *text) {
    return strstr(dlc_text_string(&job->session[rank].text), text) != NULL;
}

/* ---- The board ------------------------------------------------------------------- */

void board_enter(const dlc_job *job) {
    atomic_store(&board_shared->pid[dlc_job_rank(job)], getpid());
}

void board_wait(int ranks) {
    for (int r = 0; r < ranks; r++)
        while (!atomic_load(&board_shared->pid[r]))
            usleep(1000);
}

void board_wait_for(_Atomic int *word, int value) {
    while (atomic_load(word) < value)
        usleep(1000);
}

int session_is_slow(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload") != NULL;
}

int run_tests(const char *name, TCase *tests) {
    Suite *suite = suite_create(name);
    tcase_add_checked_fixture(tests, session_setup, session_teardown);
    tcase_set_timeout(tests, 30);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
