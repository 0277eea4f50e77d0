/* The checks of decoders that also encode: a file has the pixels that it was made of,
 * and is the same for the same pixels, on any thread. */
#include <dlcore/decoder.h>

#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "fence.h"
#include "host.h"
#include "suite.h"

/* The best quality, and how far from a smooth picture a value of it may be then
 * (<dlcore/decoder.h>). */
enum { QUALITY_MOST = 100, OFF_MOST = 6 };
enum { THREADS = 4, MATCHED = 16 };

typedef struct fixture {
    suite_run *run;
    const dlc_decoder_ops *ops;
    int is_lossless;
} fixture;

/* A file that was encoded. */
typedef struct file {
    unsigned char *bytes; /* of the host; freed by file_free */
    uint64_t count;
} file;

static void fixture_open(suite_run *run, fixture *f) {
    *f = (fixture){.run = run,
                   .ops = run->feature->ops,
                   .is_lossless = (run->feature->caps & DLC_DECODER_LOSSLESS) != 0};
    if (DLC_CAN(f->ops, encode))
        return;
    if (f->is_lossless)
        suite_fail(run, "it has DLC_DECODER_LOSSLESS, which is about encode, but no "
                        "encode");
    suite_skip(run, "it does not encode");
}

/* ---- Pictures ---------------------------------------------------------------- */

static size_t bytes_of(const dlc_encode_args *of) {
    return (size_t)of->width * (size_t)of->height * (size_t)of->channels;
}

/* Values of which neighbors differ by 3 at most, in each channel in another direction.
 */
static unsigned char smooth(const dlc_encode_args *of, size_t at) {
    size_t channel = at % (size_t)of->channels, pixel = at / (size_t)of->channels;
    size_t x = pixel % (size_t)of->width, y = pixel / (size_t)of->width;
    size_t value = channel == 0 ? 40 + 3 * x : channel == 1 ? 40 + 3 * y : 220 - x - y;
    return (unsigned char)value;
}

/* A picture that may only be read, before memory that may not be touched. */
static dlc_encode_args paint(const fixture *f, int32_t width, int32_t height,
                             int32_t channels, int is_smooth) {
    dlc_encode_args made = {.size = sizeof made,
                            .width = width,
                            .height = height,
                            .channels = channels,
                            .quality = QUALITY_MOST};
    dlc_random random = dlc_random_make(3, (uint64_t)width);
    fenced memory = fence(f->run, bytes_of(&made));
    unsigned char *pixels = memory.end - bytes_of(&made);
    for (size_t i = 0; i < bytes_of(&made); i++)
        pixels[i] = is_smooth ? smooth(&made, i)
                              : (unsigned char)dlc_random_below(&random, 256);
    fence_lock(f->run, &memory);
    made.pixels = pixels;
    return made;
}

/* ---- Files ------------------------------------------------------------------- */

static void file_free(file *of) {
    suite_host_free(of->bytes);
    *of = (file){NULL, 0};
}

static file encode(const fixture *f, const dlc_encode_args *args) {
    file made = {NULL, 0};
    suite_must(f->run, f->ops->encode(args, &made.bytes, &made.count), "encode");
    if (!made.bytes || !made.count)
        suite_fail(f->run, "encode succeeds, but gives no file");
    size_t bytes = suite_host_size(made.bytes);
    if (!bytes)
        suite_fail(f->run, "the memory of a file is not of dlc_host.alloc");
    if (bytes < made.count)
        suite_fail(f->run,
                   "encode gives %zu bytes of memory, and says that the file "
                   "has %llu",
                   bytes, (unsigned long long)made.count);
    return made;
}

static int is_same(const file *one, const file *other) {
    return one->count == other->count &&
           memcmp(one->bytes, other->bytes, one->count) == 0;
}

/* ---- Checks ------------------------------------------------------------------ */

