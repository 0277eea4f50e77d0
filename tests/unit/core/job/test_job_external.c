/* Tests external launch by variables: joining, contradictions in the environment,
 * secrets, signals. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "job_fixture.h"
#include "support/test.h"

/* ---- Joining ----------------------------------------------------------------- */

/* Checks the rank infos, and a collective larger than any socket buffer. */
static int join_main(dlc_job *job, void *argument) {
    (void)argument;
    enum { WORDS = 30000 };
    static int mine[WORDS], all[8 * WORDS];
    int rank = dlc_job_rank(job), ranks = dlc_job_ranks(job);
    shared_enter(job);
    for (int i = 0; i < WORDS; i++)
        mine[i] = rank * WORDS + i;
    for (int round = 0; round < 20; round++)
        if (dlc_job_barrier(job) != DLC_OK)
            return 1;
    if (dlc_job_all_gather(job, mine, sizeof mine, all) != DLC_OK)
        return 2;
    for (int i = 0; i < ranks * WORDS; i++)
        if (all[i] != i)
            return 3;
    for (int r = 0; r < ranks; r++) {
        const dlc_rank_info *info = dlc_job_rank_info(job, r);
        if (info->pid != (uint32_t)atomic_load(&shared->pid[r]) || info->node != 0)
            return 4;
    }
    if (dlc_job_broadcast(job, ranks - 1, all, sizeof mine) != DLC_OK)
        return 5;
    return dlc_job_threads(job) >= 1 ? 0 : 6;
}

static const int rank_counts[] = {1, 2, 3, 5};

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(all_ranks_join, 4) {
    external_job job = external_start(rank_counts[_i], NULL, join_main, NULL);
    external_wait(&job, 0);
    for (int r = 0; r < job.ranks; r++)
        ck_assert_str_eq(dlc_text_string(&job.process[r].text), "");
    external_free(&job);
}

/* Ranks may start in any order, rank 0 last. */
TEST(rank_0_comes_last) {
    external_job job = {.ranks = 3, .port = free_port()};
    for (int r = 2; r >= 0; r--) {
        external_start_rank(&job, r, NULL, NULL, join_main, NULL);
        usleep(100000);
    }
    external_wait(&job, 0);
    external_free(&job);
}

static const char *const addresses[] = {"MASTER_ADDR=::1", "MASTER_ADDR=[::1]",
                                        "MASTER_ADDR=localhost",
                                        "MASTER_ADDR=127.0.0.2"};

/* Stands for DNS. "own-name" is what Debian makes of a machine's name; it learns the
 * name "late-SECONDS" that long after it was first asked, and what begins with "never"
 * never. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    static double asked;
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, "own-name") == 0)
        return real("127.0.1.1", service, hints, found);
    if (strncmp(host, "never", 5) == 0)
        return EAI_NONAME;
    if (strncmp(host, "late-", 5) != 0)
        return real(host, service, hints, found);
    double now = (double)dlc_now_ns() / 1e9;
    asked = asked > 0 ? asked : now;
    return now - asked < strtod(host + 5, NULL)
               ? EAI_AGAIN
               : real("127.0.0.1", service, hints, found);
}

/* A pod's name may be known only after the pod has started. */
static const struct {
    const char *address, *says;
} late_names[] = {
    {"MASTER_ADDR=late-0.4", NULL},
    {"MASTER_ADDR=late-5.5", "waits for late-5.5: no address is known for the host"},
};

TEST_EACH(late_name, COUNT(late_names)) {
    const char *extra[] = {late_names[_i].address, NULL};
    external_job job = {.ranks = 2, .port = free_port()};
    for (int r = 0; r < 2; r++)
        external_start_rank(&job, r, extra, NULL, join_main, NULL);
    external_wait(&job, 0);
    for (int r = 0; r < 2; r++)
        if (late_names[_i].says)
            ck_assert(external_prints(&job, r, late_names[_i].says));
        else
            ck_assert_str_eq(dlc_text_string(&job.process[r].text), "");
    external_free(&job);
}

/* Variables that are set, but empty, do not count. */
TEST_EACH(other_addresses, 4) {
    const char *extra[] = {addresses[_i], "LOCAL_WORLD_SIZE=2",
                           "DLCORE_SECRET_FILE=", "DLCORE_SECRET=", NULL};
    external_job job = {.ranks = 2, .port = free_port()};
    if (_i < 2 && access("/proc/net/if_inet6", F_OK))
        return; /* no IPv6 on this machine */
    for (int r = 0; r < 2; r++)
        external_start_rank(&job, r, extra, NULL, join_main, NULL);
    external_wait(&job, 0);
    external_free(&job);
}

