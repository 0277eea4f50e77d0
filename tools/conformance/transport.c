/* Checks of transports: messages, sums, and what happens when a rank dies. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "group.h"

enum { MANY = 5 };

/* ---- Score ------------------------------------------------------------------- */

static void score_once(suite_run *run, const suite_bed *bed, int32_t ranks,
                       int32_t nodes) {
    int32_t first = -1;
    for (int32_t rank = 0; rank < ranks; rank++) {
        suite_member member = {.rank = rank, .bed = *bed};
        char reason[256] = "", again[256] = "";
        int32_t score = -1, second = -1;
        suite_group_arguments(run, ranks, nodes, &member);
        suite_must(run, member.ops->score(&member.args, &score, reason, sizeof reason),
                   "score");
        suite_must(run, member.ops->score(&member.args, &second, again, sizeof again),
                   "score");
        if (score < 0 || score > 100)
            suite_fail(run, "its score for %d ranks on %d nodes is %d, not 0 to 100",
                       ranks, nodes, score);
        if (!reason[0])
            suite_fail(run, "its score for %d ranks comes without a reason", ranks);
        if (score != second || (rank > 0 && score != first))
            suite_fail(
                run, "its score for %d ranks on %d nodes is %d here and %d there",
                ranks, nodes, rank > 0 ? first : score, rank > 0 ? score : second);
        first = score;
    }
}

static void scores(suite_run *run) {
    suite_bed bed;
    suite_bed_open(run, &bed);
    for (int32_t ranks = 2; ranks <= MANY; ranks++)
        for (int32_t nodes = 1; nodes <= ranks; nodes++)
            score_once(run, &bed, ranks, nodes);
}

/* A reason longer than its room is cut, not written on. */
static void keeps_to_its_reason(suite_run *run) {
    suite_member member = {.rank = 0};
    char room[16];
    int32_t score = 0;
    suite_bed_open(run, &member.bed);
    suite_group_arguments(run, 2, 1, &member);
    memset(room, 0x7e, sizeof room);
    suite_must(run, member.ops->score(&member.args, &score, room, 8), "score");
    for (size_t i = 8; i < sizeof room; i++)
        if (room[i] != 0x7e)
            suite_fail(run, "score writes behind the room for its reason");
    if (!memchr(room, '\0', 8))
        suite_fail(run, "the reason of a score doesn't end with a NUL");
}

/* ---- Messages
 * ------------------------------------------------------------------------
 */

static unsigned char byte_of(int32_t from, int32_t to, dlc_tag tag, size_t i) {
    return (unsigned char)((size_t)from * 31 + (size_t)to * 17 + (size_t)tag * 7 +
                           i * 13 + (i >> 8));
}

static unsigned char *take(suite_member *m, size_t bytes) {
    return (unsigned char *)suite_bed_floats(m->run, &m->bed, bytes / 4 + 16);
}

static void fill(unsigned char *buffer, size_t bytes, int32_t from, int32_t to,
                 dlc_tag tag) {
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = byte_of(from, to, tag, i);
}

static void verify(suite_member *m, const unsigned char *buffer, size_t bytes,
                   int32_t from, dlc_tag tag) {
    for (size_t i = 0; i < bytes; i++)
        if (buffer[i] != byte_of(from, m->rank, tag, i))
            suite_fail(m->run,
                       "byte %zu of a message of %zu from rank %d to rank %d "
                       "(tag %llu) is wrong",
                       i, bytes, from, m->rank, (unsigned long long)tag);
    if (buffer[bytes] != 0)
        suite_fail(m->run, "a message of %zu bytes writes behind its buffer", bytes);
}

/* Everybody to everybody. */
static void swap_all(suite_member *m, size_t bytes, dlc_tag tag) {
    dlc_request *requests[2 * GROUP_MOST];
    unsigned char *in[GROUP_MOST] = {NULL}, *out[GROUP_MOST] = {NULL};
    int count = 0;
    for (int32_t r = 0; r < m->ranks; r++) {
        if (r == m->rank)
            continue;
        in[r] = take(m, bytes);
        out[r] = take(m, bytes);
        fill(out[r], bytes, m->rank, r, tag);
        suite_group_recv(m, r, tag, in[r], bytes, &requests[count++]);
        suite_group_send(m, r, tag, out[r], bytes, &requests[count++]);
    }
    while (count > 0)
        suite_group_wait(m, requests[--count]);
    for (int32_t r = 0; r < m->ranks; r++)
        if (in[r])
            verify(m, in[r], bytes, r, tag);
}

