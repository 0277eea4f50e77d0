/* What only the ucx transport has: its description and prediction, and
 * what it must leave alone in the process. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "group.h"
#include "support/test.h"

static const char *const tcp[] = {"tls=tcp,self", NULL};
static const char *const *const settings[] = {NULL, tcp};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void run(int ranks, rank_body *body, const char *const *sets) {
    group_kind kind = {"ucx", sets};
    ck_assert_int_eq(ranks_run(ranks, 60, body, &kind), 0);
    plugins_close();
}

/* Makes progress until all ranks have come here. */
static void progress_barrier(group *g) {
    for (int r = 0; r < g->rank->ranks; r++) {
        dlc_request *out, *in;
        if (r == g->rank->rank)
            continue;
        group_send(g, r, 99, NULL, 0, &out);
        group_recv(g, r, 99, NULL, 0, &in);
        group_wait(g, out);
        group_wait(g, in);
    }
}

/* ---- Large messages --------------------------------------------------------- */

enum { LARGE = 5000003, SEVERAL = 4 };

/* Rank 0 sends a message that rank 1 receives only after another one. */
static void unexpected_body(test_rank *rank, void *context) {
    unsigned char *large = dlc_alloc(LARGE, 1);
    dlc_request *first, *second;
    int done = 0;
    group g;

    RANK_CHECK(rank, large != NULL);
    group_open(&g, rank, context);
    if (rank->rank == 0) {
        group_write(large, LARGE, 0, 1, 1);
        group_send(&g, 1, 1, large, LARGE, &first);
        group_send(&g, 1, 2, NULL, 0, &second);
        group_wait(&g, second);
        for (int i = 0; i < 1000; i++)
            RANK_OK(rank, g.ops->test(g.endpoint, first, &done));
        RANK_CHECK(rank, !done);
        ranks_barrier(rank);
        group_wait(&g, first);
    } else {
        group_recv(&g, 0, 2, NULL, 0, &second);
        group_wait(&g, second);
        ranks_barrier(rank);
        group_recv(&g, 0, 1, large, LARGE, &first);
        group_wait(&g, first);
        RANK_CHECK(rank, group_is(large, LARGE, 0, 1, 1));
    }
    group_close(&g);
    dlc_free(large);
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(unexpected, SETTINGS) {
    run(2, unexpected_body, settings[_i]);
}

/* All ranks send each other several at once, and post the receives in reverse order. */
static void bidirectional_body(test_rank *rank, void *context) {
    int me = rank->rank, ranks = rank->ranks, all = ranks * SEVERAL;
    unsigned char *memory = dlc_alloc(2 * (size_t)all, LARGE), *at = memory;
    dlc_request *request[2 * 3 * SEVERAL];
    int requests = 0;
    group g;

    RANK_CHECK(rank, memory && ranks <= 3);
    group_open(&g, rank, context);
    for (int i = 1; i < ranks; i++)
        for (int k = 0; k < SEVERAL; k++, at += LARGE) {
            group_write(at, LARGE, me, (me + i) % ranks, (unsigned)k);
            group_send(&g, (me + i) % ranks, (dlc_tag)k, at, LARGE,
                       &request[requests++]);
        }
    for (int i = 1; i < ranks; i++)
        for (int k = SEVERAL - 1; k >= 0; k--, at += LARGE)
            group_recv(&g, (me + i) % ranks, (dlc_tag)k, at, LARGE,
                       &request[requests++]);
    for (int i = 0; i < requests; i++)
        group_wait(&g, request[i]);
    for (int i = 1; i < ranks; i++)
        for (int k = 0; k < SEVERAL; k++, at -= LARGE)
            RANK_CHECK(rank, group_is(at - LARGE, LARGE, (me + ranks - i) % ranks, me,
                                      (unsigned)k));
    progress_barrier(&g);
    group_close(&g);
    dlc_free(memory);
}

TEST_EACH(bidirectional, SETTINGS) {
    run(2, bidirectional_body, settings[_i]);
    run(3, bidirectional_body, settings[_i]);
}

/* ---- Short messages --------------------------------------------------------- */

/* Sizes around the limits between UCX's protocols. */
static const size_t limits[] = {0,   1,    8,    76,   77,   255,  256,
                                257, 8191, 8192, 8193, 8256, 8257, 61441};
enum { LIMITS = sizeof limits / sizeof *limits, LONGEST = 61441, TURNS = 3 };

/* Receives are posted before arrival, after arrival, and at once. */
static void limits_body(test_rank *rank, void *context) {
    int other = 1 - rank->rank;
    unsigned char *out = dlc_alloc(LIMITS, LONGEST), *in = dlc_alloc(LIMITS, LONGEST);
    dlc_request *requests[2 * LIMITS];
    group g;

    RANK_CHECK(rank, out && in);
    group_open(&g, rank, context);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < LIMITS; i++)
            group_write(out + i * LONGEST, limits[i], rank->rank, other, turn + i);
        for (int i = 0; i < LIMITS && turn == 0; i++)
            group_recv(&g, other, i & 1, in + i * LONGEST, limits[i], &requests[i]);
        if (turn == 1)
            ranks_barrier(rank);
        for (int i = 0; i < LIMITS; i++)
            group_send(&g, other, i & 1, out + i * LONGEST, limits[i],
                       &requests[LIMITS + i]);
        if (turn == 1)
            progress_barrier(&g);
        for (int i = 0; i < LIMITS && turn > 0; i++)
            group_recv(&g, other, i & 1, in + i * LONGEST, limits[i], &requests[i]);
        for (int i = 0; i < 2 * LIMITS; i++)
            group_wait(&g, requests[i]);
        for (int i = 0; i < LIMITS; i++)
            RANK_CHECK(rank, group_is(in + i * LONGEST, limits[i], other, rank->rank,
                                      turn + i));
    }
    progress_barrier(&g);
    group_close(&g);
    dlc_free(out);
    dlc_free(in);
}

