/* Tests where the threads of a running job are bound: each compute thread alone on a
 * core of its rank, the others to the remaining cores; settings of the user take
 * precedence. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net.h"
#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"
#include "topology/cores.h"

enum { RANKS_MAX = 2, BITS = 8 * sizeof(unsigned long) };

typedef struct seen {
    int compute[2]; /* threads that may run on this compute core alone */
    int elsewhere;  /* threads that are bound to unexpected cores */
    int helpers;    /* feed, exchange and control threads on the expected cores */
} seen;

static char table[4096]; /* the last observation, for the message */

static int same_mask(const cpu_set_t *mask, const dlc_core_set *set) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if ((CPU_ISSET(cpu, mask) != 0) != (set->cpus[cpu / BITS] >> cpu % BITS & 1))
            return 0;
    return 1;
}

static void read_name(pid_t pid, const char *task, char *name, size_t bytes) {
    char path[600];
    snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)pid, task);
    name[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file && fgets(name, (int)bytes, file))
        name[strcspn(name, "\n")] = '\0';
    if (file)
        fclose(file);
}

static void look_at(pid_t pid, const char *task, int threads,
                    const dlc_thread_placement *places, seen *all) {
    char name[32];
    cpu_set_t mask;
    size_t used = strlen(table);
    read_name(pid, task, name, sizeof name);
    if (sched_getaffinity(atoi(task), sizeof mask, &mask))
        return;
    snprintf(table + used, sizeof table - used, " %s:%s:%d", task, name,
             CPU_COUNT(&mask));
    if (strncmp(name, "dlc-", 4) == 0) {
        int fits = same_mask(&mask, &places->others);
        all->helpers += fits;
        all->elsewhere += !fits;
        return;
    }
    for (int i = 0; places->compute && i < threads; i++)
        if (CPU_COUNT(&mask) == 1 && CPU_ISSET(places->compute[i], &mask)) {
            all->compute[i]++;
            return;
        }
    all->elsewhere++;
}

static seen look(pid_t pid, int threads, const dlc_thread_placement *places) {
    char path[64];
    seen all = {{0}, 0, 0};
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            look_at(pid, entry->d_name, threads, places, &all);
    if (folder)
        closedir(folder);
    return all;
}

/* The processes of the ranks: the command itself, or its children. */
static int find_ranks(pid_t command, int ranks, pid_t found[RANKS_MAX]) {
    if (ranks == 1) {
        found[0] = command;
        return 1;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)command,
             (int)command);
    int count = 0, pid;
    FILE *file = fopen(path, "re");
    while (file && count < ranks && fscanf(file, "%d", &pid) == 1)
        found[count++] = pid;
    if (file)
        fclose(file);
    return count;
}

static int all_in_place(pid_t command, const dlc_cores *cores, int ranks, int threads) {
    pid_t pid[RANKS_MAX];
    table[0] = '\0';
    if (find_ranks(command, ranks, pid) != ranks)
        return 0;
    int right = 1;
    for (int r = 0; r < ranks; r++) {
        dlc_thread_placement places;
        ck_assert_int_eq(dlc_cores_place_threads(cores, r, ranks, threads, &places),
                         DLC_OK);
        seen now = look(pid[r], threads, &places);
        /* control, two feeds, exchange */
        right &= now.elsewhere == 0 && now.helpers == (ranks > 1 ? 4 : 3);
        for (int i = 0; i < threads; i++)
            right &= now.compute[i] == 1;
        dlc_thread_placement_free(&places);
    }
    return right;
}

