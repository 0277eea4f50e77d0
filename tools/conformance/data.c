/* The checks of data sources: a number must stand for the same sample in any order,
 * thread, process and instance. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/data.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/decoders.h"
#include "data/samples.h"
#include "digest.h"
#include "fence.h"
#include "process.h"
#include "suite.h"

enum { FEW = 4, SOME = 24, GUARD = 64, SAMPLES_MOST = 4096, THREADS = 4 };
#define SAMPLE_BYTES_MOST ((size_t)64 << 20)

/* The open data source under test. */
typedef struct fixture {
    suite_run *run;
    const dlc_data_ops *ops;
    dlc_source *source;
    dlc_samples samples;
} fixture;

/* A copy of what a source gives for some numbers. */
typedef struct copies {
    unsigned char *bytes[SOME]; /* of the images */
    uint64_t count[SOME];
    int32_t label[SOME];
} copies;

static dlc_status open_source(suite_run *run, uint64_t seed, dlc_source **source) {
    const dlc_data_ops *ops = run->feature->ops;
    dlc_data_args args = {.size = sizeof args,
                          .settings = run->settings,
                          .seed = seed,
                          .image_endings = DLC_USUAL_ENDINGS};
    return ops->open(&args, source);
}

static void fixture_open(suite_run *run, uint64_t seed, fixture *s) {
    *s = (fixture){.run = run, .ops = run->feature->ops};
    suite_must(run, open_source(run, seed, &s->source), "open");
    suite_must(run, dlc_samples_describe(s->ops, s->source, &s->samples), "describe");
}

/* The bytes of an image; ends the check for sources whose images differ, since they
 * are read into memory from the core. */
static size_t image_bytes(const fixture *s) {
    const dlc_data_info *info = &s->samples.info;
    if (info->fields)
        suite_skip(s->run, "a source with fields does not write to memory of its own");
    size_t bytes = (size_t)dlc_shape_count(&info->shape) * dlc_dtype_bytes(info->dtype);
    if (bytes > SAMPLE_BYTES_MOST)
        suite_skip(s->run, "a sample has %zu bytes, too many for this check", bytes);
    return bytes;
}

static void read_one(const fixture *s, int64_t index, dlc_read_sample *read) {
    suite_must(s->run, dlc_samples_read(&s->samples, index, 0, NULL, read), "read");
}

/* Numbers from all over the source, one of them twice. */
static void scatter(const fixture *s, int64_t index[SOME]) {
    int64_t samples = s->samples.info.samples;
    for (int64_t i = 0; i < SOME; i++)
        index[i] = (i * 7919 + i / 3) % samples;
    index[0] = 0;
    index[1] = samples - 1;
    index[SOME - 1] = index[2];
}

/* Reads these samples, from the first or from the last. */
static void read_these(const fixture *s, const int64_t index[SOME], int backwards,
                       copies *made) {
    dlc_read_sample read = {0};
    for (int i = 0; i < SOME; i++) {
        int at = backwards ? SOME - 1 - i : i;
        read_one(s, index[at], &read);
        const dlc_value *image = &read.value[s->samples.image];
        made->label[at] = read.label;
        made->count[at] = image->bytes;
        made->bytes[at] = dlc_alloc((size_t)image->bytes + 1, 1);
        if (!made->bytes[at])
            suite_skip(s->run, "out of memory");
        memcpy(made->bytes[at], image->data, (size_t)image->bytes);
    }
    dlc_read_sample_free(&read);
}

/* Reads scattered samples. */
static void read_copies(const fixture *s, int backwards, copies *made) {
    int64_t index[SOME];
    scatter(s, index);
    read_these(s, index, backwards, made);
}

static void free_copies(copies *made) {
    for (int i = 0; i < SOME; i++)
        dlc_free(made->bytes[i]);
}

/* The place of the first of the samples that differ; -1: none. */
static int place_of_difference(const copies *a, const copies *b) {
    for (int i = 0; i < SOME; i++)
        if (a->label[i] != b->label[i] || a->count[i] != b->count[i] ||
            memcmp(a->bytes[i], b->bytes[i], (size_t)a->count[i]) != 0)
            return i;
    return -1;
}

/* Of scattered samples: the first that differs; -1: none. */
static int64_t difference(const fixture *s, const copies *a, const copies *b) {
    int64_t index[SOME];
    int place = place_of_difference(a, b);
    scatter(s, index);
    return place < 0 ? -1 : index[place];
}