TEST_EACH(short_messages, SETTINGS) {
    run(2, limits_body, settings[_i]);
}

/* A size that differs is an error, by whichever protocol the message came, and nothing
 * is written. */
static void wrong_sizes_body(test_rank *rank, void *context) {
    unsigned char *memory = dlc_alloc(LONGEST, 1);
    dlc_request *request;
    group g;

    RANK_CHECK(rank, memory != NULL);
    group_open(&g, rank, context);
    for (int i = 1; i < LIMITS; i++) {
        if (rank->rank == 0) {
            memset(memory, 1, LONGEST);
            group_send(&g, 1, 1, memory, limits[i], &request);
            group_wait(&g, request);
            continue;
        }
        memset(memory, 0, LONGEST);
        group_recv(&g, 0, 1, memory, limits[i] - 1, &request);
        RANK_CHECK(rank, group_finish(&g, request) == DLC_ERR_CONFIG);
        RANK_CHECK(rank, memory[0] == 0);
    }
    progress_barrier(&g);
    group_close(&g);
    dlc_free(memory);
}

TEST_EACH(wrong_sizes, SETTINGS) {
    run(2, wrong_sizes_body, settings[_i]);
}

/* ---- Description and prediction ----------------------------------------------- */

static void describe_body(test_rank *rank, void *context) {
    const group_kind *kind = context;
    char text[256] = "", shorter[8] = "";
    group g;

    group_open(&g, rank, context);
    RANK_OK(rank, g.ops->describe(g.endpoint, text, sizeof text));
    RANK_CHECK(rank, strncmp(text, "UCX 1.", 6) == 0 && strchr(text, '/'));
    RANK_CHECK(rank, (strstr(text, ", tcp/") != NULL) == (kind->sets == tcp));
    RANK_OK(rank, g.ops->describe(g.endpoint, shorter, sizeof shorter));
    RANK_CHECK(rank, strncmp(text, shorter, 7) == 0 && shorter[7] == '\0');
    group_close(&g);
}

TEST_EACH(describes_itself, SETTINGS) {
    run(2, describe_body, settings[_i]);
}

/* In a process of its own, since it loads UCX. */
static void prediction_body(test_rank *rank, void *context) {
    static const char *const none[] = {"tls=posix,self", NULL};
    static const char *const wrong[] = {"tls=carrier-pigeon", NULL};
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "ucx");
    const dlc_transport_ops *ops = feature->ops;
    dlc_rank_info place[3] = {{.size = sizeof *place, .node = 4},
                              {.size = sizeof *place, .node = 4},
                              {.size = sizeof *place, .node = 4}};
    dlc_transport_args args = {.size = sizeof args, .ranks = 3, .rank_info = place};
    char reason[256];
    dlc_transport_prediction made = {.size = sizeof made};

    (void)context;
    RANK_OK(rank, ops->predict(&args, &made, reason, sizeof reason));
    RANK_CHECK(rank, made.bandwidth > 0 && made.small_bandwidth > made.bandwidth);
    RANK_CHECK(rank, strcmp(reason, "UCX, 3 ranks on one node") == 0);

    place[2].node = 5;
    for (int i = 0; i < 3; i++) {
        const char *const *const sets[] = {tcp, none, wrong};
        static const char *const says[] = {"tcp/", "UCX finds no network here",
                                           "UCX does not start here"};
        dlc_settings *given = plugin_settings(feature, sets[i]);
        args.settings = given;
        made = (dlc_transport_prediction){.size = sizeof made};
        RANK_OK(rank, ops->predict(&args, &made, reason, sizeof reason));
        int can = made.bandwidth > 0;
        /* A machine may have no network but its loopback. */
        RANK_CHECK(rank, i > 0 || can == !strstr(reason, "no network"));
        RANK_CHECK(rank, i == 0 || !can);
        RANK_CHECK(rank, strstr(reason, says[i]) || (i == 0 && !can));
        dlc_settings_free(given);
    }
    plugins_close();
}