/* srun without PMI: rank 0's host and port follow from Slurm's variables; on one node
 * no secret is needed. */
static const char *const slurm_nodes[][3] = {
    {"SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NODELIST=no-such-host.invalid", NULL},
    {"SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=localhost,other[3-4]",
     "DLCORE_SECRET=correct horse battery"},
};

TEST_EACH(slurm_variables, 2) {
    dlc_job_options options = {.ranks = 1, .external = 1};
    job_process process[2];
    for (int r = 0; r < 2; r++) {
        char rank[32], job[32];
        snprintf(rank, sizeof rank, "SLURM_PROCID=%d", r);
        snprintf(job, sizeof job, "SLURM_JOB_ID=%d", (int)getpid());
        const char *set[] = {rank,
                             job,
                             "SLURM_STEP_ID=0",
                             "SLURM_STEP_NUM_TASKS=2",
                             slurm_nodes[_i][0],
                             slurm_nodes[_i][1],
                             slurm_nodes[_i][2],
                             NULL};
        process[r] = process_start_environment(set, &options, join_main, NULL);
    }
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(process_wait(&process[r]) == 0, "%s",
                      dlc_text_string(&process[r].text));
        dlc_text_free(&process[r].text);
    }
}

/* DLCORE_PORT overrides MASTER_PORT, which the launcher may need itself. */
TEST(another_port) {
    char port[32];
    const char *extra[] = {port, NULL};
    external_job job = {.ranks = 2, .port = 1};
    snprintf(port, sizeof port, "DLCORE_PORT=%d", free_port());
    for (int r = 0; r < 2; r++)
        external_start_rank(&job, r, extra, NULL, join_main, NULL);
    external_wait(&job, 0);
    external_free(&job);
}

static int codes_main(dlc_job *job, void *argument) {
    const int *codes = argument;
    shared_enter(job);
    if (dlc_job_barrier(job) != DLC_OK)
        return 9;
    return codes[dlc_job_rank(job)];
}

/* Every process ends with the exit code of the job. */
static const int codes[][4] = {{0, 0, 0, 0}, {0, 3, 0, 3}, {4, 0, 0, 4}, {1, 1, 1, 1}};

TEST_EACH(codes_are_shared, COUNT(codes)) {
    external_job job = external_start(3, NULL, codes_main, (void *)codes[_i]);
    external_wait(&job, codes[_i][3]);
    external_free(&job);
}

/* ---- Contradictions ---------------------------------------------------------- */

static int never_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    return 77;
}

typedef struct wrong_case {
    const char *set[7];
    int ranks;
    const char *says;
} wrong_case;

#define FULL(rank, ranks) \
    "RANK=" rank, "WORLD_SIZE=" ranks, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711"