static void all_sizes(suite_member *m) {
    static const size_t sizes[] = {0,    1,    3,     8,     63,      64,     65,
                                   1000, 4096, 65535, 65537, 1000003, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        swap_all(m, sizes[i], 100 + i);
}

static void messages_arrive(suite_run *run) {
    suite_group_play(run, 2, 0, all_sizes);
    suite_group_play(run, 3, 0, all_sizes);
}

/* Received in another order than sent; the same tag twice in order. */
static void backwards(suite_member *m) {
    enum { TAGS = 6, BYTES = 300 };
    const dlc_tag high = (dlc_tag)1 << 63;
    int32_t peer = 1 - m->rank;
    dlc_request *sent[2 * TAGS], *got;
    unsigned char *out[2 * TAGS];
    for (int i = 0; i < 2 * TAGS; i++) {
        dlc_tag tag = high + (dlc_tag)(i % TAGS);
        out[i] = take(m, BYTES);
        fill(out[i], BYTES, m->rank, peer, tag + (dlc_tag)(i / TAGS) * 1000);
        suite_group_send(m, peer, tag, out[i], BYTES, &sent[i]);
    }
    for (int i = TAGS - 1; i >= 0; i--)
        for (int again = 0; again < 2; again++) {
            unsigned char *in = take(m, BYTES);
            dlc_tag tag = high + (dlc_tag)i;
            suite_group_recv(m, peer, tag, in, BYTES, &got);
            suite_group_wait(m, got);
            verify(m, in, BYTES, peer, tag + (dlc_tag)again * 1000);
        }
    for (int i = 0; i < 2 * TAGS; i++)
        suite_group_wait(m, sent[i]);
}

static void tags_match(suite_run *run) {
    suite_group_play(run, 2, 0, backwards);
}

static void flood(suite_member *m) {
    enum { COUNT = 300, BYTES = 700 };
    int32_t peer = 1 - m->rank;
    dlc_request **sent = dlc_alloc(COUNT, sizeof *sent);
    unsigned char *out = take(m, BYTES);
    fill(out, BYTES, m->rank, peer, 9);
    for (int i = 0; sent && i < COUNT; i++)
        suite_group_send(m, peer, 9, out, BYTES, &sent[i]);
    for (int i = 0; i < COUNT; i++) {
        dlc_request *got;
        unsigned char *in = take(m, BYTES);
        suite_group_recv(m, peer, 9, in, BYTES, &got);
        suite_group_wait(m, got);
        verify(m, in, BYTES, peer, 9);
    }
    for (int i = 0; sent && i < COUNT; i++)
        suite_group_wait(m, sent[i]);
    dlc_free(sent);
}

static void floods_pass(suite_run *run) {
    suite_group_play(run, 2, 0, flood);
}

/* Both send before either receives. */
static void send_first(suite_member *m) {
    enum { BYTES = 6 << 20 };
    int32_t peer = 1 - m->rank;
    dlc_request *sent, *got;
    unsigned char *out = take(m, BYTES), *in = take(m, BYTES);
    fill(out, BYTES, m->rank, peer, 4);
    suite_group_send(m, peer, 4, out, BYTES, &sent);
    suite_group_barrier(m);
    suite_group_recv(m, peer, 4, in, BYTES, &got);
    suite_group_wait(m, sent);
    suite_group_wait(m, got);
    verify(m, in, BYTES, peer, 4);
}

static void large_both_ways(suite_run *run) {
    suite_group_play(run, 2, 0, send_first);
}

static void by_test_alone(suite_member *m) {
    enum { BYTES = 100000 };
    int32_t peer = 1 - m->rank;
    dlc_request *requests[2];
    unsigned char *out = take(m, BYTES), *in = take(m, BYTES);
    fill(out, BYTES, m->rank, peer, 5);
    suite_group_recv(m, peer, 5, in, BYTES, &requests[0]);
    suite_group_send(m, peer, 5, out, BYTES, &requests[1]);
    for (int left = 2; left > 0;)
        for (int i = 0; i < 2; i++) {
            int done = 0;
            if (!requests[i])
                continue;
            suite_must(m->run, m->ops->test(m->endpoint, requests[i], &done), "test");
            if (done) {
                requests[i] = NULL;
                left--;
            }
        }
    verify(m, in, BYTES, peer, 5);
}

static void test_moves_on(suite_run *run) {
    suite_group_play(run, 2, 0, by_test_alone);
}

/* ---- Sums -------------------------------------------------------------------- */

static const size_t counts[] = {1, 2, 3, 5, 16, 17, 255, 1000, 4097, 65537, 300001};

static void summand(float *x, size_t count, int32_t rank, uint64_t turn) {
    suite_random(x, count, 1000 * turn + (uint64_t)rank);
}

/* The sum as the SDK wants it, pairwise over the ranks. */
static void expect_sum(suite_member *m, float *sum, size_t count, uint64_t turn) {
    const float *sources[GROUP_MOST];
    for (int32_t r = 0; r < m->ranks; r++) {
        float *x = suite_bed_floats(m->run, &m->bed, count);
        summand(x, count, r, turn);
        sources[r] = x;
    }
    suite_must(m->run,
               m->bed.ops->sum(m->bed.device, NULL, count, sources, m->ranks, sum),
               "the device's sum");
}

static void compare(suite_member *m, const char *call, const float *x,
                    const float *wanted, size_t begin, size_t end, size_t count) {
    int exact = (m->run->feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    for (size_t i = begin; i < end; i++) {
        double error = fabs((double)x[i] - (double)wanted[i]);
        if (exact ? suite_bits(x[i]) != suite_bits(wanted[i])
                  : !(error <= 1e-5 * (1 + fabs((double)wanted[i]))))
            suite_fail(m->run,
                       "%s of %zu elements over %d ranks: element %zu is %.9g, "
                       "not %.9g%s",
                       call, count, m->ranks, i, (double)x[i], (double)wanted[i],
                       exact ? " (summed pairwise, as its bits promise)" : "");
    }
}

static size_t slice(size_t count, int32_t r, int32_t ranks) {
    return count * (size_t)r / (size_t)ranks;
}

static void try_all_reduce(suite_member *m, size_t count, uint64_t turn, float *x,
                           const float *wanted) {
    if (!DLC_CAN(m->ops, all_reduce))
        return;
    summand(x, count, m->rank, turn);
    suite_must(m->run, m->ops->all_reduce(m->endpoint, x, count), "all_reduce");
    compare(m, "all_reduce", x, wanted, 0, count, count);
}

static void try_reduce_scatter(suite_member *m, size_t count, uint64_t turn, float *x,
                               const float *wanted) {
    if (!DLC_CAN(m->ops, reduce_scatter))
        return;
    summand(x, count, m->rank, turn);
    suite_must(m->run, m->ops->reduce_scatter(m->endpoint, x, count), "reduce_scatter");
    compare(m, "reduce_scatter", x, wanted, slice(count, m->rank, m->ranks),
            slice(count, m->rank + 1, m->ranks), count);
}

static void try_all_gather(suite_member *m, size_t count, float *x,
                           const float *wanted) {
    size_t begin = slice(count, m->rank, m->ranks);
    size_t end = slice(count, m->rank + 1, m->ranks);
    if (!DLC_CAN(m->ops, all_gather))
        return;
    memset(x, 0, count * sizeof *x);
    memcpy(x + begin, wanted + begin, (end - begin) * sizeof *x);
    suite_must(m->run, m->ops->all_gather(m->endpoint, x, count), "all_gather");
    compare(m, "all_gather", x, wanted, 0, count, count);
}

static void try_broadcast(suite_member *m, size_t count, uint64_t turn, float *x,
                          const float *wanted) {
    if (!DLC_CAN(m->ops, broadcast))
        return;
    int32_t root = (int32_t)(turn % (uint64_t)m->ranks);
    memset(x, 0, count * sizeof *x);
    if (m->rank == root)
        memcpy(x, wanted, count * sizeof *x);
    suite_must(m->run, m->ops->broadcast(m->endpoint, root, x, count * sizeof *x),
               "broadcast");
    compare(m, "broadcast", x, wanted, 0, count, count);
}

/* `late`: ranks come at different times. */
static void collectives(suite_member *m, int late) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c];
        float *x = suite_bed_floats(m->run, &m->bed, count);
        float *wanted = suite_bed_floats(m->run, &m->bed, count);
        expect_sum(m, wanted, count, c + 1);
        for (int32_t call = 0; call < 4; call++) {
            if (late)
                suite_group_dawdle(m, (int32_t)c * 4 + call);
            if (call == 0)
                try_all_reduce(m, count, c + 1, x, wanted);
            else if (call == 1)
                try_reduce_scatter(m, count, c + 1, x, wanted);
            else if (call == 2)
                try_all_gather(m, count, x, wanted);
            else
                try_broadcast(m, count, c + 1, x, wanted);
        }
    }
}

