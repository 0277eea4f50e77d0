/* The checks of decoders, with the example that each of them brings: a region has the
 * pixels of the whole picture, and damaged files are refused or decoded, but never
 * crash a decoder. */
#include <dlcore/decoder.h>

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "digest.h"
#include "fence.h"
#include "guard.h"
#include "process.h"
#include "suite.h"

enum { GUARD = GUARD_BYTES, SIDE_MOST = 4096, THREADS = 4 };

/* The example, and what the decoder says of it. */
typedef struct fixture {
    suite_run *run;
    const dlc_decoder_ops *ops;
    dlc_image_info info;
} fixture;

static void fixture_open(suite_run *run, fixture *f) {
    *f = (fixture){
        .run = run, .ops = run->feature->ops, .info = {.size = sizeof f->info}};
    suite_must(
        run, f->ops->inspect(f->ops->example, (size_t)f->ops->example_bytes, &f->info),
        "inspect of its example");
    if (f->info.width > SIDE_MOST || f->info.height > SIDE_MOST)
        suite_fail(run, "its example says that it has %d x %d pixels", f->info.width,
                   f->info.height);
}

static dlc_decode_args whole(const fixture *f, int32_t channels, int32_t shrink) {
    return (dlc_decode_args){.size = sizeof(dlc_decode_args),
                             .channels = channels,
                             .bytes = f->ops->example,
                             .count = (size_t)f->ops->example_bytes,
                             .shrink = shrink,
                             .width = (f->info.width + shrink - 1) / shrink,
                             .height = (f->info.height + shrink - 1) / shrink};
}

static size_t bytes_of(const dlc_decode_args *args) {
    return (size_t)args->width * (size_t)args->height * (size_t)args->channels;
}

/* Frees what decode returned. */
static void free_pixels(unsigned char *pixels) {
    dlc_free((void *)((uintptr_t)(pixels - GUARD) / GUARD * GUARD));
}

/* Decodes into new memory filled with `fill`, at any address, and checks that what is
 * around it is left alone. */
static unsigned char *decode(const fixture *f, const dlc_decode_args *args, int fill) {
    static size_t turn;
    size_t bytes = bytes_of(args);
    unsigned char *memory = dlc_alloc(bytes + (size_t)3 * GUARD,
                                      1); /* at a multiple of 64 */
    if (!memory)
        suite_skip(f->run, "out of memory");
    unsigned char *pixels = memory + GUARD + turn++ % 5;
    memset(pixels, fill, bytes);
    guard_fill(pixels - GUARD, 1);
    guard_fill(pixels + bytes, 2);
    suite_must(f->run, f->ops->decode(args, pixels), "decode of its example");
    if (!guard_is_whole(pixels - GUARD, 1))
        suite_fail(f->run, "decode writes before the pixels");
    if (!guard_is_whole(pixels + bytes, 2))
        suite_fail(f->run, "decode writes beyond the pixels");
    return pixels;
}

/* The example at an odd address, before memory that nobody may touch. */
static void move_file(const fixture *f, dlc_decode_args *args) {
    size_t count = (size_t)f->ops->example_bytes;
    fenced memory = fence(f->run, count + 1);
    unsigned char *bytes = memory.end - count;
    args->bytes = memcpy(bytes, f->ops->example, count);
}

/* ---- Checks ----------------------------------------------------------------- */

static void knows_its_example(suite_run *run) {
    fixture f;
    fixture_open(run, &f);
    const dlc_image_info *info = &f.info;
    if (info->width < 16 || info->height < 16)
        suite_fail(run, "its example has %d x %d pixels, not at least 16 x 16",
                   info->width, info->height);
    if (info->channels != 1 && info->channels != 3)
        suite_fail(run, "its example has %d channels, neither 1 nor 3", info->channels);
    if (info->shrink_max < 1 || (info->shrink_max & (info->shrink_max - 1)))
        suite_fail(run, "shrink_max is %d, no power of two", info->shrink_max);
    if (f.ops->matches(f.ops->example, 16) != 1)
        suite_fail(run, "matches does not know the first 16 bytes of its example");
}