/* ---- Checks ----------------------------------------------------------------- */

static void describes_itself(suite_run *run) {
    fixture a;
    dlc_samples again;
    fixture_open(run, 1, &a);
    const dlc_data_info *info = &a.samples.info;
    if (info->samples < 1)
        suite_fail(run, "it describes %lld samples", (long long)info->samples);
    if (info->shape.rank < 1 || info->shape.rank >= DLC_MAX_DIMS)
        suite_fail(run, "an image has %d dimensions", info->shape.rank);
    for (int32_t i = 0; i < info->shape.rank; i++)
        if (info->shape.dims[i] < 1 && !dlc_samples_are_encoded(&a.samples))
            suite_fail(run, "dimension %d of an image is %lld", i,
                       (long long)info->shape.dims[i]);
    if (info->dtype != DLC_U8 && info->dtype != DLC_F32)
        suite_fail(run, "images are neither DLC_U8 nor DLC_F32");
    if (info->classes < 0)
        suite_fail(run, "it describes %d classes", info->classes);
    suite_must(run, dlc_samples_describe(a.ops, a.source, &again), "describe");
    if (again.info.samples != info->samples || again.info.classes != info->classes ||
        again.info.dtype != info->dtype || again.info.shape.rank != info->shape.rank)
        suite_fail(run, "describe gives different results for one source");
}

static void labels_are_classes(suite_run *run) {
    fixture s;
    dlc_read_sample read = {0};
    fixture_open(run, 1, &s);
    const dlc_data_info *info = &s.samples.info;
    int64_t step = info->samples / SAMPLES_MOST + 1;
    for (int64_t i = 0; i < info->samples; i += step) {
        read_one(&s, i, &read);
        if (s.samples.label >= 0 && read.label < DLC_LABEL_NONE)
            suite_fail(run, "sample %lld has label %d", (long long)i, read.label);
    }
}

static void numbers_are_finite(suite_run *run) {
    fixture s;
    dlc_read_sample read = {0};
    fixture_open(run, 1, &s);
    if (s.samples.info.dtype != DLC_F32)
        suite_skip(run, "its images are bytes");
    int64_t step = s.samples.info.samples / SOME + 1;
    for (int64_t i = 0; i < s.samples.info.samples; i += step) {
        read_one(&s, i, &read);
        const dlc_value *image = &read.value[s.samples.image];
        const float *data = image->data;
        for (uint64_t j = 0; j < image->bytes / sizeof *data; j++)
            if (!isfinite(data[j]))
                suite_fail(run, "sample %lld has a number that is not finite",
                           (long long)i);
    }
}

/* The field whose values are not finite; -1: none. What a net compares with may be NaN,
 * which does not count. */
static int32_t odd_field(const fixture *s, const dlc_read_sample *read) {
    for (int32_t f = 0; f < s->samples.info.field_count; f++) {
        const float *data = read->value[f].data;
        size_t count = read->value[f].bytes / sizeof *data;
        for (size_t j = 0; j < count; j++)
            if (dlc_samples_field(&s->samples, f)->dtype == DLC_F32 &&
                !isfinite(data[j]) && (f == s->samples.image || !isnan(data[j])))
                return f;
    }
    return -1;
}

/* Reading checks that values have the shapes of their fields. */
static void fields_have_values(suite_run *run) {
    fixture s;
    dlc_read_sample read = {0};
    int64_t index[SOME];
    fixture_open(run, 1, &s);
    scatter(&s, index);
    uint32_t all = (1u << s.samples.info.field_count) - 1;
    for (int i = 0; i < SOME; i++) {
        suite_must(run, dlc_samples_read_fields(&s.samples, index[i], all, NULL, &read),
                   "read");
        int32_t odd = odd_field(&s, &read);
        if (odd >= 0)
            suite_fail(run, "field %s of sample %lld has a number that is not finite",
                       dlc_samples_field(&s.samples, odd)->name, (long long)index[i]);
    }
    dlc_read_sample_free(&read);
}

/* A sample that is read into memory which ends where that of the process does. */
typedef struct fenced_sample {
    dlc_sample sample; /* first */
    dlc_value value[DLC_FIELDS_MAX];
    suite_run *run;
    uint64_t bytes[DLC_FIELDS_MAX]; /* that were asked for */
} fenced_sample;

