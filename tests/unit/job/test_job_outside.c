/* Ranks that others have started, by variables: joining, contradictions, secrets. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "session.h"

/* ---- Joining ----------------------------------------------------------------- */

/* Who everybody is, and a collective larger than any buffer on the way. */
static int meet_main(dlc_job *job, void *argument) {
    (void)argument;
    enum { WORDS = 30000 };
    static int mine[WORDS], all[8 * WORDS];
    int rank = dlc_job_rank(job), ranks = dlc_job_ranks(job);
    board_enter(job);
    for (int i = 0; i < WORDS; i++)
        mine[i] = rank * WORDS + i;
    for (int round = 0; round < 20; round++)
        if (dlc_job_barrier(job) != DLC_OK)
            return 1;
    if (dlc_job_allgather(job, mine, sizeof mine, all) != DLC_OK)
        return 2;
    for (int i = 0; i < ranks * WORDS; i++)
        if (all[i] != i)
            return 3;
    for (int r = 0; r < ranks; r++) {
        const dlc_place *place = dlc_job_place(job, r);
        if (place->pid != (uint32_t)atomic_load(&board_shared->pid[r]) ||
            place->node != 0)
            return 4;
    }
    if (dlc_job_broadcast(job, ranks - 1, all, sizeof mine) != DLC_OK)
        return 5;
    return dlc_job_threads(job) >= 1 ? 0 : 6;
}

static const int rank_counts[] = {1, 2, 3, 5};

START_TEST(all_meet) {
    outside_job job = outside_start(rank_counts[_i], NULL, meet_main, NULL);
    outside_end(&job, 0);
    for (int r = 0; r < job.ranks; r++)
        ck_assert_str_eq(dlc_text_string(&job.session[r].text), "");
    outside_free(&job);
}
END_TEST

/* In any order, and rank 0 last. */
START_TEST(rank_0_comes_last) {
    outside_job job = {.ranks = 3, .port = free_port()};
    for (int r = 2; r >= 0; r--) {
        outside_start_rank(&job, r, NULL, NULL, meet_main, NULL);
        usleep(100000);
    }
    outside_end(&job, 0);
    outside_free(&job);
}
END_TEST

static const char *const addresses[] = {"MASTER_ADDR=::1", "MASTER_ADDR=localhost",
                                        "MASTER_ADDR=127.0.0.2"};

START_TEST(other_addresses) {
    const char *extra[] = {addresses[_i], "LOCAL_WORLD_SIZE=2", NULL};
    outside_job job = {.ranks = 2, .port = free_port()};
    if (_i == 0 && access("/proc/net/if_inet6", F_OK))
        return; /* no IPv6 here */
    for (int r = 0; r < 2; r++)
        outside_start_rank(&job, r, extra, NULL, meet_main, NULL);
    outside_end(&job, 0);
    outside_free(&job);
}
END_TEST

/* DLCORE_PORT, where the launcher needs MASTER_PORT itself. */
START_TEST(another_port) {
    char port[32];
    const char *extra[] = {port, NULL};
    outside_job job = {.ranks = 2, .port = 1};
    snprintf(port, sizeof port, "DLCORE_PORT=%d", free_port());
    for (int r = 0; r < 2; r++)
        outside_start_rank(&job, r, extra, NULL, meet_main, NULL);
    outside_end(&job, 0);
    outside_free(&job);
}
END_TEST

static int codes_main(dlc_job *job, void *argument) {
    const int *codes = argument;
    board_enter(job);
    if (dlc_job_barrier(job) != DLC_OK)
        return 9;
    return codes[dlc_job_rank(job)];
}

/* Every process ends as the job does. */
static const int codes[][4] = {{0, 0, 0, 0}, {0, 3, 0, 3}, {4, 0, 0, 4}, {1, 1, 1, 1}};

START_TEST(codes_are_shared) {
    outside_job job = outside_start(3, NULL, codes_main, (void *)codes[_i]);
    outside_end(&job, codes[_i][3]);
    outside_free(&job);
}
END_TEST

/* ---- Contradictions ---------------------------------------------------------- */

static int never_main(dlc_job *job, void *argument) {
    (void)argument;
    board_enter(job);
    return 77;
}

typedef struct wrong_case {
    const char *set[7];
    int ranks;
    const char *says;
} wrong_case;

#define FULL(rank, ranks) \
    "RANK=" rank, "WORLD_SIZE=" ranks, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711"