/* The largest difference of a value of the file from the picture. */
static int distance(const fixture *f, const file *from, const dlc_encode_args *of) {
    dlc_decode_args args = {.size = sizeof args,
                            .channels = of->channels,
                            .bytes = from->bytes,
                            .count = (size_t)from->count,
                            .shrink = 1,
                            .width = of->width,
                            .height = of->height};
    unsigned char *pixels = dlc_alloc(bytes_of(of), 1);
    int most = 0;
    if (!pixels)
        suite_skip(f->run, "out of memory");
    suite_must(f->run, f->ops->decode(&args, pixels), "decode of what it has encoded");
    for (size_t i = 0; i < bytes_of(of); i++) {
        int off = pixels[i] - of->pixels[i];
        off = off < 0 ? -off : off;
        most = off > most ? off : most;
    }
    dlc_free(pixels);
    return most;
}

static void compare(const fixture *f, const dlc_encode_args *args) {
    dlc_image_info info = {.size = sizeof info};
    file made = encode(f, args);
    size_t first = made.count < MATCHED ? (size_t)made.count : MATCHED;
    if (f->ops->matches(made.bytes, first) != 1)
        suite_fail(f->run, "matches does not know a file that encode has made");
    suite_must(f->run, f->ops->inspect(made.bytes, (size_t)made.count, &info),
               "inspect of what it has encoded");
    if (info.width != args->width || info.height != args->height)
        suite_fail(f->run, "a picture of %d x %d pixels is %d x %d in the file",
                   args->width, args->height, info.width, info.height);
    int off = distance(f, &made, args), most = f->is_lossless ? 0 : OFF_MOST;
    if (off > most)
        suite_fail(f->run,
                   "a value of a picture of %d x %d pixels and %d channels is off by "
                   "%d in the file; %d is allowed %s",
                   args->width, args->height, args->channels, off, most,
                   f->is_lossless ? "in a lossless format" : "at the best quality");
    file_free(&made);
}

/* Sizes that are odd, or 1, or not those of blocks. */
static void keeps_pixels(suite_run *run) {
    static const int32_t sizes[][2] = {{1, 1}, {1, 9},   {7, 1},
                                       {2, 2}, {17, 33}, {64, 48}};
    fixture f;
    fixture_open(run, &f);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int32_t channels = 1; channels <= 3; channels += 2)
            for (int is_smooth = !f.is_lossless; is_smooth <= 1; is_smooth++) {
                dlc_encode_args args = paint(&f, sizes[i][0], sizes[i][1], channels,
                                             is_smooth);
                compare(&f, &args);
            }
}

static void repeats_itself(suite_run *run) {
    enum { TIMES = 8 };
    fixture f;
    fixture_open(run, &f);
    dlc_encode_args args = paint(&f, 61, 43, 3, 0);
    file first = encode(&f, &args);
    int64_t before = suite_host_allocations();
    for (int i = 0; i < TIMES; i++) {
        file again = encode(&f, &args);
        if (!is_same(&first, &again))
            suite_fail(run, "the same pixels give another file the next time");
        file_free(&again);
    }
    if (suite_host_allocations() > before)
        suite_fail(run, "%d files leak %lld allocations", TIMES,
                   (long long)(suite_host_allocations() - before));
}

static void must_be_as(const fixture *f, dlc_encode_args args, int32_t quality,
                       const file *expected) {
    args.quality = quality;
    file made = encode(f, &args);
    if (!is_same(&made, expected))
        suite_fail(f->run, "quality %d does not count as the nearest of 1 to 100",
                   quality);
    file_free(&made);
}

static void takes_any_quality(suite_run *run) {
    fixture f;
    fixture_open(run, &f);
    dlc_encode_args args = paint(&f, 61, 43, 3, 0);
    file best = encode(&f, &args);
    args.quality = 1;
    file worst = encode(&f, &args);
    if (worst.count > best.count)
        suite_fail(run, "a file of quality 1 is larger than one of quality 100");
    if (f.is_lossless && !is_same(&worst, &best))
        suite_fail(run, "it is a lossless format, but a quality changes the file");
    must_be_as(&f, args, 0, &worst);
    must_be_as(&f, args, INT32_MIN, &worst);
    must_be_as(&f, args, QUALITY_MOST + 1, &best);
    must_be_as(&f, args, INT32_MAX, &best);
    file_free(&best);
    file_free(&worst);
}