static void *give_fenced(dlc_sample *sample, int32_t field, uint64_t bytes) {
    fenced_sample *given = (fenced_sample *)sample;
    if (bytes > SAMPLE_BYTES_MOST)
        suite_skip(given->run, "a value has %" PRIu64 " bytes, too many for this check",
                   bytes);
    unsigned char *memory = fence(given->run, (size_t)bytes).end - bytes;
    given->bytes[field] = bytes;
    given->value[field] = (dlc_value){.data = memory, .bytes = bytes};
    return memory;
}

static void read_fenced(const fixture *s, int64_t index) {
    int32_t fields = s->samples.info.field_count;
    fenced_sample read = {.sample = {.size = sizeof read.sample,
                                     .wanted = (1u << fields) - 1,
                                     .index = index,
                                     .value = read.value,
                                     .memory = give_fenced},
                          .run = s->run};
    suite_must(s->run, s->ops->read_sample(s->source, &read.sample), "read_sample");
    for (int32_t f = 0; f < fields; f++)
        if (read.bytes[f] && read.value[f].bytes > read.bytes[f])
            suite_fail(s->run,
                       "it asks for %" PRIu64 " bytes for field %s, and says that they "
                       "are %" PRIu64,
                       read.bytes[f], dlc_samples_field(&s->samples, f)->name,
                       read.value[f].bytes);
}

/* The values of a sample are used while others are read. */
static void values_stay(suite_run *run) {
    fixture s;
    dlc_read_sample first = {0}, next = {0};
    unsigned char *copy[DLC_FIELDS_MAX];
    int64_t index[SOME];
    fixture_open(run, 1, &s);
    if (!s.samples.info.fields)
        suite_skip(run, "a source without fields gives no memory of its own");
    scatter(&s, index);
    int32_t fields = s.samples.info.field_count;
    uint32_t all = (1u << fields) - 1;
    suite_must(run, dlc_samples_read_fields(&s.samples, 0, all, NULL, &first), "read");
    for (int32_t f = 0; f < fields; f++) {
        copy[f] = dlc_alloc(first.value[f].bytes + 1, 1);
        if (!copy[f])
            suite_skip(run, "out of memory");
        memcpy(copy[f], first.value[f].data, first.value[f].bytes);
    }
    for (int i = 0; i < SOME; i++)
        suite_must(run, dlc_samples_read_fields(&s.samples, index[i], all, NULL, &next),
                   "read");
    for (int32_t f = 0; f < fields; f++)
        if (memcmp(copy[f], first.value[f].data, first.value[f].bytes) != 0)
            suite_fail(run,
                       "field %s of sample 0 changes when other samples are read: its "
                       "value is in memory that they use, too",
                       dlc_samples_field(&s.samples, f)->name);
}

static void names_end(suite_run *run) {
    enum { ROOM = 8 };
    char text[ROOM + GUARD];
    fixture s;
    fixture_open(run, 1, &s);
    if (!DLC_CAN(s.ops, name))
        suite_skip(run, "it has no names of samples");
    memset(text, 0x7e, sizeof text);
    s.ops->name(s.source, 0, text, ROOM);
    if (!memchr(text, '\0', ROOM))
        suite_fail(run, "the name of a sample does not end with a NUL");
    for (int i = 0; i < GUARD; i++)
        if (text[ROOM + i] != 0x7e)
            suite_fail(run, "name writes beyond the end of its buffer");
}

/* Neighbors, as a job without shuffling reads them. */
static void take_neighbors(const fixture *s, int64_t begin, int64_t index[SOME]) {
    for (int64_t i = 0; i < SOME; i++)
        index[i] = (begin + i) % s->samples.info.samples;
}

/* Reads samples in one order, and in the reverse one: scattered, and neighbors. */
static void order_is_free(suite_run *run) {
    fixture s;
    int64_t index[SOME];
    fixture_open(run, 1, &s);
    for (int way = 0; way < 3; way++) {
        copies forth, back;
        scatter(&s, index);
        if (way)
            take_neighbors(&s, way == 1 ? 0 : s.samples.info.samples - 2, index);
        read_these(&s, index, 0, &forth);
        read_these(&s, index, 1, &back);
        int differs = place_of_difference(&forth, &back);
        if (differs >= 0)
            suite_fail(run,
                       "sample %lld differs when samples are read in another order",
                       (long long)index[differs]);
        free_copies(&forth);
        free_copies(&back);
    }
}