static const wrong_case wrong_cases[] = {
    {{FULL("2", "2")}, 1, "RANK=2 and WORLD_SIZE=2 contradict"},
    {{FULL("x", "2")}, 1, "RANK=x"},
    {{FULL("-1", "2")}, 1, "RANK=-1"},
    {{FULL("0", "2x")}, 1, "WORLD_SIZE=2x"},
    {{FULL("0", "0")}, 1, "WORLD_SIZE=0"},
    {{FULL(" 1", "2")}, 1, "RANK= 1"},
    {{FULL("0", "99999999999999999999")}, 1, "WORLD_SIZE=9999"},
    {{FULL("0", "1025")}, 1, "WORLD_SIZE=1025"},
    {{"RANK=0"}, 1, "WORLD_SIZE is not"},
    {{"WORLD_SIZE=2"}, 1, "RANK is not"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=1"}, 1, "MASTER_ADDR is not"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=::1"}, 1, "MASTER_PORT is not"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=1"},
     1,
     "MASTER_ADDR is not"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=::1", "MASTER_PORT=0"},
     1,
     "MASTER_PORT=0"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=::1", "MASTER_PORT=65536"},
     1,
     "MASTER_PORT=65536"},
    {{FULL("0", "2"), "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1"}, 1, "LOCAL_RANK=1 and"},
    {{FULL("0", "2"), "LOCAL_RANK=1"}, 1, "LOCAL_RANK=1 and RANK=0"},
    {{FULL("0", "2"), "LOCAL_WORLD_SIZE=3"}, 1, "LOCAL_WORLD_SIZE=3"},
    {{FULL("0", "2"), "LOCAL_RANK=one"}, 1, "LOCAL_RANK=one"},
    {{FULL("0", "2")}, 3, "--ranks=3"},
    {{FULL("0", "2"), "DLCORE_PORT=no"}, 1, "DLCORE_PORT=no"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=no-such-host.invalid", "MASTER_PORT=1"},
     1,
     "no-such-host.invalid"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=192.0.2.1", "MASTER_PORT=4711"},
     1,
     "rank 0 must run on MASTER_ADDR"},
    {{"PMIX_NAMESPACE=a"}, 1, "PMIX_RANK is not"},
    {{"PMIX_NAMESPACE=a", "PMIX_RANK=1", "RANK=0"}, 1, "contradict each other"},
    {{"PMI_SIZE=2", "PMI_RANK=0"}, 1, "PMI-1"},
    {{"SLURM_STEP_NUM_TASKS=2"}, 1, "srun --mpi=pmix"},
    {{FULL("0", "2"), "DLCORE_SECRET=short"}, 1, "5 letters"},
    {{FULL("0", "2"), "DLCORE_SECRET=sixteen-letters-", "DLCORE_SECRET_FILE=x"},
     1,
     "unset one"},
    {{FULL("0", "2"), "DLCORE_SECRET_FILE=/no/such/file"}, 1, "/no/such/file"},
    {{FULL("0", "2"), "DLCORE_SECRET_FILE=/"}, 1, "is no file"},
    {{FULL("0", "2"), "DLCORE_SECRET_FILE=/etc/passwd"}, 1, "chmod 600"},
};

START_TEST(contradictions) {
    const wrong_case *wrong = &wrong_cases[_i];
    dlc_job_options options = {.ranks = wrong->ranks, .outside = 1};
    job_session session = session_start_in(wrong->set, &options, never_main, NULL);
    int code = session_end(&session);
    ck_assert_msg(code == 2 && strstr(dlc_text_string(&session.text), wrong->says),
                  "code %d: %s", code, dlc_text_string(&session.text));
    ck_assert_int_eq(atomic_load(&board_shared->pid[0]), 0);
    dlc_text_free(&session.text);
}
END_TEST

/* Where nobody asked for it, the environment doesn't count. */
START_TEST(not_asked) {
    const char *set[] = {"RANK=9", "PMIX_NAMESPACE=x", NULL};
    dlc_job_options options = {.ranks = 2};
    job_session session = session_start_in(set, &options, meet_main, NULL);
    ck_assert_int_eq(session_end(&session), 0);
    dlc_text_free(&session.text);
}
END_TEST

START_TEST(port_is_taken) {
    outside_job first = outside_start(2, NULL, meet_main, NULL), second = first;
    outside_end(&first, 0);
    /* A job on a port where another hub waits. */
    outside_start_rank(&first, 0, NULL, NULL, meet_main, NULL);
    usleep(300000);
    outside_start_rank(&second, 0, NULL, NULL, meet_main, NULL);
    second.ranks = 1;
    outside_end(&second, 2);
    ck_assert(outside_says(&second, 0, "listens at 127.0.0.1"));
    outside_start_rank(&first, 1, NULL, NULL, meet_main, NULL);
    outside_end(&first, 0);
    outside_free(&first);
    outside_free(&second);
}
END_TEST

/* Rank 1 has, in this order: the number of another one; another number of ranks;
 * another net.ini. */
