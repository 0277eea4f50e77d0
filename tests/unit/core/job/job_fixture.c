/* Starts jobs in child processes, alone or as external ranks, and keeps the shared
 * state. */
#include "job_fixture.h"

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

shared_state *shared;

void fixture_setup(void) {
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    shared = memory;
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

/* The leak sanitizer inspects a process from another one, which may outlive it for a
 * moment if it is killed meanwhile. */
#ifdef __SANITIZE_ADDRESS__
#define WAIT_HOW 0
#else
#define WAIT_HOW WNOHANG
#endif

void check_no_process_left(void) {
    pid_t left;
    do
        left = waitpid(-1, NULL, WAIT_HOW);
    while (WAIT_HOW == 0 && left > 0);
    ck_assert_msg(left < 0 && errno == ECHILD, "process %d was left behind", (int)left);
}

void fixture_teardown(void) {
    check_no_process_left();
    for (int r = 0; r < SHARED_RANKS; r++) {
        pid_t pid = atomic_load(&shared->pid[r]);
        if (pid)
            ck_assert_msg(kill(pid, 0) && errno == ESRCH, "rank %d still lives", r);
    }
    munmap(shared, sizeof *shared);
}

static void set_variable(const char *text) {
    char name[64];
    size_t length = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    setenv(name, text + length + 1, 1);
}

job_process process_start_environment(const char *const *environment,
                                      const dlc_job_options *options, dlc_job_main main,
                                      void *argument) {
    int output[2];
    ck_assert_int_eq(pipe2(output, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        setpgid(0, 0); /* as a shell does */
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
    return (job_process){.pid = pid, .output = output[0]};
}

job_process process_start_options(const dlc_job_options *options, dlc_job_main main,
                                  void *argument) {
    const char *nothing = NULL;
    return process_start_environment(&nothing, options, main, argument);
}

job_process process_start(int ranks, dlc_job_main main, void *argument) {
    dlc_job_options options = {.ranks = ranks};
    return process_start_options(&options, main, argument);
}

int process_wait(job_process *process) {
    char bytes[65536];
    ssize_t got;
    while ((got = read(process->output, bytes, sizeof bytes)) > 0)
        dlc_text_append(&process->text, bytes, (size_t)got);
    close(process->output);
    ck_assert_int_eq(dlc_text_status(&process->text), DLC_OK);
    int status = 0;
    ck_assert_int_eq(waitpid(process->pid, &status, 0), process->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int process_run(int ranks, dlc_job_main main, void *argument, dlc_text *text) {
    job_process process = process_start(ranks, main, argument);
    int code = process_wait(&process);
    *text = process.text;
    return code;
}

/* ---- External launch --------------------------------------------------------- */

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

/* Not one of the ephemeral ports (from 32768 on), which the system may give to another
 * process before the ranks listen. */
int free_port(void) {
    enum { FIRST = 10000, PORTS = 20000, APART = 97 };
    for (int next = getpid() % PORTS;; next = (next + APART) % PORTS)
        if (is_free(FIRST + next))
            return FIRST + next;
}

void external_start_rank(external_job *job, int rank, const char *const *extra,
                         const dlc_job_options *options, dlc_job_main main,
                         void *argument) {
    char rank_is[32], ranks_are[32], port_is[32];
    const char *environment[16] = {rank_is, ranks_are, port_is,
                                   "MASTER_ADDR=127.0.0.1"};
    size_t count = 4;
    dlc_job_options with = options ? *options : (dlc_job_options){.ranks = 1};
    with.external = 1;
    snprintf(rank_is, sizeof rank_is, "RANK=%d", rank);
    snprintf(ranks_are, sizeof ranks_are, "WORLD_SIZE=%d", job->ranks);
    snprintf(port_is, sizeof port_is, "MASTER_PORT=%d", job->port);
    for (; extra && *extra; extra++)
        environment[count++] = *extra;
    job->process[rank] = process_start_environment(environment, &with, main, argument);
}

external_job external_start(int ranks, const dlc_job_options *options,
                            dlc_job_main main, void *argument) {
    external_job job = {.ranks = ranks, .port = free_port()};
    for (int r = 0; r < ranks; r++)
        external_start_rank(&job, r, NULL, options, main, argument);
    return job;
}

void external_wait(external_job *job, int code) {
    for (int r = 0; r < job->ranks; r++)
        job->code[r] = process_wait(&job->process[r]);
    for (int r = 0; r < job->ranks; r++)
        ck_assert_msg(job->code[r] == code, "rank %d ended with %d, not %d: %s", r,
                      job->code[r], code, dlc_text_string(&job->process[r].text));
}

void external_free(external_job *job) {
    for (int r = 0; r < job->ranks; r++)
        dlc_text_free(&job->process[r].text);
}

int external_prints(const external_job *job, int rank, const char *text) {
    return strstr(dlc_text_string(&job->process[rank].text), text) != NULL;
}

/* ---- The shared state ------------------------------------------------------------ */

void shared_enter(const dlc_job *job) {
    atomic_store(&shared->pid[dlc_job_rank(job)], getpid());
}

void shared_wait_ranks(int ranks) {
    for (int r = 0; r < ranks; r++)
        while (!atomic_load(&shared->pid[r]))
            usleep(1000);
}

void shared_wait_for(_Atomic int *word, int value) {
    while (atomic_load(word) < value)
        usleep(1000);
}