#define SLURM(ranks) \
    "SLURM_STEP_NUM_TASKS=" ranks, "SLURM_JOB_ID=70000", "SLURM_STEP_ID=3"

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
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=192.0.2.1", "MASTER_PORT=4711"},
     1,
     "rank 0 must run on MASTER_ADDR"},
    {{"PMIX_NAMESPACE=a"}, 1, "PMIX_RANK is not"},
    {{"PMIX_NAMESPACE=a", "PMIX_RANK=1", "RANK=0"}, 1, "contradict each other"},
    {{"PMI_SIZE=2", "PMI_RANK=0"}, 1, "PMI_FD is not set"},
    {{"PMI_SIZE=2", "PMI_FD=9"}, 1, "PMI_RANK is not set"},
    {{"PMI_SIZE=2", "PMI_RANK=2", "PMI_FD=9"}, 1, "PMI_RANK=2 and PMI_SIZE=2"},
    {{"PMI_SIZE=2", "PMI_RANK=0", "PMI_FD=999"}, 1, "not an open descriptor"},
    {{"PMI_SIZE=2", "PMI_RANK=0", "PMI_FD=9"}, 3, "--ranks=3"},
    {{SLURM("2"), "SLURM_PROCID=0"}, 1, "SLURM_STEP_NODELIST is not"},
    {{SLURM("2")}, 1, "SLURM_PROCID is not"},
    {{SLURM("2"), "SLURM_PROCID=2"}, 1, "SLURM_PROCID=2 and SLURM_STEP_NUM_TASKS=2"},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_JOB_ID=1"},
     1,
     "SLURM_STEP_ID is not"},
    {{SLURM("2"), "SLURM_PROCID=0", "SLURM_STEP_NODELIST=a[3,5],b"},
     1,
     "every address of its machine"},
    {{FULL("0", "2"), "DLCORE_SECRET=short"}, 1, "5 characters"},
    {{FULL("0", "2"), "DLCORE_SECRET=sixteen-letters-", "DLCORE_SECRET_FILE=x"},
     1,
     "unset one"},
    {{FULL("0", "2"), "DLCORE_SECRET_FILE=/no/such/file"}, 1, "/no/such/file"},
    {{FULL("0", "2"), "KUBERNETES_SERVICE_HOST=10.0.0.1"},
     1,
     "every address of its machine"},
    {{FULL("0", "2"), "DLCORE_SECRET_FILE=/"}, 1, "is not a file"},
    {{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1"},
     1,
     "without PMIx (PMIX_NAMES"},
    {{"MV2_COMM_WORLD_SIZE=8"}, 1, "unset MV2_COMM_WORLD_SIZE"},
    {{"JSM_NAMESPACE_SIZE=2", "OMPI_COMM_WORLD_SIZE=1"}, 1, "jsrun has started"},
    {{"FLUX_JOB_SIZE=3"}, 1, "FLUX_JOB_SIZE=3 in the environment"},
    {{"HOROVOD_SIZE=3"}, 1, "HOROVOD_SIZE=3 in the environment"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=own-name", "MASTER_PORT=4711",
      "LOCAL_WORLD_SIZE=1"},
     1,
     "own-name, which is 127.0.1.1:4711 on its machine"},
    {{FULL("0", "2"), "DLCORE_SECRET_FILE=/etc/passwd"}, 1, "chmod 600"},
};

TEST_EACH(contradictions, COUNT(wrong_cases)) {
    const wrong_case *wrong = &wrong_cases[_i];
    dlc_job_options options = {.ranks = wrong->ranks, .external = 1};
    job_process process = process_start_environment(wrong->set, &options, never_main,
                                                    NULL);
    int code = process_wait(&process);
    ck_assert_msg(code == 2 && strstr(dlc_text_string(&process.text), wrong->says),
                  "code %d: %s", code, dlc_text_string(&process.text));
    ck_assert_int_eq(atomic_load(&shared->pid[0]), 0);
    dlc_text_free(&process.text);
}

/* Without options.external the environment is ignored. */
TEST(not_asked) {
    const char *set[] = {"RANK=9", "PMIX_NAMESPACE=x", NULL};
    dlc_job_options options = {.ranks = 2};
    job_process process = process_start_environment(set, &options, join_main, NULL);
    ck_assert_int_eq(process_wait(&process), 0);
    dlc_text_free(&process.text);
}

TEST(port_is_taken) {
    external_job first = external_start(2, NULL, join_main, NULL), second = first;
    external_wait(&first, 0);
    /* A second job on the port where another hub listens. */
    external_start_rank(&first, 0, NULL, NULL, join_main, NULL);
    usleep(300000);
    external_start_rank(&second, 0, NULL, NULL, join_main, NULL);
    second.ranks = 1;
    external_wait(&second, 2);
    ck_assert(external_prints(&second, 0, "listens at 127.0.0.1"));
    external_start_rank(&first, 1, NULL, NULL, join_main, NULL);
    external_wait(&first, 0);
    external_free(&first);
    external_free(&second);
}

/* Rank 1 is started with the number of another rank, with another number of ranks, and
 * in a job of another size. */
TEST_EACH(ranks_disagree, 2) {
    static const char *const says[] = {"has been started twice", "expects 4 ranks"};
    static const char *const says_it[] = {"rank 2 has been started twice",
                                          "expects 4 ranks"};
    const char *const extra[][2] = {{"RANK=2"}, {"WORLD_SIZE=4"}};
    dlc_job_options options = {.ranks = 1};
    external_job job = {.ranks = 3, .port = free_port()};
    external_start_rank(&job, 0, NULL, &options, never_main, NULL);
    external_start_rank(&job, 2, NULL, &options, never_main, NULL);
    usleep(300000);
    external_start_rank(&job, 1, extra[_i], &options, never_main, NULL);
    external_wait(&job, 2);
    ck_assert(external_prints(&job, 0, says[_i]));
    ck_assert(external_prints(&job, 1, says_it[_i]));
    external_free(&job);
}