static void knows_nothing_else(suite_run *run) {
    fixture f;
    unsigned char noise[16];
    fixture_open(run, &f);
    for (uint64_t i = 0; i < 1000; i++) {
        dlc_random random = dlc_random_make(i, 0);
        for (size_t b = 0; b < sizeof noise; b++)
            noise[b] = (unsigned char)dlc_random_below(&random, 256);
        if (f.ops->matches(noise, sizeof noise))
            suite_fail(run, "matches says that random bytes are of its format");
    }
    for (size_t count = 0; count < 16; count++)
        (void)f.ops->matches(f.ops->example, count);
}

static void writes_all_pixels(suite_run *run) {
    fixture f;
    fixture_open(run, &f);
    for (int32_t channels = 1; channels <= 3; channels += 2)
        for (int32_t shrink = 1; shrink <= f.info.shrink_max; shrink *= 2) {
            dlc_decode_args args = whole(&f, channels, shrink);
            unsigned char *a = decode(&f, &args, 0);
            move_file(&f, &args);
            unsigned char *b = decode(&f, &args, 255);
            if (memcmp(a, b, bytes_of(&args)) != 0)
                suite_fail(run,
                           "decode does not write all pixels of %d channels "
                           "shrunk by %d",
                           channels, shrink);
            free_pixels(a);
            free_pixels(b);
        }
}

static void compare_region(const fixture *f, const dlc_decode_args *all,
                           const unsigned char *pixels, const dlc_decode_args *part) {
    unsigned char *region = decode(f, part, 0x5a);
    size_t row = (size_t)part->width * (size_t)part->channels;
    for (int32_t y = 0; y < part->height; y++) {
        size_t at = ((size_t)(part->y + y) * (size_t)all->width + (size_t)part->x) *
                    (size_t)all->channels;
        if (memcmp(region + (size_t)y * row, pixels + at, row) != 0)
            suite_fail(f->run,
                       "row %d of the region %d x %d at %d, %d (shrunk by %d) differs "
                       "from that of the whole picture",
                       y, part->width, part->height, part->x, part->y, part->shrink);
    }
    free_pixels(region);
}

static void regions_are_parts(suite_run *run) {
    enum { TIMES = 60 };
    fixture f;
    fixture_open(run, &f);
    dlc_random random = dlc_random_make(1, 0);
    for (int32_t shrink = 1; shrink <= f.info.shrink_max; shrink *= 2) {
        dlc_decode_args all = whole(&f, f.info.channels, shrink);
        unsigned char *pixels = decode(&f, &all, 0);
        for (int i = 0; i < TIMES; i++) {
            dlc_decode_args part = all;
            part.x = (int32_t)dlc_random_below(&random, (uint64_t)all.width);
            part.y = (int32_t)dlc_random_below(&random, (uint64_t)all.height);
            part.width = 1 + (int32_t)dlc_random_below(&random,
                                                       (uint64_t)(all.width - part.x));
            part.height = 1 + (int32_t)dlc_random_below(
                                  &random, (uint64_t)(all.height - part.y));
            compare_region(&f, &all, pixels, &part);
        }
        free_pixels(pixels);
    }
}

static void grey_is_colour(suite_run *run) {
    fixture f;
    fixture_open(run, &f);
    dlc_decode_args grey = whole(&f, 1, 1), colour = whole(&f, 3, 1);
    unsigned char *one = decode(&f, &grey, 0), *three = decode(&f, &colour, 0);
    for (size_t i = 0; i < bytes_of(&grey); i++) {
        const unsigned char *pixel = three + 3 * i;
        double expected = 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
        double off = one[i] - expected;
        /* Formats that store brightness are a little off the rounded colours. */
        if (off < -3 || off > 3)
            suite_fail(run, "pixel %zu is %d in grey, but %d, %d, %d in colour", i,
                       one[i], pixel[0], pixel[1], pixel[2]);
    }
}

