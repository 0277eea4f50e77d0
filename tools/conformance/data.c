/* The checks of data sources: a number must stand for the same sample in any order,
 * thread, process and instance. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/data.h>

#include "base/memory.h"
#include "base/status.h"
#include "suite.h"

enum { SOME = 24, GUARD = 64, SAMPLES_MOST = 4096 };
#define SAMPLE_BYTES_MOST ((size_t)64 << 20)

/* The open data source under test. */
typedef struct fixture {
    suite_run *run;
    const dlc_data_ops *ops;
    dlc_source *source;
    dlc_data_info info;
    size_t sample; /* bytes of one sample */
} fixture;

static dlc_status open_source(suite_run *run, uint64_t seed, dlc_source **source) {
    const dlc_data_ops *ops = run->feature->ops;
    dlc_data_args args = {.size = sizeof args, .settings = run->settings, .seed = seed};
    return ops->open(&args, source);
}

static void check_info(const fixture *s) {
    const dlc_shape *shape = &s->info.shape;
    if (s->info.samples < 1)
        suite_fail(s->run, "it describes %lld samples", (long long)s->info.samples);
    if (shape->rank < 1 || shape->rank >= DLC_MAX_DIMS)
        suite_fail(s->run, "a sample has %d dimensions", shape->rank);
    for (int32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 1)
            suite_fail(s->run, "dimension %d of a sample is %lld", i,
                       (long long)shape->dims[i]);
    if (s->info.dtype != DLC_U8 && s->info.dtype != DLC_F32)
        suite_fail(s->run, "samples are neither DLC_U8 nor DLC_F32");
    if (s->info.classes < 0)
        suite_fail(s->run, "it describes %d classes", s->info.classes);
}

static void fixture_open(suite_run *run, uint64_t seed, fixture *s) {
    *s = (fixture){.run = run, .ops = run->feature->ops};
    suite_must(run, open_source(run, seed, &s->source), "open");
    s->info.size = sizeof s->info;
    suite_must(run, s->ops->describe(s->source, &s->info), "describe");
    check_info(s);
    s->sample = (size_t)dlc_shape_count(&s->info.shape) *
                dlc_dtype_bytes(s->info.dtype);
    if (s->sample > SAMPLE_BYTES_MOST)
        suite_skip(run, "a sample has %zu bytes, too many for this check", s->sample);
}

/* Memory for some samples, with a guard after it. */
static unsigned char *sample_memory(const fixture *s, size_t samples) {
    unsigned char *bytes = dlc_alloc(samples * s->sample + GUARD, 1);
    if (!bytes)
        suite_skip(s->run, "out of memory");
    return bytes;
}

static void read_some(const fixture *s, int32_t n, const int64_t *index, void *data,
                      int32_t *labels) {
    suite_must(s->run, s->ops->read(s->source, n, index, data, labels), "read");
}

/* Numbers from all over the source, one of them twice. */
static void scatter(const fixture *s, int64_t index[SOME]) {
    for (int64_t i = 0; i < SOME; i++)
        index[i] = (i * 7919 + i / 3) % s->info.samples;
    index[0] = 0;
    index[1] = s->info.samples - 1;
    index[SOME - 1] = index[2];
}

/* ---- Checks ----------------------------------------------------------------- */

static void describes_itself(suite_run *run) {
    fixture a;
    fixture_open(run, 1, &a);
    dlc_data_info again = {.size = sizeof again};
    suite_must(run, a.ops->describe(a.source, &again), "describe");
    if (again.samples != a.info.samples || again.classes != a.info.classes ||
        again.dtype != a.info.dtype || again.shape.rank != a.info.shape.rank)
        suite_fail(run, "describe gives different results for one source");
}

static void labels_are_classes(suite_run *run) {
    fixture s;
    fixture_open(run, 1, &s);
    unsigned char *data = sample_memory(&s, 1);
    int64_t step = s.info.samples / SAMPLES_MOST + 1;
    for (int64_t i = 0; i < s.info.samples; i += step) {
        int32_t label = -1;
        read_some(&s, 1, &i, data, &label);
        if (label < 0 || (s.info.classes && label >= s.info.classes))
            suite_fail(run, "sample %lld has label %d, there are %d classes",
                       (long long)i, label, s.info.classes);
    }
}

static void numbers_are_finite(suite_run *run) {
    fixture s;
    fixture_open(run, 1, &s);
    if (s.info.dtype != DLC_F32)
        suite_skip(run, "its samples are bytes");
    float *data = (float *)(void *)sample_memory(&s, 1);
    int64_t step = s.info.samples / SOME + 1;
    for (int64_t i = 0; i < s.info.samples; i += step) {
        int32_t label;
        read_some(&s, 1, &i, data, &label);
        for (int64_t j = 0; j < dlc_shape_count(&s.info.shape); j++)
            if (!isfinite(data[j]))
                suite_fail(run, "sample %lld has a number that is not finite",
                           (long long)i);
    }
}