#define LONG "0123456789012345678901234567890123456789"

static const struct {
    const char *settings[3], *says;
} differences[] = {
    {{"[net]\n[net] name = a\n[s] momentum = 0.9\n",
      "[net]\n[net] name = a\n[s] momentum = 0.9\n",
      "[net]\n[net] name = a\n[s] momentum = 0.95\n"},
     "[s] momentum = 0.95 there, 0.9 on rank 0"},
    {{"[net]\n", "[net]\n", "[net]\n[net] name = a\n"}, "[net] name = a is only there"},
    {{"[net]\n[net] name = a\n", "[net]\n[net] name = a\n", "[net]\n"},
     "[net] name = a is only on rank 0"},
    {{"[a]\n[b]\n[c]\n", "[a]\n[b]\n[c]\n", "[a]\n[c]\n[b]\n"},
     "[c] is at another place"},
    {{"[a]\n[b]\n", "[a]\n[b]\n", NULL}, "[a] is only on rank 0"},
    {{"[a] x = 1\n", "[a] x = 1\n", "[a] x = " LONG LONG LONG LONG LONG "\n"},
     "89012345678901 there, 1 on rank 0"},
};

/* The last of three ranks has others. */
TEST_EACH(settings_differ, COUNT(differences)) {
    external_job job = {.ranks = 3, .port = free_port()};
    for (int r = 0; r < 3; r++) {
        dlc_job_options options = {.ranks = 1, .settings = differences[_i].settings[r]};
        external_start_rank(&job, r, NULL, &options, never_main, NULL);
    }
    external_wait(&job, 2);
    const char *text = dlc_text_string(&job.process[0].text);
    ck_assert_msg(
        strstr(text, "rank 2 (host ") && strstr(text, differences[_i].says) &&
            strstr(text, "has a different net.ini or command line than rank 0"),
        "%s", text);
    ck_assert_ptr_null(strstr(strstr(text, "net.ini") + 1, "net.ini"));
    external_free(&job);
}

/* A rank that joins after the job has failed is told so at once. */
TEST(too_late) {
    static const char *const other[] = {"WORLD_SIZE=4", NULL};
    dlc_job_options options = {.ranks = 1};
    external_job job = {.ranks = 3, .port = free_port()};
    external_start_rank(&job, 0, NULL, &options, never_main, NULL);
    external_start_rank(&job, 1, other, &options, never_main, NULL);
    usleep(500000);
    external_start_rank(&job, 2, NULL, &options, never_main, NULL);
    external_wait(&job, 2);
    ck_assert(external_prints(&job, 2, "joined too late"));
    external_free(&job);
}

TEST(missing_ranks_are_named) {
    dlc_job_options options = {.ranks = 1, .rendezvous_timeout = 0.7};
    external_job job = {.ranks = 6, .port = free_port()};
    external_start_rank(&job, 0, NULL, &options, never_main, NULL);
    external_start_rank(&job, 2, NULL, &options, never_main, NULL);
    int code = process_wait(&job.process[0]);
    ck_assert_msg(code == 5 && external_prints(&job, 0, "missing rank 1, 3 to 5"), "%s",
                  dlc_text_string(&job.process[0].text));
    ck_assert_int_eq(process_wait(&job.process[2]), 5);
    external_free(&job);
}

TEST(rank_0_is_missing) {
    dlc_job_options options = {.ranks = 1, .rendezvous_timeout = 0.5};
    external_job job = {.ranks = 2, .port = free_port()};
    external_start_rank(&job, 1, NULL, &options, never_main, NULL);
    ck_assert_int_eq(process_wait(&job.process[1]), 5);
    ck_assert(external_prints(&job, 1, "could not reach rank 0 at 127.0.0.1:"));
    external_free(&job);
}

static const struct {
    const char *set[6];
    int code;
    const char *name;
} unknown_names[] = {
    {{FULL("0", "2"), "MASTER_ADDR=never"}, 2, "'never'"},
    {{FULL("1", "2"), "MASTER_ADDR=never"}, 5, "'never'"},
    {{SLURM("2"), "SLURM_PROCID=1", "SLURM_STEP_NODELIST=never-[08-11]-ib,b"},
     5,
     "'never-08-ib'"},
};

