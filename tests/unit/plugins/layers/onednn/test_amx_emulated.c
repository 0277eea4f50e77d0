/* The emulation of AMX's tiles computes the same bits as the instructions, for numbers
 * of all sizes, so that tests on any CPU say what the instructions would do. */
#include <cpuid.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "amx.h"
#include "base/random.h"
#include "support/test.h"

static int tiles_are_here(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 }; /* of leaf 7 */
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* ---- Numbers -------------------------------------------------------------------- */

enum { ORDINARY, ALL_SIZES, TINY, SPECIAL, KINDS };

static const char *const names[KINDS] = {"ordinary", "all sizes", "tiny", "special"};

static float from_bits(uint32_t number) {
    float value;
    memcpy(&value, &number, sizeof value);
    return value;
}

/* Of all sizes: products that overflow or vanish. Tiny: sums near the smallest normal
 * number. Special: subnormal numbers (none that rounding to bfloat16 makes normal),
 * infinity, and NaN. */
static float number_of(dlc_random *random, int kind) {
    const uint32_t any = (uint32_t)dlc_random_below(random, 1ull << 32);
    const uint64_t lot = dlc_random_below(random, 200);
    if (kind == SPECIAL && lot < 8)
        return from_bits(any & 0x807effffu);
    if (kind == SPECIAL && lot < 10)
        return lot & 1 ? INFINITY : -INFINITY;
    if (kind == SPECIAL && lot == 10)
        return NAN;
    if (kind == ALL_SIZES)
        return from_bits((any & 0x807fffffu) | (uint32_t)(lot + 28) << 23);
    /* Exponents of a few numbers around 1, or around the root of the smallest. */
    const uint32_t exponent = kind == TINY ? 60 + (uint32_t)lot % 8
                                           : 125 + (uint32_t)lot % 4;
    return from_bits((any & 0x807fffffu) | exponent << 23);
}