/* Reads the samples as a list, and one by one in reverse order. */
static void order_is_free(suite_run *run) {
    fixture s;
    int64_t index[SOME];
    int32_t labels[SOME], label;
    fixture_open(run, 1, &s);
    scatter(&s, index);
    unsigned char *all = sample_memory(&s, SOME), *one = sample_memory(&s, 1);
    read_some(&s, SOME, index, all, labels);
    for (int i = SOME - 1; i >= 0; i--) {
        read_some(&s, 1, &index[i], one, &label);
        if (label != labels[i] ||
            memcmp(one, all + (size_t)i * s.sample, s.sample) != 0)
            suite_fail(run, "sample %lld differs when it is read alone",
                       (long long)index[i]);
    }
}

static void stays_in_bounds(suite_run *run) {
    fixture s;
    int64_t index[SOME];
    int32_t labels[SOME + 1];
    fixture_open(run, 1, &s);
    scatter(&s, index);
    unsigned char *all = sample_memory(&s, SOME);
    memset(all + SOME * s.sample, 0xa5, GUARD);
    labels[SOME] = 0x5a5a5a5a;
    read_some(&s, SOME, index, all, labels);
    for (size_t i = 0; i < GUARD; i++)
        if (all[SOME * s.sample + i] != 0xa5)
            suite_fail(run, "read writes beyond the memory for %d samples", SOME);
    if (labels[SOME] != 0x5a5a5a5a)
        suite_fail(run, "read writes beyond the memory for %d labels", SOME);
}

/* Reads into memory with different contents: every byte must be overwritten. */
static void writes_whole_samples(suite_run *run) {
    fixture s;
    int64_t index = 0;
    int32_t label;
    fixture_open(run, 1, &s);
    unsigned char *a = sample_memory(&s, 1), *b = sample_memory(&s, 1);
    memset(a, 0x00, s.sample);
    memset(b, 0xff, s.sample);
    read_some(&s, 1, &index, a, &label);
    read_some(&s, 1, &index, b, &label);
    if (memcmp(a, b, s.sample) != 0)
        suite_fail(run, "read does not write all bytes of a sample");
}

static void compare(suite_run *run, const fixture *a, const fixture *b,
                    const char *what) {
    int64_t index[SOME];
    int32_t labels_a[SOME], labels_b[SOME];
    scatter(a, index);
    unsigned char *all_a = sample_memory(a, SOME), *all_b = sample_memory(b, SOME);
    read_some(a, SOME, index, all_a, labels_a);
    read_some(b, SOME, index, all_b, labels_b);
    if (a->sample != b->sample || a->info.samples != b->info.samples ||
        memcmp(labels_a, labels_b, sizeof labels_a) != 0 ||
        memcmp(all_a, all_b, SOME * a->sample) != 0)
        suite_fail(run, "%s", what);
}

static void two_are_identical(suite_run *run) {
    fixture a, b;
    fixture_open(run, 5, &a);
    fixture_open(run, 5, &b);
    compare(run, &a, &b,
            "two sources with the same settings have different samples, so ranks would "
            "train on different data");
    a.ops->close(a.source);
    compare(run, &b, &b, "a source changes when another one is closed");
}

static void *read_elsewhere(void *context) {
    fixture *s = context;
    int64_t index[SOME];
    int32_t labels[SOME];
    scatter(s, index);
    read_some(s, SOME, index, sample_memory(s, SOME), labels);
    return NULL;
}

static void any_thread_reads(suite_run *run) {
    fixture s;
    fixture_open(run, 1, &s);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, read_elsewhere, &s) != 0)
            suite_skip(run, "cannot start a thread");
        (void)pthread_join(thread, NULL);
    }
    s.ops->close(s.source);
}

static void survives_a_fork(suite_run *run) {
    fixture s;
    fixture_open(run, 1, &s);
    int64_t index[SOME];
    int32_t labels[SOME], again[SOME];
    scatter(&s, index);
    unsigned char *before = sample_memory(&s, SOME), *after = sample_memory(&s, SOME);
    read_some(&s, SOME, index, before, labels);
    pid_t child = fork();
    if (child < 0)
        suite_skip(run, "cannot fork");
    if (child > 0)
        _exit(0); /* the child continues and reports the result */
    read_some(&s, SOME, index, after, again);
    if (memcmp(before, after, SOME * s.sample) != 0 ||
        memcmp(labels, again, sizeof labels) != 0)
        suite_fail(run, "a source that was opened before a fork has other samples in "
                        "the child, where ranks read it");
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DATA, 0, SUITE_LOADED, 60, run }

const suite_check suite_data_checks[] = {
    CHECK("data.describe", "shape, type and number of samples are valid",
          describes_itself),
    CHECK("data.labels", "every label is one of the classes", labels_are_classes),
    CHECK("data.finite", "samples are finite numbers", numbers_are_finite),
    CHECK("data.order", "samples do not depend on the order of reading", order_is_free),
    CHECK("data.bounds", "read stays inside its buffers", stays_in_bounds),
    CHECK("data.whole", "read writes every byte of a sample", writes_whole_samples),
    CHECK("data.identical", "two sources with the same settings have the same samples",
          two_are_identical),
    CHECK("data.threads", "calls may come from different threads in turn",
          any_thread_reads),
    CHECK("data.fork", "a source opened before a fork works in the child",
          survives_a_fork),
    {.name = NULL},
};
