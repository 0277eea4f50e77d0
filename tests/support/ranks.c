/* Runs ranks as forked processes and collects their results; see ranks.h. */
#include "support/ranks_shared.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/leaks.h"

static void run_rank(test_rank *rank, pid_t parent, rank_body *body, void *context) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    body(rank, context);
    /* A leak check takes longer than many tests, so only the first and the last rank do
     * it: the others run the same code. */
    int checks_leaks = rank->rank == 0 || rank->rank == rank->ranks - 1;
    if (checks_leaks && leaks_found && leaks_found())
        _exit(1);
    _exit(0);
}

/* Waits for every rank; a rank that dies ends the job for the others. */
static int collect(test_job *job, int ranks, pid_t *pids, int seconds, uint64_t lost) {
    uint64_t since = dlc_now_ns();
    int failed = 0, left = ranks, killed = 0;

    while (left > 0) {
        for (int r = 0; r < ranks; r++) {
            int status = 0;
            if (pids[r] == 0 || waitpid(pids[r], &status, WNOHANG) != pids[r])
                continue;
            pids[r] = 0;
            left--;
            if (status == 0)
                continue;
            atomic_store(&job->ended, 1);
            if (lost >> r & 1)
                continue;
            failed++;
            fprintf(stderr, "rank %d ended with %s %d\n", r,
                    WIFSIGNALED(status) ? "signal" : "exit code",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
        if (!killed && dlc_since(since) > seconds) {
            fprintf(stderr, "%d of %d ranks not done after %d s\n", left, ranks,
                    seconds);
            for (int r = 0; r < ranks; r++)
                if (pids[r] != 0)
                    (void)kill(pids[r], SIGKILL);
            killed = 1;
        }
        usleep(500);
    }
    return failed;
}

int ranks_run_losing(int ranks, int seconds, uint64_t lost, rank_body *body,
                     void *context) {
    pid_t pids[RANKS_MAX] = {0}, parent = getpid();
    const char *multiplier = getenv("CK_TIMEOUT_MULTIPLIER");
    test_job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (job == MAP_FAILED || ranks > RANKS_MAX)
        return -1;
    (void)fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            test_rank rank = {r, ranks, job, job->shared};
            run_rank(&rank, parent, body, context);
        }
        if (pids[r] < 0)
            atomic_store(&job->ended, 1);
    }
    if (multiplier)
        seconds *= atoi(multiplier) > 0 ? atoi(multiplier) : 1;
    int failed = collect(job, ranks, pids, seconds, lost);
    (void)munmap(job, sizeof *job);
    return failed;
}

int ranks_run(int ranks, int seconds, rank_body *body, void *context) {
    return ranks_run_losing(ranks, seconds, 0, body, context);
}
