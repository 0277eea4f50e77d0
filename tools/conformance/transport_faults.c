/* The checks of transports when nothing moves, when a rank dies, and when the ranks
 * have ended. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "group.h"
#include "guard.h"

/* ---- Waiting and failures --------------------------------------------------- */

/* Computes for `seconds`; returns the CPU time that it was given. On a busy machine
 * that is less, and a wait that spins is given as much. */
static double work(double seconds) {
    double before = dlc_cpu_seconds();
    uint64_t start = dlc_now_ns();
    while (dlc_since(start) < seconds)
        ;
    return dlc_cpu_seconds() - before;
}

#define WORK_SECONDS 1.5
#define IDLE_SHARE 0.07 /* of the CPU time of a rank that works meanwhile */

static void wait_for_a_worker(suite_member *m) {
    double *worked = (double *)(void *)suite_group_bytes(m, sizeof *worked);
    dlc_request *request;
    if (m->rank == 1) {
        *worked = work(WORK_SECONDS);
        suite_group_send(m, 0, 1, worked, sizeof *worked, &request);
        suite_group_wait(m, request);
        return;
    }
    double before = dlc_cpu_seconds();
    suite_group_recv(m, 1, 1, worked, sizeof *worked, &request);
    suite_group_wait(m, request);
    double used = dlc_cpu_seconds() - before;
    if (used > *worked * IDLE_SHARE)
        suite_fail(
            m->run,
            "a wait of 1.5 s used %.3f s of CPU time, where a thread that always runs "
            "got %.3f s; it must sleep while nothing moves",
            used, *worked);
}

static void sleeps(suite_run *run) {
    suite_group_play(run, 2, 0, wait_for_a_worker);
}

#define LEAVE_SECONDS 1.0 /* generous: the rule is 0.1 s */

static void must_leave(suite_member *m, dlc_status status, double since) {
    if (status == DLC_OK)
        suite_fail(m->run, "a call that needs a dead rank succeeded");
    if (since > LEAVE_SECONDS)
        suite_fail(
            m->run,
            "a blocking call returned %.1f s after the job began to end; 0.1 s is "
            "allowed",
            since);
}

static void lose_a_peer(suite_member *m) {
    unsigned char *byte = suite_group_bytes(m, 1);
    dlc_request *request;
    suite_group_barrier(m);
    if (m->rank == 1)
        _exit(9);
    uint64_t start = dlc_now_ns();
    dlc_status status = m->ops->recv(m->endpoint, 1, 1, byte, 1, &request);
    if (status == DLC_OK)
        status = m->ops->wait(m->endpoint, request);
    must_leave(m, status, dlc_since(start));
}

static void notices_a_death(suite_run *run) {
    suite_group_play(run, 3, 1u << 1, lose_a_peer);
}

static void lose_a_peer_in_a_collective(suite_member *m) {
    float *x = device_fixture_floats(m->run, &m->device, 100000);
    suite_group_barrier(m);
    if (m->rank == 2)
        _exit(9);
    uint64_t start = dlc_now_ns();
    must_leave(m, m->ops->all_reduce(m->endpoint, x, 100000), dlc_since(start));
}

static void notices_a_death_in_a_collective(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, all_reduce))
        suite_skip(run, "it has no all_reduce");
    suite_group_play(run, 3, 1u << 2, lose_a_peer_in_a_collective);
}

/* Rank 1 expects EXPECTED bytes; rank 0 sends fewer or more, before or after. */
enum { EXPECTED = 1000 };

/* When rank 1 has received this, the message that was sent before it has arrived. */
static void pass_on(suite_member *m) {
    unsigned char *byte = suite_group_bytes(m, 1);
    dlc_request *request;
    if (m->rank == 0)
        suite_group_send(m, 1, 2, byte, 1, &request);
    else
        suite_group_recv(m, 0, 2, byte, 1, &request);
    suite_group_wait(m, request);
}

static void send_another_size(suite_member *m, size_t bytes, int sends_first) {
    unsigned char *buffer = suite_group_bytes(m, bytes);
    dlc_request *request;
    memset(buffer, 1, bytes);
    if (!sends_first)
        suite_group_barrier(m);
    dlc_status status = m->ops->send(m->endpoint, 1, 1, buffer, bytes, &request);
    if (sends_first)
        pass_on(m);
    if (status == DLC_OK)
        (void)m->ops->wait(m->endpoint, request); /* may succeed or fail */
}

static void receive_another_size(suite_member *m, int sends_first) {
    unsigned char *buffer = suite_group_bytes(m, EXPECTED);
    dlc_request *request;
    if (sends_first)
        pass_on(m);
    dlc_status status = m->ops->recv(m->endpoint, 0, 1, buffer, EXPECTED, &request);
    if (!sends_first)
        suite_group_barrier(m);
    if (status == DLC_OK)
        status = m->ops->wait(m->endpoint, request);
    if (status != DLC_ERR_CONFIG)
        suite_fail(m->run,
                   "a receive of %d bytes, of which another number was sent, gives %d, "
                   "not DLC_ERR_CONFIG (%d)",
                   (int)EXPECTED, (int)status, (int)DLC_ERR_CONFIG);
    guard_check(m->run, "a message that is too long");
}