/* Gives the decoder a file as the core would. */
static void try_file(const fixture *f, const unsigned char *bytes, size_t count,
                     const char *how) {
    dlc_image_info info = {.size = sizeof info};
    (void)dlc_fail(DLC_OK, "%s", "");
    if (!f->ops->matches(bytes, count < 16 ? count : 16))
        return;
    dlc_status status = f->ops->inspect(bytes, count, &info);
    if (status == DLC_OK && (info.width < 1 || info.height < 1 ||
                             (info.channels != 1 && info.channels != 3)))
        suite_fail(f->run, "%s: inspect says %d x %d x %d", how, info.width,
                   info.height, info.channels);
    if (status == DLC_OK && info.width <= SIDE_MOST && info.height <= SIDE_MOST) {
        fixture other = {.run = f->run, .ops = f->ops, .info = info};
        dlc_decode_args args = whole(&other, 3, 1);
        args.bytes = bytes;
        args.count = count;
        unsigned char *pixels = dlc_alloc(bytes_of(&args), 1);
        if (!pixels)
            suite_skip(f->run, "out of memory");
        status = f->ops->decode(&args, pixels);
        dlc_free(pixels);
    }
    if (status != DLC_OK && !*dlc_detail())
        suite_fail(f->run, "%s: it fails without a detail sentence", how);
}

static void takes_cut_files(suite_run *run) {
    enum { CUTS_MOST = 1500 };
    fixture f;
    fixture_open(run, &f);
    size_t all = (size_t)f.ops->example_bytes, step = all / CUTS_MOST + 1;
    fenced memory = fence(run, all);
    for (size_t count = 0; count < all; count += step) {
        unsigned char *bytes = memory.end - count;
        memcpy(bytes, f.ops->example, count);
        try_file(&f, bytes, count, "a file that was cut short");
    }
    size_t half = all / 2;
    unsigned char *bytes = memory.end - half;
    memcpy(bytes, f.ops->example, half);
    dlc_decode_args args = whole(&f, 3, 1);
    args.bytes = bytes;
    args.count = half;
    unsigned char *pixels = dlc_alloc(bytes_of(&args), 1);
    if (!pixels)
        suite_skip(run, "out of memory");
    if (f.ops->decode(&args, pixels) == DLC_OK)
        suite_fail(run, "half of its example is decoded without an error");
    dlc_free(pixels);
}

/* Changes one bit of a byte, or all of them. */
static void damage(dlc_random *random, unsigned char *byte) {
    unsigned bits = 1u << dlc_random_below(random, 8);
    if (dlc_random_below(random, 2))
        bits = (unsigned)dlc_random_below(random, 256);
    *byte = (unsigned char)(*byte ^ bits);
}

/* Changes bytes at random, most of them near the beginning, where the sizes are. */
static void takes_damaged_files(suite_run *run) {
    enum { TIMES = 1000, CHANGES = 4 };
    fixture f;
    fixture_open(run, &f);
    size_t all = (size_t)f.ops->example_bytes;
    fenced memory = fence(run, all);
    unsigned char *bytes = memory.end - all;
    for (uint64_t i = 0; i < TIMES; i++) {
        dlc_random random = dlc_random_make(i, 1);
        memcpy(bytes, f.ops->example, all);
        uint64_t room = i % 2 ? all : all < 64 ? all : 64;
        for (int change = 0; change <= (int)(i % CHANGES); change++)
            damage(&random, &bytes[dlc_random_below(&random, room)]);
        try_file(&f, bytes, all, "a damaged file");
    }
}