TEST(predictions) {
    ck_assert_int_eq(ranks_run(1, 60, prediction_body, NULL), 0);
}

static void other_settings_body(test_rank *rank, void *context) {
    static const char *const sets[] = {"chunk_bytes=1M", NULL};
    group_kind kind = {context, rank->rank == 1 ? sets : NULL};
    group g;

    group_prepare(&g, rank, &kind);
    RANK_CHECK(rank, g.ops->open(&g.args, &g.endpoint) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "different settings") != NULL);
    ranks_barrier(rank);
    group_close(&g);
}

TEST(other_settings) {
    ck_assert_int_eq(ranks_run(2, 30, other_settings_body, (void *)"ucx"), 0);
}

static void bad_tls_body(test_rank *rank, void *context) {
    static const char *const sets[] = {"tls=carrier-pigeon", NULL};
    group_kind kind = {context, sets};
    group g;

    group_prepare(&g, rank, &kind);
    RANK_CHECK(rank, g.ops->open(&g.args, &g.endpoint) == DLC_ERR_UNAVAILABLE);
    RANK_CHECK(rank, strstr(dlc_detail(), "tls") != NULL);
    group_close(&g);
}

TEST(bad_tls) {
    ck_assert_int_eq(ranks_run(1, 30, bad_tls_body, (void *)"ucx"), 0);
}

/* The option that we set for UCX's shared memory must cause no warning where it is
 * unused. */
static void quiet_body(test_rank *rank, void *context) {
    char text[4096];
    FILE *said = tmpfile();
    int before = dup(STDERR_FILENO);
    group g;

    RANK_CHECK(rank, said && before >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    group_open(&g, rank, context);
    group_close(&g);
    (void)fflush(stderr);
    RANK_CHECK(rank, dup2(before, STDERR_FILENO) >= 0);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    RANK_CHECK(rank, strstr(text, "FIFO") == NULL);
    (void)fclose(said);
    close(before);
}

TEST_EACH(quiet, SETTINGS) {
    run(2, quiet_body, settings[_i]);
}

/* ---- What it leaves alone ------------------------------------------------------- */

static void on_signal(int number) {
    (void)number;
}

static void signals_body(test_rank *rank, void *context) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM};
    struct sigaction mine = {.sa_handler = on_signal}, now, before[6];
    group g;

    RANK_CHECK(rank, sigaction(SIGHUP, &mine, NULL) == 0);
    for (int i = 0; i < 6; i++)
        RANK_CHECK(rank, sigaction(crashes[i], NULL, &before[i]) == 0);
    group_open(&g, rank, context);
    RANK_CHECK(rank, sigaction(SIGHUP, NULL, &now) == 0);
    RANK_CHECK(rank, now.sa_handler == on_signal);
    for (int i = 0; i < 6; i++) {
        RANK_CHECK(rank, sigaction(crashes[i], NULL, &now) == 0);
        RANK_CHECK(rank, now.sa_handler == before[i].sa_handler);
    }
    group_close(&g);
}

TEST(signals) {
    run(2, signals_body, NULL);
}

static double cpu_seconds(void) {
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) != 0)
        return 1e9;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* A rank that waits for a second must not spin for a second. */
static void idle_body(test_rank *rank, void *context) {
    dlc_request *request;
    char word[8] = "";
    group g;

    group_open(&g, rank, context);
    progress_barrier(&g);
    if (rank->rank == 0) {
        usleep(1000000);
        group_send(&g, 1, 1, "at last", 8, &request);
        group_wait(&g, request);
    } else {
        group_recv(&g, 0, 1, word, 8, &request);
        double before = cpu_seconds();
        group_wait(&g, request);
        RANK_CHECK(rank, cpu_seconds() - before < 0.5);
        RANK_CHECK(rank, strcmp(word, "at last") == 0);
    }
    group_close(&g);
}

TEST_EACH(idle_waits_sleep, SETTINGS) {
    run(2, idle_body, settings[_i]);
}