static void collect_at_once(suite_member *m) {
    collectives(m, 0);
}

static void collect_late(suite_member *m) {
    collectives(m, 1);
}

static void must_collect(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, all_reduce) && !DLC_CAN(ops, reduce_scatter) &&
        !DLC_CAN(ops, all_gather) && !DLC_CAN(ops, broadcast))
        suite_skip(run, "it has no collectives: the core builds them from messages");
}

static void sums_are_right(suite_run *run) {
    must_collect(run);
    for (int32_t ranks = 2; ranks <= MANY; ranks++)
        suite_group_play(run, ranks, 0, collect_at_once);
}

static void ranks_may_be_late(suite_run *run) {
    must_collect(run);
    suite_group_play(run, 3, 0, collect_late);
}

/* Memory that the transport was told of. */
static void in_attached_memory(suite_member *m) {
    enum { COUNT = 100003 };
    dlc_memory memory = {.size = sizeof memory};
    suite_must(m->run,
               m->bed.ops->alloc(m->bed.device, sizeof(float) * 2 * COUNT,
                                 DLC_MEM_SHARED, &memory),
               "the device's alloc");
    suite_must(m->run, m->ops->attach(m->endpoint, &memory), "attach");
    float *wanted = suite_bed_floats(m->run, &m->bed, COUNT);
    expect_sum(m, wanted, COUNT, 77);
    for (size_t at = 0; at <= COUNT; at += 33333) /* anywhere in it */
        try_all_reduce(m, COUNT, 77, (float *)memory.base + at, wanted);
}