static void differ(suite_member *m, size_t bytes, int sends_first) {
    if (m->rank == 0)
        send_another_size(m, bytes, sends_first);
    else
        receive_another_size(m, sends_first);
    suite_group_barrier(m);
}

static void too_few_first(suite_member *m) {
    differ(m, EXPECTED - 1, 1);
}

static void too_few(suite_member *m) {
    differ(m, EXPECTED - 1, 0);
}

static void too_many_first(suite_member *m) {
    differ(m, EXPECTED + 1, 1);
}

static void too_many(suite_member *m) {
    differ(m, EXPECTED + 1, 0);
}

static void sizes_differ(suite_run *run) {
    suite_body *const bodies[] = {too_few_first, too_few, too_many_first, too_many};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        suite_group_play(run, 2, 0, bodies[i]);
}

static void leave_requests_in_flight(suite_member *m) {
    enum { BYTES = 1 << 20 };
    int32_t peer = 1 - m->rank;
    dlc_request *request;
    suite_group_recv(m, peer, 1, suite_group_bytes(m, BYTES), BYTES, &request);
    suite_group_send(m, peer, 2, suite_group_bytes(m, BYTES), BYTES, &request);
}

static void closes_at_any_time(suite_run *run) {
    suite_group_play(run, 2, 0, leave_requests_in_flight);
}

static void nothing(suite_member *m) {
    m->ops->close(NULL);
}

/* ---- Leftovers -------------------------------------------------------------- */

#define SHARED "/dev/shm"
enum { NAMES_MOST = 256, NAME_BYTES = 96 };

typedef struct listing {
    char name[NAMES_MOST][NAME_BYTES];
    int count;
} listing;

static void list_shared(listing *list) {
    DIR *dir = opendir(SHARED);
    list->count = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && list->count < NAMES_MOST)
            (void)snprintf(list->name[list->count++], NAME_BYTES, "%.95s",
                           entry->d_name);
    if (dir)
        (void)closedir(dir);
}

static int has(const listing *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->name[i], name) == 0)
            return 1;
    return 0;
}

/* 1 if the process has the file open or mapped. */
static int holds(const char *process, const char *name) {
    char path[300], line[512];
    int found = 0;
    (void)snprintf(path, sizeof path, "/proc/%.20s/maps", process);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps))
        found = strstr(line, SHARED) && strstr(line, name);
    if (maps)
        (void)fclose(maps);
    (void)snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    DIR *dir = found ? NULL : opendir(path);
    for (const struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        (void)snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", process,
                       entry->d_name);
        ssize_t length = readlink(path, line, sizeof line - 1);
        line[length > 0 ? length : 0] = '\0';
        found = strstr(line, SHARED) && strstr(line, name);
    }
    if (dir)
        (void)closedir(dir);
    return found;
}

/* 1 if a process has the file open. It belongs to another job then: our ranks have
 * ended. */
static int is_in_use(const char *name) {
    int found = 0;
    DIR *dir = opendir("/proc");
    for (const struct dirent *entry; dir && !found && (entry = readdir(dir));)
        found = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
                holds(entry->d_name, name);
    if (dir)
        (void)closedir(dir);
    return found;
}

static int is_there(const char *name) {
    char path[NAME_BYTES + sizeof SHARED + 1];
    (void)snprintf(path, sizeof path, SHARED "/%s", name);
    return access(path, F_OK) == 0;
}

static void leaves_nothing(suite_run *run) {
    static listing before, after;
    list_shared(&before);
    for (int32_t ranks = 2; ranks <= 4; ranks++)
        suite_group_play(run, ranks, 0, nothing);
    suite_group_play(run, 3, 1u << 1, lose_a_peer);
    list_shared(&after);
    for (int i = 0; i < after.count; i++)
        if (!has(&before, after.name[i]) && !is_in_use(after.name[i]) &&
            is_there(after.name[i]))
            suite_fail(run, SHARED "/%s is left after its ranks have ended",
                       after.name[i]);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_TRANSPORT, 0, SUITE_LOADED, 60, run }

const suite_check suite_transport_fault_checks[] = {
    CHECK("transport.idle", "a blocked call sleeps", sleeps),
    CHECK("transport.death", "a wait returns when a peer dies", notices_a_death),
    CHECK("transport.death_in_collective", "a collective returns when a peer dies",
          notices_a_death_in_a_collective),
    CHECK("transport.sizes", "a receive of another size fails", sizes_differ),
    CHECK("transport.close", "close cancels what is in flight", closes_at_any_time),
    CHECK("transport.leftovers", "nothing is left in /dev/shm", leaves_nothing),
    {.name = NULL},
};
