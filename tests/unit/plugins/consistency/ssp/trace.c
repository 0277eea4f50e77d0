/* Reads trace files line by line and replays the clocks of every owner. */
#include "trace.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    char what[8];
    int bucket;
    long long a, b, c;
    long long in[FAKE_RANKS_MAX];
    int count; /* elements of `in` */
    const char *path;
    long number;
} line;

/* State of an owner, replayed from its trace file. */
typedef struct owner {
    long long clock[FIXTURE_BUCKETS_MAX][FAKE_RANKS_MAX];
    struct {
        int waits, delayed;
        long long own, others;
    } request[FIXTURE_BUCKETS_MAX][FAKE_RANKS_MAX];
} owner;

typedef struct checker {
    const test_fixture *fixture;
    int32_t rank, workers, groups;
    int64_t staleness;
    owner own;
    trace_counts *counts;
} checker;

#define HOLDS(line_, condition, ...) \
    do { \
        if (!(condition)) { \
            char text_[200]; \
            snprintf(text_, sizeof text_, __VA_ARGS__); \
            ck_abort_msg("%s:%ld: %s", (line_)->path, (line_)->number, text_); \
        } \
    } while (0)

static int parse(const char *text, line *one) {
    int at = 0;
    double seconds;
    one->count = 0;
    if (sscanf(text, "%7s %lf %d %lld %lld %lld%n", one->what, &seconds, &one->bucket,
               &one->a, &one->b, &one->c, &at) != 6)
        return 0;
    for (const char *rest = text + at; one->count < FAKE_RANKS_MAX;) {
        char *end;
        long long value = strtoll(rest, &end, 10);
        if (end == rest)
            break;
        one->in[one->count++] = value;
        rest = end;
    }
    return 1;
}

static int32_t group_of(const checker *check, int32_t worker) {
    if (!check->groups)
        return worker;
    int32_t group = 0;
    while ((int64_t)check->workers * (group + 1) / check->groups <= worker)
        group++;
    return group;
}

static int is_due(const checker *check, int bucket, int32_t peer) {
    const owner *own = &check->own;
    for (int32_t w = 0; w < check->workers; w++) {
        int mate = group_of(check, w) == group_of(check, peer);
        if (own->clock[bucket][w] <
            (mate ? own->request[bucket][peer].own : own->request[bucket][peer].others))
            return 0;
    }
    return 1;
}

/* Before each new event: every request that could be answered was answered. Except one
 * of the owner's own rank, which may still be reading the previous answer. */
static void no_request_is_due(const checker *check, const line *one) {
    for (int32_t w = 0; w < check->workers; w++)
        HOLDS(one,
              w == check->rank || !check->own.request[one->bucket][w].waits ||
                  !is_due(check, one->bucket, w),
              "the answer to worker %d is late", w);
}

static void check_update(checker *check, const line *one) {
    /* The updates of one group follow each other. */
    long long *clock = &check->own.clock[one->bucket][one->a];
    HOLDS(one, one->b == *clock + 1, "worker %lld's clock goes from %lld to %lld",
          one->a, *clock, one->b);
    *clock = one->b;
    check->counts->updates++;
}

static void check_request(checker *check, const line *one) {
    no_request_is_due(check, one);
    check->own.request[one->bucket][one->a].waits = 1;
    check->own.request[one->bucket][one->a].own = one->b;
    check->own.request[one->bucket][one->a].others = one->c;
    long long others = check->staleness == INT64_MAX ? INT64_MIN
                                                     : one->b - check->staleness;
    HOLDS(one, one->c == others,
          "worker %lld requests clock %lld of others at clock %lld", one->a, one->c,
          one->b);
}

static void check_answer(checker *check, const line *one) {
    int32_t peer = (int32_t)one->a;
    if (!check->own.request[one->bucket][peer].waits)
        return; /* of a synchronization */
    HOLDS(one, is_due(check, one->bucket, peer), "worker %d is answered too early",
          peer);
    for (int w = 0; w < one->count; w++)
        HOLDS(one, one->in[w] == check->own.clock[one->bucket][w],
              "the answer claims clock %lld of worker %d, which is %lld", one->in[w], w,
              check->own.clock[one->bucket][w]);
    check->own.request[one->bucket][peer].waits = 0;
    check->counts->answers++;
    check->counts->delayed += one->b != 0;
}

/* By how many clocks worker w's updates are too old for iteration `clock`; 0 or less if
 * they are not. */
static long long too_old(const checker *check, const line *one, int w) {
    int mate = group_of(check, w) == group_of(check, check->rank);
    if (w == check->rank)
        return 0;
    if (!mate && check->staleness == INT64_MAX)
        return 0;
    return one->b - 1 - (mate ? 0 : check->staleness) - one->in[w];
}

static void check_wait(checker *check, const line *one) {
    int causes = 0;
    for (int w = 0; w < one->count; w++)
        causes += too_old(check, one, w) > 0;
    HOLDS(one, causes > 0, "iteration %lld waits without cause", one->b);
    check->counts->waits++;
}

static void check_read(checker *check, const line *one) {
    for (int w = 0; w < one->count; w++) {
        HOLDS(one, too_old(check, one, w) <= 0,
              "iteration %lld reads worker %d's clock %lld", one->b, w, one->in[w]);
        if (one->b - 1 - one->in[w] > check->counts->stalest)
            check->counts->stalest = one->b - 1 - one->in[w];
    }
    HOLDS(one, one->in[check->rank] == one->b - 1, "iteration %lld lacks its own",
          one->b);
    check->counts->reads++;
}

static void check_line(checker *check, const line *one) {
    if (strcmp(one->what, "update") == 0)
        check_update(check, one);
    else if (strcmp(one->what, "request") == 0)
        check_request(check, one);
    else if (strcmp(one->what, "answer") == 0)
        check_answer(check, one);
    else if (strcmp(one->what, "wait") == 0)
        check_wait(check, one);
    else
        check_read(check, one);
}

void trace_check(const test_fixture *fixture, const char *path, int64_t staleness,
                 int32_t groups, trace_counts *counts) {
    *counts = (trace_counts){0};
    for (int32_t r = 0; r < fixture->ranks; r++) {
        static checker check;
        char name[256], text[512];
        snprintf(name, sizeof name, "%s.%d", path, r);
        FILE *file = fopen(name, "r");
        ck_assert_msg(file != NULL, "no trace %s", name);
        check = (checker){.fixture = fixture,
                          .rank = r,
                          .workers = fixture->ranks - fixture->servers,
                          .groups = groups,
                          .staleness = staleness,
                          .counts = counts};
        for (int b = 0; b < FIXTURE_BUCKETS_MAX; b++)
            for (int w = 0; w < FAKE_RANKS_MAX; w++)
                check.own.clock[b][w] = fixture->first - 1;
        line one = {.path = name};
        while (fgets(text, sizeof text, file)) {
            one.number++;
            if (text[0] == '#')
                continue;
            HOLDS(&one, parse(text, &one), "not a trace line: %.100s", text);
            check_line(&check, &one);
        }
        fclose(file);
    }
}