static pid_t start(int ranks, int threads) {
    char set_ranks[32], set_threads[32];
    const char *net = net_write("iterations = 100000000\ntest_interval = 100000000\n");
    snprintf(set_ranks, sizeof set_ranks, "--ranks=%d", ranks);
    snprintf(set_threads, sizeof set_threads, "--set=train.threads=%d", threads);
    return command_start(net_folder(), COMMAND("train", net, set_ranks, set_threads));
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Waits until `holds` is true, 20 s at most: a job takes a moment to start. */
static void wait_for_places(pid_t pid, const dlc_cores *cores, int ranks, int threads) {
    const struct timespec moment = {0, 20000000};
    int right = 0;
    for (int i = 0; i < 1000 && !right; i++) {
        nanosleep(&moment, NULL);
        right = all_in_place(pid, cores, ranks, threads);
    }
    end(pid);
    ck_assert_msg(right, "%d ranks of %d threads: %s", ranks, threads, table);
}

static const int jobs[][2] = {{1, 1}, {1, 2}, {2, 1}};

TEST_SETTINGS(.timeout = 60, .setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(each_on_its_core, COUNT(jobs)) {
    int ranks = jobs[_i][0], threads = jobs[_i][1];
    dlc_cores *cores = NULL;
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    if (dlc_cores_count(cores) >= ranks * threads)
        wait_for_places(start(ranks, threads), cores, ranks, threads);
    dlc_cores_close(cores);
}

/* A mask that taskset has set is respected. */
TEST(mask_is_respected) {
    cpu_set_t mine, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &mine))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    dlc_cores *cores = NULL;
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    wait_for_places(start(1, 1), cores, 1, 1);
    dlc_cores_close(cores);
}

/* Compute threads are those that have the command's own name. */
static int compute_threads(pid_t pid) {
    char path[64], name[32];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        read_name(pid, entry->d_name, name, sizeof name);
        count += strcmp(name, "dlcore") == 0;
    }
    if (folder)
        closedir(folder);
    return count;
}

/* With OMP_PROC_BIND libgomp binds the pool, and the thread that loads it to one core;
 * the number of threads stays the same. */
TEST(the_user_places_threads) {
    const struct timespec moment = {0, 20000000};
    dlc_cores *cores = NULL;
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    int count = dlc_cores_count(cores), now = 0;
    dlc_cores_close(cores);
    if (count > 2)
        count = 2;
    ck_assert_int_eq(setenv("OMP_PROC_BIND", "true", 1), 0);
    pid_t pid = start(1, 0);
    for (int i = 0; i < 1000 && now < count; i++) {
        nanosleep(&moment, NULL);
        now = compute_threads(pid);
    }
    end(pid);
    ck_assert_int_ge(now, count);
}

/* Convolutions whose weight gradients oneDNN computes with all threads together. */
static const char *const together =
    "[net]\nname = together\n"
    "[data]\nsource = synthetic\nshape = 16,28,28\nclasses = 4\nsamples = 64\n"
    "batch = 2\n"
    "[solver]\ntype = sgd\nlearning_rate = 0.02\n"
    "[conv1]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[conv2]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[ip]\ntype = inner_product\nnum_output = 4\n"
    "[loss]\ntype = softmax_loss\n"
    "[train]\niterations = 2\nthreads = 2\n";

static const struct {
    const char *name, *value;
    int is_told; /* otherwise OpenMP would adapt the number of threads */
} fewer[] = {{"OMP_THREAD_LIMIT", "1", 1},
             {"OMP_MAX_ACTIVE_LEVELS", "0", 1},
             {"OMP_DYNAMIC", "true", 0}};

/* Training does not hang if OpenMP starts fewer threads than were asked for. */
TEST_EACH(fewer_than_asked_for, COUNT(fewer)) {
    const char *net = scratch_write("together.ini", together, strlen(together));
    ck_assert_int_eq(setenv(fewer[_i].name, fewer[_i].value, 1), 0);
    command_result result = command_run(20, net_folder(), COMMAND("train", net));
    ck_assert_msg(result.exit_code == 0, "%s=%s: %d: %s", fewer[_i].name,
                  fewer[_i].value, result.exit_code, result.err);
    ck_assert_msg((strstr(result.err, "allows 1 of the 2 threads") != NULL) ==
                      fewer[_i].is_told,
                  "%s=%s: %s", fewer[_i].name, fewer[_i].value, result.err);
    command_free(&result);
}