/* Memory for some samples, with a guard after it. */
static unsigned char *sample_memory(const fixture *s, size_t samples) {
    unsigned char *bytes = dlc_alloc(samples * image_bytes(s) + GUARD, 1);
    if (!bytes)
        suite_skip(s->run, "out of memory");
    return bytes;
}

static void stays_in_bounds(suite_run *run) {
    fixture s;
    int64_t index[SOME];
    int32_t labels[SOME + 1];
    fixture_open(run, 1, &s);
    scatter(&s, index);
    if (s.samples.info.fields) {
        for (int i = 0; i < FEW; i++)
            read_fenced(&s, index[i]);
        return;
    }
    size_t bytes = SOME * image_bytes(&s);
    unsigned char *all = sample_memory(&s, SOME);
    memset(all + bytes, 0xa5, GUARD);
    labels[SOME] = 0x5a5a5a5a;
    suite_must(run, s.ops->read(s.source, SOME, index, all, labels), "read");
    for (size_t i = 0; i < GUARD; i++)
        if (all[bytes + i] != 0xa5)
            suite_fail(run, "read writes beyond the memory for %d samples", SOME);
    if (labels[SOME] != 0x5a5a5a5a)
        suite_fail(run, "read writes beyond the memory for %d labels", SOME);
}

/* Reads some samples at once, in which numbers occur twice, and each of them alone. */
static void several_are_single(suite_run *run) {
    fixture s;
    copies alone;
    int64_t index[SOME];
    int32_t labels[SOME];
    fixture_open(run, 1, &s);
    scatter(&s, index);
    unsigned char *all = sample_memory(&s, SOME);
    read_copies(&s, 0, &alone);
    suite_must(run, s.ops->read(s.source, SOME, index, all, labels), "read");
    for (int i = 0; i < SOME; i++, all += image_bytes(&s))
        if (labels[i] != alone.label[i] ||
            memcmp(all, alone.bytes[i], (size_t)alone.count[i]) != 0)
            suite_fail(run, "sample %lld differs when it is read with others",
                       (long long)index[i]);
}

/* Reads into memory with different contents: every byte must be overwritten. */
static void writes_whole_samples(suite_run *run) {
    fixture s;
    int64_t index = 0;
    int32_t label;
    fixture_open(run, 1, &s);
    size_t bytes = image_bytes(&s);
    unsigned char *a = sample_memory(&s, 1), *b = sample_memory(&s, 1);
    memset(a, 0x00, bytes);
    memset(b, 0xff, bytes);
    suite_must(run, s.ops->read(s.source, 1, &index, a, &label), "read");
    suite_must(run, s.ops->read(s.source, 1, &index, b, &label), "read");
    if (memcmp(a, b, bytes) != 0)
        suite_fail(run, "read does not write all bytes of a sample");
}

/* The image of a sample may begin anywhere in a batch. */
static void reads_to_any_place(suite_run *run) {
    fixture s;
    int64_t index[FEW];
    int32_t label;
    fixture_open(run, 1, &s);
    size_t bytes = image_bytes(&s), unit = dlc_dtype_bytes(s.samples.info.dtype);
    unsigned char *room = sample_memory(&s, 2), *aligned = sample_memory(&s, 1);
    for (int64_t i = 0; i < FEW; i++) {
        unsigned char *odd = room + (size_t)(i + 1) * unit;
        index[i] = i % s.samples.info.samples;
        suite_must(run, s.ops->read(s.source, 1, &index[i], aligned, &label), "read");
        suite_must(run, s.ops->read(s.source, 1, &index[i], odd, &label), "read");
        if (memcmp(odd, aligned, bytes) != 0)
            suite_fail(run,
                       "sample %lld is another one where its memory is not aligned",
                       (long long)index[i]);
    }
}

/* What a feed does with a source. */
static void read_once(void *context) {
    const fixture *s = context;
    dlc_read_sample read = {0};
    dlc_samples again;
    char name[64];
    uint32_t all = (1u << s->samples.info.field_count) - 1;
    for (int64_t i = 0; i < FEW; i++) {
        int64_t index = i * 7 % s->samples.info.samples;
        suite_must(s->run,
                   dlc_samples_read_fields(&s->samples, index, all, NULL, &read),
                   "read");
        dlc_samples_name(&s->samples, index, name, sizeof name);
    }
    dlc_read_sample_free(&read);
    suite_must(s->run, dlc_samples_describe(s->ops, s->source, &again), "describe");
}