/* Encodes while allocation n fails; returns 0 if there were not so many. */
static int encode_without(const fixture *f, const dlc_encode_args *args, int64_t n,
                          const file *expected) {
    int64_t before = suite_host_allocations();
    file made = {NULL, 0};
    (void)dlc_fail(DLC_OK, "%s", "");
    suite_host_fail_allocation(n);
    dlc_status status = f->ops->encode(args, &made.bytes, &made.count);
    int failed = suite_host_has_failed();
    suite_host_fail_allocation(0);
    if (status == DLC_OK) {
        if (!is_same(&made, expected))
            suite_fail(f->run, "encode makes another file when allocation %lld fails",
                       (long long)n);
        file_free(&made);
        return failed;
    }
    if (status != DLC_ERR_NOMEM || !*dlc_detail())
        suite_fail(f->run,
                   "encode fails without DLC_ERR_NOMEM and a detail sentence when "
                   "allocation %lld fails",
                   (long long)n);
    if (made.bytes || made.count)
        suite_fail(f->run, "encode gives memory although it fails");
    if (suite_host_allocations() > before)
        suite_fail(f->run, "encode fails at allocation %lld and leaks %lld allocations",
                   (long long)n, (long long)(suite_host_allocations() - before));
    return 1;
}

static void goes_without_memory(suite_run *run) {
    enum { MOST = 400 };
    fixture f;
    fixture_open(run, &f);
    dlc_encode_args args = paint(&f, 61, 43, 3, 0);
    file expected = encode(&f, &args);
    for (int64_t n = 1; n <= MOST && encode_without(&f, &args, n, &expected); n++)
        ;
    file again = encode(&f, &args);
    if (!is_same(&again, &expected))
        suite_fail(run, "encode makes another file after allocations had failed");
    file_free(&again);
    file_free(&expected);
}

typedef struct encoding {
    const fixture *f;
    const dlc_encode_args *args;
    const file *expected;
    int differs;
} encoding;

static void *encode_many(void *context) {
    enum { TIMES = 50 };
    encoding *e = context;
    for (int i = 0; i < TIMES; i++) {
        file made = {NULL, 0};
        e->differs |= e->f->ops->encode(e->args, &made.bytes, &made.count) != DLC_OK ||
                      !is_same(&made, e->expected);
        file_free(&made);
    }
    return NULL;
}

static void threads_encode_at_once(suite_run *run) {
    fixture f;
    pthread_t thread[THREADS];
    encoding e[THREADS];
    int started = 0, differs = 0;
    fixture_open(run, &f);
    dlc_encode_args args = paint(&f, 61, 43, 3, 0);
    file expected = encode(&f, &args);
    for (int i = 0; i < THREADS && started == i; i++) {
        e[i] = (encoding){.f = &f, .args = &args, .expected = &expected};
        started += pthread_create(&thread[i], NULL, encode_many, &e[i]) == 0;
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
        differs |= e[i].differs;
    }
    if (started < 2)
        suite_skip(run, "cannot start a thread");
    if (differs)
        suite_fail(run, "several threads that encode at once get other files than one");
    file_free(&expected);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DECODER, 0, SUITE_LOADED, 60, run }

const suite_check suite_encoder_checks[] = {
    CHECK("encoder.pixels", "a file has the pixels that it was made of", keeps_pixels),
    CHECK("encoder.repeats", "the same pixels give the same file, and nothing leaks",
          repeats_itself),
    CHECK("encoder.quality", "a quality beyond 1 to 100 counts as the nearest",
          takes_any_quality),
    CHECK("encoder.no_memory", "encoding survives the failure of each allocation",
          goes_without_memory),
    CHECK("encoder.threads", "several threads may encode at once",
          threads_encode_at_once),
    {.name = NULL},
};