TEST_EACH(unknown_name, COUNT(unknown_names)) {
    dlc_job_options options = {.ranks = 1, .external = 1, .rendezvous_timeout = 0.5};
    job_process process = process_start_environment(unknown_names[_i].set, &options,
                                                    never_main, NULL);
    ck_assert_int_eq(process_wait(&process), unknown_names[_i].code);
    ck_assert(
        strstr(dlc_text_string(&process.text), "no address is known for the host"));
    ck_assert(strstr(dlc_text_string(&process.text), unknown_names[_i].name));
    dlc_text_free(&process.text);
}

/* ---- Secrets ----------------------------------------------------------------- */

#define SECRET_A "DLCORE_SECRET=correct horse battery"
#define SECRET_B "DLCORE_SECRET=correct horse battery staple"

typedef struct secret_case {
    const char *first[2], *second[2];
    const char *says; /* printed by rank 1; NULL: they join */
} secret_case;

static const secret_case secret_cases[] = {
    {{SECRET_A}, {SECRET_A}, NULL},
    {{SECRET_A}, {SECRET_B}, "has a different secret"},
    {{SECRET_A}, {NULL}, "has a secret, and this rank has none"},
    {{NULL}, {SECRET_A}, "has no secret, but this rank has"},
};

TEST_EACH(secrets, COUNT(secret_cases)) {
    const secret_case *test = &secret_cases[_i];
    dlc_job_options options = {.ranks = 1, .rendezvous_timeout = 1};
    external_job job = {.ranks = 2, .port = free_port()};
    external_start_rank(&job, 0, test->first, &options, join_main, NULL);
    external_start_rank(&job, 1, test->second, &options, join_main, NULL);
    int second = process_wait(&job.process[1]), first = process_wait(&job.process[0]);
    ck_assert_msg(second == (test->says ? 2 : 0), "%d: %s", second,
                  dlc_text_string(&job.process[1].text));
    ck_assert_int_eq(first, test->says ? 5 : 0); /* rank 0 goes on waiting */
    if (test->says)
        ck_assert(external_prints(&job, 1, test->says));
    external_free(&job);
}

TEST_EACH(secret_file, 2) {
    char path[] = "/tmp/dlcore-secret-XXXXXX", variable[64];
    const char *extra[] = {variable, NULL};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a secret of some length\n", 24), 24);
    snprintf(variable, sizeof variable, "DLCORE_SECRET_FILE=%s", path);
    ck_assert_int_eq(fchmod(fd, _i ? 0640 : 0600), 0);
    close(fd);
    external_job job = {.ranks = 2, .port = free_port()};
    for (int r = 0; r < 2; r++)
        external_start_rank(&job, r, extra, NULL, join_main, NULL);
    external_wait(&job, _i ? 2 : 0);
    unlink(path);
    external_free(&job);
}

/* Any address of this machine except loopback, if it has one. */
static int find_address(char *text, size_t room) {
    FILE *found = popen("hostname -I 2>/dev/null", "re");
    int got = found && fscanf(found, "%63s", text) == 1;
    (void)room;
    if (found)
        pclose(found);
    return got;
}

TEST_EACH(off_loopback_needs_a_secret, 2) {
    char own[64], address[96];
    if (!find_address(own, sizeof own))
        return;
    snprintf(address, sizeof address, "MASTER_ADDR=%s", own);
    const char *extra[] = {address, _i ? SECRET_A : NULL, NULL};
    external_job job = {.ranks = 2, .port = free_port()};
    dlc_job_options options = {.ranks = 1, .rendezvous_timeout = 2};
    for (int r = 0; r < 2; r++)
        external_start_rank(&job, r, extra, &options, join_main, NULL);
    int first = process_wait(&job.process[0]), second = process_wait(&job.process[1]);
    ck_assert_int_eq(first, _i ? 0 : 2);
    ck_assert_int_eq(second, _i ? 0 : 5);
    if (!_i)
        ck_assert(external_prints(&job, 0, "except on loopback, ranks need a secret"));
    external_free(&job);
}

/* A machine's own name may mean loopback there, and there alone: rank 1 stands for a
 * rank on another machine. With DLCORE_ADDR instead of MASTER_ADDR it is the same. */
static const struct {
    const char *first, *more;
    int other; /* rank 1 has another address */
} own_names[] = {
    {"MASTER_ADDR=own-name", SECRET_A, 1},
    {"DLCORE_ADDR=own-name", SECRET_A, 1},
    {"MASTER_ADDR=own-name", SECRET_A, 0},
    {"MASTER_ADDR=own-name", NULL, 0},
    {"MASTER_ADDR=own-name", "LOCAL_WORLD_SIZE=2", 0},
};