static void sums_where_attached(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, attach) || !DLC_CAN(ops, all_reduce))
        suite_skip(run, "it has no attach");
    suite_group_play(run, 2, 0, in_attached_memory);
    suite_group_play(run, 3, 0, in_attached_memory);
}

static void messages_between_sums(suite_member *m) {
    float *x = suite_bed_floats(m->run, &m->bed, 1000);
    float *wanted = suite_bed_floats(m->run, &m->bed, 1000);
    expect_sum(m, wanted, 1000, 3);
    for (int i = 0; i < 10; i++) {
        swap_all(m, 500, (dlc_tag)i);
        try_all_reduce(m, 1000, 3, x, wanted);
    }
}

static void mixes(suite_run *run) {
    must_collect(run);
    suite_group_play(run, 3, 0, messages_between_sums);
}

/* ---- One-sided --------------------------------------------------------------- */

static void put_and_get(suite_member *m) {
    enum { BYTES = 5000, REMOTE = 256 };
    struct {
        size_t bytes;
        unsigned char key[REMOTE];
    } mine = {.bytes = REMOTE}, all[GROUP_MOST];
    int32_t peer = 1 - m->rank;
    dlc_region *own = NULL, *far = NULL;
    dlc_request *request;
    unsigned char *window = take(m, (size_t)2 * BYTES), *local = take(m, BYTES);
    suite_must(m->run,
               m->ops->region_open(m->endpoint, window, (size_t)2 * BYTES, &own,
                                   mine.key, &mine.bytes),
               "region_open");
    if (mine.bytes > REMOTE)
        suite_fail(m->run, "region_open says that a peer needs %zu bytes", mine.bytes);
    suite_must(m->run, m->args.allgather(m, &mine, sizeof mine, all), "the meeting");
    suite_must(
        m->run,
        m->ops->region_import(m->endpoint, peer, all[peer].key, all[peer].bytes, &far),
        "region_import");
    fill(local, BYTES, m->rank, peer, 6);
    suite_must(m->run, m->ops->put(m->endpoint, local, far, BYTES, BYTES, &request),
               "put");
    suite_group_wait(m, request);
    swap_all(m, 1, 60); /* moves things on, and both are through */
    verify(m, window + BYTES, BYTES, peer, 6);
    if (DLC_CAN(m->ops, get)) {
        memset(local, 0, BYTES);
        suite_must(m->run, m->ops->get(m->endpoint, local, far, BYTES, BYTES, &request),
                   "get");
        suite_group_wait(m, request);
        for (size_t i = 0; i < BYTES; i++)
            if (local[i] != byte_of(m->rank, peer, 6, i))
                suite_fail(m->run, "get brings other bytes than put had put there");
    }
    swap_all(m, 1, 61);
    m->ops->region_close(m->endpoint, far);
    m->ops->region_close(m->endpoint, own);
}

static void reaches_over(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, region_open) || !DLC_CAN(ops, put))
        suite_skip(run, "it has no put");
    suite_group_play(run, 2, 0, put_and_get);
}