/* A file that is sound, and one that ends early. */
static void decode_once(void *context) {
    const fixture *f = context;
    dlc_image_info info = {.size = sizeof info};
    dlc_decode_args args = whole(f, 3, 1);
    suite_must(f->run, f->ops->inspect(args.bytes, args.count, &info), "inspect");
    free_pixels(decode(f, &args, 0));
    try_file(f, args.bytes, args.count / 2, "a file that was cut short");
    try_file(f, args.bytes, 20, "a file that was cut short");
}

static void keeps_nothing(suite_run *run) {
    fixture f;
    fixture_open(run, &f);
    suite_repeat(run, 24, "inspect and decode", decode_once, &f);
}

void suite_digest_decoder(suite_run *run, uint64_t *digest) {
    fixture f;
    fixture_open(run, &f);
    dlc_decode_args args = whole(&f, 3, 1);
    unsigned char *pixels = decode(&f, &args, 0);
    suite_digest_add(digest, pixels, bytes_of(&args));
    if (!DLC_CAN(f.ops, encode))
        return;
    dlc_encode_args encode = {.size = sizeof encode,
                              .width = args.width,
                              .height = args.height,
                              .channels = args.channels,
                              .quality = 90,
                              .pixels = pixels};
    unsigned char *bytes = NULL;
    uint64_t count = 0;
    suite_must(run, f.ops->encode(&encode, &bytes, &count), "encode");
    suite_digest_add(digest, bytes, (size_t)count);
}

typedef struct decoding {
    const fixture *f;
    const unsigned char *expected;
    int differs;
    int is_missed; /* memory ran out */
} decoding;

static void *decode_many(void *context) {
    enum { TIMES = 50 };
    decoding *d = context;
    dlc_decode_args args = whole(d->f, 3, 1);
    unsigned char *pixels = dlc_alloc(bytes_of(&args), 1);
    d->is_missed = !pixels;
    for (int i = 0; pixels && i < TIMES; i++) {
        memset(pixels, 0, bytes_of(&args));
        d->differs |= d->f->ops->decode(&args, pixels) != DLC_OK ||
                      memcmp(pixels, d->expected, bytes_of(&args)) != 0;
    }
    dlc_free(pixels);
    return NULL;
}

static void threads_decode_at_once(suite_run *run) {
    fixture f;
    pthread_t thread[THREADS];
    decoding d[THREADS];
    int started = 0, differs = 0, missed = 0;
    fixture_open(run, &f);
    dlc_decode_args args = whole(&f, 3, 1);
    const unsigned char *expected = decode(&f, &args, 0);
    for (int i = 0; i < THREADS; i++) {
        d[i] = (decoding){.f = &f, .expected = expected};
        started += pthread_create(&thread[i], NULL, decode_many, &d[i]) == 0;
        if (started <= i)
            break;
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
        differs |= d[i].differs;
        missed |= d[i].is_missed;
    }
    if (started < 2)
        suite_skip(run, "cannot start a thread");
    if (missed)
        suite_skip(run, "out of memory");
    if (differs)
        suite_fail(run,
                   "several threads that decode at once get other pixels than one");
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DECODER, 0, SUITE_LOADED, 60, run }

const suite_check suite_decoder_checks[] = {
    CHECK("decoder.example", "the example is valid and known", knows_its_example),
    CHECK("decoder.matches", "files of other formats are not claimed",
          knows_nothing_else),
    CHECK("decoder.whole", "decode writes every pixel, and nothing else",
          writes_all_pixels),
    CHECK("decoder.regions", "a region has the pixels of the whole picture",
          regions_are_parts),
    CHECK("decoder.grey", "grey pixels are the brightness of the coloured ones",
          grey_is_colour),
    CHECK("decoder.cut", "files that end early are refused, and not read beyond",
          takes_cut_files),
    CHECK("decoder.damaged", "damaged files do not crash it", takes_damaged_files),
    CHECK("decoder.leaks", "decoding uses no more memory, files and threads each time",
          keeps_nothing),
    CHECK("decoder.threads", "several threads may decode at once",
          threads_decode_at_once),
    {.name = NULL},
};