START_TEST(ranks_disagree) {
    static const char *const says[] = {"is two processes", "was told of 4 ranks",
                                       "another net.ini"};
    static const char *const says_it[] = {"rank 2 is two processes", "of 4 ranks",
                                          "another net.ini"};
    const char *const extra[][2] = {{"RANK=2"}, {"WORLD_SIZE=4"}, {NULL}};
    dlc_job_options options = {.ranks = 1, .digest = 7};
    outside_job job = {.ranks = 3, .port = free_port()};
    outside_start_rank(&job, 0, NULL, &options, never_main, NULL);
    outside_start_rank(&job, 2, NULL, &options, never_main, NULL);
    usleep(300000);
    options.digest += _i == 2;
    outside_start_rank(&job, 1, extra[_i], &options, never_main, NULL);
    outside_end(&job, 2);
    ck_assert(outside_says(&job, 0, says[_i]));
    ck_assert(outside_says(&job, 1, says_it[_i]));
    outside_free(&job);
}
END_TEST

/* One that comes when all is over learns of it, and doesn't wait for a minute. */
START_TEST(too_late) {
    dlc_job_options options = {.ranks = 1, .digest = 7};
    outside_job job = {.ranks = 3, .port = free_port()};
    outside_start_rank(&job, 0, NULL, &options, never_main, NULL);
    options.digest = 8;
    outside_start_rank(&job, 1, NULL, &options, never_main, NULL);
    usleep(500000);
    outside_start_rank(&job, 2, NULL, &options, never_main, NULL);
    outside_end(&job, 2);
    ck_assert(outside_says(&job, 2, "came too late"));
    outside_free(&job);
}
END_TEST

START_TEST(missing_ranks_are_named) {
    dlc_job_options options = {.ranks = 1, .rendezvous = 0.7};
    outside_job job = {.ranks = 6, .port = free_port()};
    outside_start_rank(&job, 0, NULL, &options, never_main, NULL);
    outside_start_rank(&job, 2, NULL, &options, never_main, NULL);
    int code = session_end(&job.session[0]);
    ck_assert_msg(code == 5 && outside_says(&job, 0, "missing rank 1, 3 to 5"), "%s",
                  dlc_text_string(&job.session[0].text));
    ck_assert_int_eq(session_end(&job.session[2]), 5);
    outside_free(&job);
}
END_TEST

START_TEST(rank_0_is_missing) {
    dlc_job_options options = {.ranks = 1, .rendezvous = 0.5};
    outside_job job = {.ranks = 2, .port = free_port()};
    outside_start_rank(&job, 1, NULL, &options, never_main, NULL);
    ck_assert_int_eq(session_end(&job.session[1]), 5);
    ck_assert(outside_says(&job, 1, "has not found rank 0 at 127.0.0.1:"));
    outside_free(&job);
}
END_TEST

/* ---- Secrets ----------------------------------------------------------------- */

#define SECRET_A "DLCORE_SECRET=correct horse battery"
#define SECRET_B "DLCORE_SECRET=correct horse battery staple"

typedef struct secret_case {
    const char *first[2], *second[2];
    const char *says; /* rank 1; NULL: they meet */
} secret_case;

static const secret_case secret_cases[] = {
    {{SECRET_A}, {SECRET_A}, NULL},
    {{SECRET_A}, {SECRET_B}, "has another secret"},
    {{SECRET_A}, {NULL}, "has a secret, and this rank has none"},
    {{NULL}, {SECRET_A}, "has no secret, but this rank has"},
};

START_TEST(secrets) {
    const secret_case *test = &secret_cases[_i];
    dlc_job_options options = {.ranks = 1, .rendezvous = 1};
    outside_job job = {.ranks = 2, .port = free_port()};
    outside_start_rank(&job, 0, test->first, &options, meet_main, NULL);
    outside_start_rank(&job, 1, test->second, &options, meet_main, NULL);
    int second = session_end(&job.session[1]), first = session_end(&job.session[0]);
    ck_assert_msg(second == (test->says ? 2 : 0), "%d: %s", second,
                  dlc_text_string(&job.session[1].text));
    ck_assert_int_eq(first, test->says ? 5 : 0); /* it waits for a right one */
    if (test->says)
        ck_assert(outside_says(&job, 1, test->says));
    outside_free(&job);
}
END_TEST

START_TEST(secret_file) {
    char path[] = "/tmp/dlcore-secret-XXXXXX", variable[64];
    const char *extra[] = {variable, NULL};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a secret of some length\n", 24), 24);
    snprintf(variable, sizeof variable, "DLCORE_SECRET_FILE=%s", path);
    ck_assert_int_eq(fchmod(fd, _i ? 0640 : 0600), 0);
    close(fd);
    outside_job job = {.ranks = 2, .port = free_port()};
    for (int r = 0; r < 2; r++)
        outside_start_rank(&job, r, extra, NULL, meet_main, NULL);
    outside_end(&job, _i ? 2 : 0);
    unlink(path);
    outside_free(&job);
}
END_TEST