/* ---- Waiting and dying
 * ---------------------------------------------------------------
 */

static double processor_seconds(void) {
    struct timespec used;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static void wait_for_a_sleeper(suite_member *m) {
    unsigned char *byte = take(m, 1);
    dlc_request *request;
    const struct timespec long_pause = {.tv_sec = 1, .tv_nsec = 500000000};
    if (m->rank == 1) {
        (void)nanosleep(&long_pause, NULL);
        suite_group_send(m, 0, 1, byte, 1, &request);
        suite_group_wait(m, request);
        return;
    }
    double before = processor_seconds();
    suite_group_recv(m, 1, 1, byte, 1, &request);
    suite_group_wait(m, request);
    double used = processor_seconds() - before;
    if (used > 0.1)
        suite_fail(m->run,
                   "a wait of 1.5 s took %.2f s of a processor: it must sleep "
                   "when nothing moves",
                   used);
}

static void sleeps(suite_run *run) {
    suite_group_play(run, 2, 0, wait_for_a_sleeper);
}

#define LEAVES_WITHIN 1.0

static void must_leave(suite_member *m, dlc_status status, double since) {
    if (status == DLC_OK)
        suite_fail(m->run, "a wait for a message that nobody sends succeeded");
    if (since > LEAVES_WITHIN)
        suite_fail(m->run,
                   "it left its wait %.1f s after the job had ended; 0.1 s are "
                   "allowed",
                   since);
}

static void lose_a_peer(suite_member *m) {
    unsigned char *byte = take(m, 1);
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

static void lose_a_peer_in_a_sum(suite_member *m) {
    float *x = suite_bed_floats(m->run, &m->bed, 100000);
    suite_group_barrier(m);
    if (m->rank == 2)
        _exit(9);
    uint64_t start = dlc_now_ns();
    must_leave(m, m->ops->all_reduce(m->endpoint, x, 100000), dlc_since(start));
}

static void notices_a_death_in_a_sum(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, all_reduce))
        suite_skip(run, "it has no all_reduce");
    suite_group_play(run, 3, 1u << 2, lose_a_peer_in_a_sum);
}

static void leave_things_under_way(suite_member *m) {
    enum { BYTES = 1 << 20 };
    int32_t peer = 1 - m->rank;
    dlc_request *request;
    suite_group_recv(m, peer, 1, take(m, BYTES), BYTES, &request);
    suite_group_send(m, peer, 2, take(m, BYTES), BYTES, &request);
}

static void closes_at_any_time(suite_run *run) {
    suite_group_play(run, 2, 0, leave_things_under_way);
}

static void nothing(suite_member *m) {
    m->ops->close(NULL);
}

/* ---- What is left
 * --------------------------------------------------------------------
 */

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

/* Has this process the file open, or mapped? */
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

/* What is open is another job's: our ranks have ended. */
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
            suite_fail(run, SHARED "/%s stays when its ranks have ended",
                       after.name[i]);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_TRANSPORT, 0, SUITE_LOADED, 60, run }

const suite_check suite_transport_checks[] = {
    CHECK("transport.score", "0 to 100, the same on every rank, with a reason", scores),
    CHECK("transport.reason", "a reason is cut to its room", keeps_to_its_reason),
    CHECK("transport.messages", "messages of any size arrive whole", messages_arrive),
    CHECK("transport.tags", "messages match by tag, of one tag in order", tags_match),
    CHECK("transport.flood", "any number is under way", floods_pass),
    CHECK("transport.large", "both may send before they receive", large_both_ways),
    CHECK("transport.test", "test alone moves things on", test_moves_on),
    CHECK("transport.sums", "collectives of any count over 2 to 5 ranks",
          sums_are_right),
    CHECK("transport.late", "ranks may come late to a collective", ranks_may_be_late),
    CHECK("transport.attach", "collectives in memory that was attached",
          sums_where_attached),
    CHECK("transport.mixed", "messages between collectives", mixes),
    CHECK("transport.regions", "put and get reach the peer's memory", reaches_over),
    CHECK("transport.idle", "who waits sleeps", sleeps),
    CHECK("transport.death", "a wait ends when a peer is dead", notices_a_death),
    CHECK("transport.death_in_sum", "so does a collective", notices_a_death_in_a_sum),
    CHECK("transport.close", "close gives up what is under way", closes_at_any_time),
    CHECK("transport.leftovers", "nothing is left in shared memory", leaves_nothing),
    {.name = NULL},
};