static void keeps_nothing(suite_run *run) {
    fixture s;
    fixture_open(run, 1, &s);
    suite_repeat(run, 24, "read, name and describe", read_once, &s);
}

void suite_digest_data(suite_run *run, uint64_t *digest) {
    fixture s;
    copies made;
    fixture_open(run, 1, &s);
    read_copies(&s, 0, &made);
    for (int i = 0; i < SOME; i++) {
        suite_digest_add(digest, made.bytes[i], (size_t)made.count[i]);
        suite_digest_add(digest, &made.label[i], sizeof made.label[i]);
    }
}

static void compare(suite_run *run, const fixture *a, const fixture *b,
                    const char *what) {
    copies of_a, of_b;
    read_copies(a, 0, &of_a);
    read_copies(b, 0, &of_b);
    if (a->samples.info.samples != b->samples.info.samples ||
        difference(a, &of_a, &of_b) >= 0)
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
    copies made;
    read_copies(context, 0, &made);
    free_copies(&made);
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

/* One of several threads that read at once. */
typedef struct reading {
    const fixture *s;
    const copies *expected;
    int64_t differs; /* a sample that does; -1: none */
} reading;

/* For a while, so that threads meet in the same code on a busy machine too. */
static void *read_often(void *context) {
    reading *r = context;
    uint64_t start = dlc_now_ns();
    for (int i = 0; r->differs < 0 && dlc_since(start) < 0.5; i++) {
        copies made;
        read_copies(r->s, i % 2, &made);
        r->differs = difference(r->s, &made, r->expected);
        free_copies(&made);
    }
    return NULL;
}

static void threads_read_at_once(suite_run *run) {
    fixture s;
    copies expected;
    reading r[THREADS];
    pthread_t thread[THREADS];
    int64_t differs = -1;
    int started = 0;
    if (!(run->feature->caps & DLC_DATA_CONCURRENT))
        suite_skip(run, "it does not claim DLC_DATA_CONCURRENT");
    fixture_open(run, 1, &s);
    read_copies(&s, 0, &expected);
    for (; started < THREADS; started++) {
        r[started] = (reading){&s, &expected, -1};
        if (pthread_create(&thread[started], NULL, read_often, &r[started]) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
        differs = r[i].differs >= 0 ? r[i].differs : differs;
    }
    if (started < 2)
        suite_skip(run, "cannot start a thread");
    if (differs >= 0)
        suite_fail(run, "sample %lld differs when several threads read at once",
                   (long long)differs);
}

static void survives_a_fork(suite_run *run) {
    fixture s;
    copies before, after;
    fixture_open(run, 1, &s);
    read_copies(&s, 0, &before);
    pid_t child = suite_fork(run);
    if (child < 0)
        suite_skip(run, "cannot fork");
    if (child > 0)
        _exit(0); /* the child continues and reports the result */
    read_copies(&s, 0, &after);
    if (difference(&s, &before, &after) >= 0)
        suite_fail(run, "a source that was opened before a fork has other samples in "
                        "the child, where ranks read it");
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DATA, 0, SUITE_LOADED, 60, run }

const suite_check suite_data_checks[] = {
    CHECK("data.describe", "fields and number of samples are valid", describes_itself),
    CHECK("data.labels", "every label is one of the classes", labels_are_classes),
    CHECK("data.finite", "samples are finite numbers", numbers_are_finite),
    CHECK("data.fields", "every field has a value of its shape, of finite numbers",
          fields_have_values),
    CHECK("data.stays", "values stay as they are while others are read", values_stay),
    CHECK("data.name", "the name of a sample stays inside its buffer", names_end),
    CHECK("data.order", "samples do not depend on the order of reading", order_is_free),
    CHECK("data.bounds", "read stays inside its buffers", stays_in_bounds),
    CHECK("data.several", "samples read at once are those read alone",
          several_are_single),
    CHECK("data.place", "read writes samples to memory of any alignment",
          reads_to_any_place),
    CHECK("data.leaks", "reading uses no more memory, files and threads each time",
          keeps_nothing),
    CHECK("data.whole", "read writes every byte of a sample", writes_whole_samples),
    CHECK("data.identical", "two sources with the same settings have the same samples",
          two_are_identical),
    CHECK("data.threads", "calls may come from different threads in turn",
          any_thread_reads),
    CHECK("data.concurrent", "several threads may read at once", threads_read_at_once),
    CHECK("data.fork", "a source opened before a fork works in the child",
          survives_a_fork),
    {.name = NULL},
};