/* Any address of the machine beside loopback, if it has one. */
static int find_address(char *text, size_t room) {
    FILE *found = popen("hostname -I 2>/dev/null", "re");
    int got = found && fscanf(found, "%63s", text) == 1;
    (void)room;
    if (found)
        pclose(found);
    return got;
}

START_TEST(off_loopback_needs_a_secret) {
    char own[64], address[96];
    if (!find_address(own, sizeof own))
        return;
    snprintf(address, sizeof address, "MASTER_ADDR=%s", own);
    const char *extra[] = {address, _i ? SECRET_A : NULL, NULL};
    outside_job job = {.ranks = 2, .port = free_port()};
    dlc_job_options options = {.ranks = 1, .rendezvous = 2};
    for (int r = 0; r < 2; r++)
        outside_start_rank(&job, r, extra, &options, meet_main, NULL);
    int first = session_end(&job.session[0]), second = session_end(&job.session[1]);
    ck_assert_int_eq(first, _i ? 0 : 2);
    ck_assert_int_eq(second, _i ? 0 : 5);
    if (!_i)
        ck_assert(outside_says(&job, 0, "away from loopback the ranks need a secret"));
    outside_free(&job);
}
END_TEST

/* ---- Signals ----------------------------------------------------------------- */

static int obey_main(dlc_job *job, void *argument) {
    (void)argument;
    board_enter(job);
    unsigned seen = 0;
    while (!(seen & DLC_JOB_STOP)) {
        if (dlc_job_check(job) != DLC_OK)
            return 5;
        seen |= dlc_job_requests(job);
        atomic_fetch_or(&board_shared->seen[dlc_job_rank(job)], seen);
        usleep(1000);
    }
    return 0;
}

START_TEST(a_signal_to_anyone) {
    outside_job job = outside_start(3, NULL, obey_main, NULL);
    board_wait(3);
    pid_t to = _i < 3 ? job.session[_i].pid : atomic_load(&board_shared->pid[_i - 3]);
    kill(to, SIGHUP);
    kill(to, SIGUSR1);
    for (int r = 0; r < 3; r++)
        while (~atomic_load(&board_shared->seen[r]) &
               (DLC_JOB_CHECKPOINT | DLC_JOB_CHANGE))
            usleep(1000);
    if (_i % 2)
        kill(to, SIGTERM);
    else
        for (int r = 0; r < 3; r++)
            kill(job.session[r].pid, SIGTERM);
    outside_end(&job, 128 + SIGTERM);
    outside_free(&job);
}
END_TEST

/* While some ranks are still missing: nobody has anything to save. */
START_TEST(a_signal_while_waiting) {
    outside_job job = {.ranks = 3, .port = free_port()};
    outside_start_rank(&job, 0, NULL, NULL, never_main, NULL);
    outside_start_rank(&job, 1, NULL, NULL, never_main, NULL);
    usleep(400000);
    uint64_t start = dlc_now_ns();
    kill(job.session[_i].pid, SIGTERM);
    int first = session_end(&job.session[0]), second = session_end(&job.session[1]);
    ck_assert_int_eq(first, 128 + SIGTERM);
    ck_assert_int_eq(second, 128 + SIGTERM);
    ck_assert_double_lt(dlc_since(start), 10);
    outside_free(&job);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("outside");
    tcase_add_loop_test(tests, all_meet, 0, 4);
    tcase_add_test(tests, rank_0_comes_last);
    tcase_add_loop_test(tests, other_addresses, 0, 3);
    tcase_add_test(tests, another_port);
    tcase_add_loop_test(tests, codes_are_shared, 0, sizeof codes / sizeof *codes);
    tcase_add_loop_test(tests, contradictions, 0,
                        sizeof wrong_cases / sizeof *wrong_cases);
    tcase_add_test(tests, not_asked);
    tcase_add_test(tests, port_is_taken);
    tcase_add_loop_test(tests, ranks_disagree, 0, 3);
    tcase_add_test(tests, too_late);
    tcase_add_test(tests, missing_ranks_are_named);
    tcase_add_test(tests, rank_0_is_missing);
    tcase_add_loop_test(tests, secrets, 0, sizeof secret_cases / sizeof *secret_cases);
    tcase_add_loop_test(tests, secret_file, 0, 2);
    tcase_add_loop_test(tests, off_loopback_needs_a_secret, 0, 2);
    tcase_add_loop_test(tests, a_signal_to_anyone, 0, 6);
    tcase_add_loop_test(tests, a_signal_while_waiting, 0, 2);
    return run_tests("job: ranks from outside", tests);
}