static float *floats(size_t count, int kind, uint64_t salt) {
    dlc_random random = dlc_random_make(salt, (uint64_t)kind);
    float *numbers = aligned_alloc(64, (count * sizeof *numbers + 63) / 64 * 64);
    ck_assert_ptr_nonnull(numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = number_of(&random, kind);
    return numbers;
}

static bf16 *halves_of(size_t count, int kind, uint64_t salt) {
    float *numbers = floats(count, kind, salt);
    bf16 *halves = aligned_alloc(64, (count * sizeof *halves + 63) / 64 * 64);
    ck_assert_ptr_nonnull(halves);
    for (size_t i = 0; i < count; i++) {
        uint32_t number;
        memcpy(&number, &numbers[i], sizeof number);
        halves[i] = (bf16)(number >> 16);
    }
    free(numbers);
    return halves;
}

/* ---- Both implementations ------------------------------------------------------- */

/* Strides, paddings, groups, images and matrices, parts of channels, and sums that are
 * cut into parts. */
static const amx_conv shapes[] = {
    {2, 2, 1, 3, {9, 8}, 20, {9, 8}, {5, 5}, 1, {2, 2}},
    {2, 1, 1, 3, {23, 19}, 33, {4, 3}, {11, 11}, 4, {0, 0}},
    {2, 3, 1, 33, {7, 5}, 40, {4, 3}, {3, 3}, 2, {1, 1}},
    {2, 2, 2, 48, {6, 7}, 34, {6, 7}, {3, 3}, 1, {1, 1}},
    {2, 3, 1, 70, {5, 4}, 37, {5, 4}, {1, 1}, 1, {0, 0}},
    {2, 1, 1, 384, {4, 4}, 33, {4, 4}, {3, 3}, 1, {1, 1}},
    {2, 2, 1, 800, {3, 3}, 45, {3, 3}, {1, 1}, 1, {0, 0}},
    {1, 40, 1, 40, {6, 6}, 33, {6, 6}, {3, 3}, 1, {1, 1}},
    {2, 3, 1, 500, {1, 1}, 70, {1, 1}, {1, 1}, 1, {0, 0}},
    {2, 45, 1, 100, {1, 1}, 10, {1, 1}, {1, 1}, 1, {0, 0}},
};

typedef struct results {
    bf16 *out, *in_diff;
    float *weights_diff, *bias_diff;
} results;

typedef struct sizes {
    size_t in, out, weights;
} sizes;

static sizes sizes_of(const amx_conv *c) {
    return (sizes){
        .in = c->batch * c->in[0] * c->in[1] * c->in_channels,
        .out = c->batch * c->out[0] * c->out[1] * c->out_channels,
        .weights = c->out_channels * c->kernel[0] * c->kernel[1] * c->in_channels /
                   c->group,
    };
}

static results compute(const amx_kernels *kernels, const amx_conv *c, int kind) {
    const sizes n = sizes_of(c);
    const bounds leaky = {.low = 0, .high = INFINITY, .slope = 0.3f};
    const int add = kind == ORDINARY || kind == SPECIAL;
    results r = {halves_of(n.out, ORDINARY, 5), halves_of(n.in, kind, 6),
                 floats(n.weights, ORDINARY, 7), floats(c->out_channels, ORDINARY, 8)};
    bf16 *in = halves_of(n.in, kind, 1), *out_diff = halves_of(n.out, kind, 2);
    float *weights = floats(n.weights, kind, 3);
    float *bias = floats(c->out_channels, kind, 4);
    const size_t bytes = (kernels->space_bytes(c, 1) + 63) / 64 * 64;
    void *space = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(space);
    memset(space, 0xff, bytes);
    kernels->forward(c, in, weights, bias, &leaky, r.out, space);
    memset(space, 0xff, bytes);
    kernels->backward_data(c, out_diff, weights, add, r.in_diff, space);
    memset(space, 0xff, bytes);
    kernels->backward_weights(c, in, out_diff, r.weights_diff, r.bias_diff, space);
    free(in);
    free(out_diff);
    free(weights);
    free(bias);
    free(space);
    return r;
}

static void results_free(results *r) {
    free(r->out);
    free(r->in_diff);
    free(r->weights_diff);
    free(r->bias_diff);
}

/* Any NaN equals another. Rounding to bfloat16 makes subnormal numbers zero where the
 * CPU has an instruction for it. */
static void check_same(const char *what, int kind, const void *a, const void *b,
                       size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        uint32_t x = 0, y = 0;
        memcpy(&x, (const char *)a + i * size, size);
        memcpy(&y, (const char *)b + i * size, size);
        if (size == sizeof(bf16)) {
            x <<= 16;
            y <<= 16;
            x = x & 0x7f800000u ? x : x & 0x80000000u;
            y = y & 0x7f800000u ? y : y & 0x80000000u;
        }
        if (x != y && !(isnan(from_bits(x)) && isnan(from_bits(y))))
            ck_abort_msg("%s numbers: %s %zu is %.9g (%08x) by tiles, %.9g (%08x) "
                         "emulated",
                         names[kind], what, i, (double)from_bits(x), x,
                         (double)from_bits(y), y);
    }
}

static int begin(int argc, char **argv) {
    (void)argc, (void)argv;
    return tiles_are_here() ? TESTS_RUN : tests_skip("this CPU has no AMX");
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

TEST_EACH(same_bits, COUNT(shapes)) {
    const amx_conv *c = &shapes[_i];
    const sizes n = sizes_of(c);
    for (int kind = 0; kind < KINDS_TESTED; kind++) {
        results a = compute(&amx_tiles, c, kind);
        results b = compute(&amx_emulated, c, kind);
        check_same("output", kind, a.out, b.out, n.out, sizeof(bf16));
        check_same("gradient of input", kind, a.in_diff, b.in_diff, n.in, sizeof(bf16));
        check_same("gradient of weight", kind, a.weights_diff, b.weights_diff,
                   n.weights, sizeof(float));
        check_same("gradient of bias", kind, a.bias_diff, b.bias_diff, c->out_channels,
                   sizeof(float));
        results_free(&a);
        results_free(&b);
    }
}

TEST_EACH(same_space, COUNT(shapes)) {
    const amx_conv *c = &shapes[_i];
    for (int training = 0; training < 2; training++)
        ck_assert_uint_eq(amx_tiles.space_bytes(c, training),
                          amx_emulated.space_bytes(c, training));
}