TEST_EACH(own_name_is_loopback, COUNT(own_names)) {
    char own[64], address[96];
    if (own_names[_i].other && !find_address(own, sizeof own))
        return;
    snprintf(address, sizeof address, "MASTER_ADDR=%s",
             own_names[_i].other ? own : "127.0.1.1");
    const char *first[] = {own_names[_i].first, own_names[_i].more, NULL};
    const char *second[] = {address, own_names[_i].more, NULL};
    external_job job = {.ranks = 2, .port = free_port()};
    dlc_job_options options = {.ranks = 1, .rendezvous_timeout = 5};
    external_start_rank(&job, 0, first, &options, join_main, NULL);
    external_start_rank(&job, 1, second, &options, join_main, NULL);
    external_wait(&job, 0);
    external_free(&job);
}

/* ---- Signals ----------------------------------------------------------------- */

static int obey_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    unsigned seen = 0;
    while (!(seen & DLC_JOB_STOP)) {
        if (dlc_job_check(job) != DLC_OK)
            return 5;
        seen |= dlc_job_requests(job);
        atomic_fetch_or(&shared->seen[dlc_job_rank(job)], seen);
        usleep(1000);
    }
    return 0;
}

TEST_EACH(a_signal_to_anyone, 6) {
    external_job job = external_start(3, NULL, obey_main, NULL);
    shared_wait_ranks(3);
    pid_t to = _i < 3 ? job.process[_i].pid : atomic_load(&shared->pid[_i - 3]);
    kill(to, SIGHUP);
    kill(to, SIGUSR1);
    for (int r = 0; r < 3; r++)
        while (~atomic_load(&shared->seen[r]) & (DLC_JOB_CHECKPOINT | DLC_JOB_RELOAD))
            usleep(1000);
    if (_i % 2)
        kill(to, SIGTERM);
    else
        for (int r = 0; r < 3; r++)
            kill(job.process[r].pid, SIGTERM);
    external_wait(&job, 128 + SIGTERM);
    external_free(&job);
}

/* The launcher dies without a word to the ranks that it has started: they stop as if
 * asked to, with time for a checkpoint, and go on if nobody is said to be their
 * launcher. */
TEST_EACH(the_launcher_dies, 3) {
    static const char *const launched[] = {"TORCHELASTIC_RUN_ID=7", NULL};
    enum { RANKS = 2 };
    external_job job = {.ranks = RANKS, .port = free_port()};
    int status = 0, ended = 0;
    pid_t launcher = fork();
    ck_assert_int_ge(launcher, 0);
    if (!launcher) {
        for (int r = 0; r < RANKS; r++)
            external_start_rank(&job, r, r == _i ? launched : NULL, NULL, obey_main,
                                NULL);
        for (;;)
            pause();
    }
    shared_wait_ranks(RANKS);
    kill(launcher, SIGKILL);
    ck_assert_int_eq(waitpid(launcher, &status, 0), launcher);
    if (_i == RANKS) { /* two heartbeats later */
        usleep(1300000);
        for (int r = 0; r < RANKS; r++)
            ck_assert_uint_eq(atomic_load(&shared->seen[r]), 0);
        kill(atomic_load(&shared->pid[1]), SIGTERM);
    }
    for (; waitpid(-1, &status, 0) > 0; ended++) {
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 128 + SIGTERM);
    }
    ck_assert_int_eq(ended, RANKS);
    for (int r = 0; r < RANKS; r++)
        ck_assert_uint_eq(atomic_load(&shared->seen[r]), DLC_JOB_STOP);
}

/* A signal while ranks are still missing ends the job at once. */
TEST_EACH(a_signal_while_waiting, 2) {
    external_job job = {.ranks = 3, .port = free_port()};
    external_start_rank(&job, 0, NULL, NULL, never_main, NULL);
    external_start_rank(&job, 1, NULL, NULL, never_main, NULL);
    usleep(400000);
    uint64_t start = dlc_now_ns();
    kill(job.process[_i].pid, SIGTERM);
    int first = process_wait(&job.process[0]), second = process_wait(&job.process[1]);
    ck_assert_int_eq(first, 128 + SIGTERM);
    ck_assert_int_eq(second, 128 + SIGTERM);
    ck_assert_double_lt(dlc_since(start), 10);
    external_free(&job);
}
