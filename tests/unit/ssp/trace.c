/* See trace.h. */
#include "trace.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    char what[8];
    int bucket;
    long long a, b, c;
    long long in[SIM_RANKS_MAX];
    int count; /* of `in` */
    const char *path;
    long number;
} line;

/* An owner, as its file tells it. */
typedef struct owner {
    long long clock[RIG_BUCKETS_MAX][SIM_RANKS_MAX];
    struct {
        int waits, parked;
        long long own, others;
    } ask[RIG_BUCKETS_MAX][SIM_RANKS_MAX];
} owner;

typedef struct checker {
    const test_rig *rig;
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
    for (const char *rest = text + at; one->count < SIM_RANKS_MAX;) {
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

static int is_due(const checker *check, int bucket, int32_t asker) {
    const owner *own = &check->own;
    for (int32_t w = 0; w < check->workers; w++) {
        int mate = group_of(check, w) == group_of(check, asker);
        if (own->clock[bucket][w] <
            (mate ? own->ask[bucket][asker].own : own->ask[bucket][asker].others))
            return 0;
    }
    return 1;
}

/* Before anything new: whoever could have been answered was. But for the owner's own
 * rank, which may be reading the answer before. */
static void none_is_due(const checker *check, const line *one) {
    for (int32_t w = 0; w < check->workers; w++)
        HOLDS(one,
              w == check->rank || !check->own.ask[one->bucket][w].waits ||
                  !is_due(check, one->bucket, w),
              "worker %d waits for an answer without cause", w);
}

static void check_update(checker *check, const line *one) {
    /* Those of one group come one after the other. */
    long long *clock = &check->own.clock[one->bucket][one->a];
    HOLDS(one, one->b == *clock + 1, "worker %lld's clock goes from %lld to %lld",
          one->a, *clock, one->b);
    *clock = one->b;
    check->counts->updates++;
}

static void check_ask(checker *check, const line *one) {
    none_is_due(check, one);
    check->own.ask[one->bucket][one->a].waits = 1;
    check->own.ask[one->bucket][one->a].own = one->b;
    check->own.ask[one->bucket][one->a].others = one->c;
    long long others = check->staleness == INT64_MAX ? INT64_MIN
                                                     : one->b - check->staleness;
    HOLDS(one, one->c == others, "worker %lld asks for %lld of others at clock %lld",
          one->a, one->c, one->b);
}

static void check_answer(checker *check, const line *one) {
    int32_t asker = (int32_t)one->a;
    if (!check->own.ask[one->bucket][asker].waits)
        return; /* at a meeting */
    HOLDS(one, is_due(check, one->bucket, asker), "worker %d is answered too early",
          asker);
    for (int w = 0; w < one->count; w++)
        HOLDS(one, one->in[w] == check->own.clock[one->bucket][w],
              "the answer claims clock %lld of worker %d, which is %lld", one->in[w], w,
              check->own.clock[one->bucket][w]);
    check->own.ask[one->bucket][asker].waits = 0;
    check->counts->answers++;
    check->counts->parked += one->b != 0;
}

/* By how many clocks worker w's updates are too old for iteration `clock`; 0 or less:
 * they are not. */
static long long too_old(const checker *check, const line *one, int w) {
    int mate = group_of(check, w) == group_of(check, check->rank);
    if (w == check->rank)
        return 0;
    if (!mate && check->staleness == INT64_MAX)
        return 0;
    return one->b - 1 - (mate ? 0 : check->staleness) - one->in[w];
}

static void check_stand(checker *check, const line *one) {
    int causes = 0;
    for (int w = 0; w < one->count; w++)
        causes += too_old(check, one, w) > 0;
    HOLDS(one, causes > 0, "iteration %lld waits without cause", one->b);
    check->counts->stands++;
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
    else if (strcmp(one->what, "ask") == 0)
        check_ask(check, one);
    else if (strcmp(one->what, "answer") == 0)
        check_answer(check, one);
    else if (strcmp(one->what, "stand") == 0)
        check_stand(check, one);
    else
        check_read(check, one);
}

void trace_check(const test_rig *rig, const char *path, int64_t staleness,
                 int32_t groups, trace_counts *counts) {
    *counts = (trace_counts){0};
    for (int32_t r = 0; r < rig->ranks; r++) {
        static checker check;
        char name[256], text[512];
        snprintf(name, sizeof name, "%s.%d", path, r);
        FILE *file = fopen(name, "r");
        ck_assert_msg(file != NULL, "no trace %s", name);
        check = (checker){.rig = rig,
                          .rank = r,
                          .workers = rig->ranks - rig->servers,
                          .groups = groups,
                          .staleness = staleness,
                          .counts = counts};
        for (int b = 0; b < RIG_BUCKETS_MAX; b++)
            for (int w = 0; w < SIM_RANKS_MAX; w++)
                check.own.clock[b][w] = rig->first - 1;
        line one = {.path = name};
        while (fgets(text, sizeof text, file)) {
            one.number++;
            if (text[0] == '#')
                continue;
            HOLDS(&one, parse(text, &one), "not a line of a trace: %.100s", text);
            check_line(&check, &one);
        }
        fclose(file);
    }
}
