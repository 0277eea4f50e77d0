/* Conformance of devices: what training in 16-bit floats needs, that is sums of them,
 * the loss scale, and updates that read values and scale from memory. Compared
 * with plain loops. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "support/mirror.h"
#include "support/plugins.h"
#include "support/test.h"
#include "support/updates.h"

enum { MOST = 40007, PAD = 8 };
static const size_t sizes[] = {0, 1, 7, 33, 1000, 16384, 16385, MOST};
static const int thread_counts[] = {1, 3};

static const dlc_device_ops *ops;
static dlc_device *device;

static void setup(void) {
    ops = mirror_ops();
}

static void teardown(void) {
    plugins_close();
}

static void open_device(int threads) {
    dlc_device_args args = {.size = sizeof args, .threads = threads};
    ck_assert_int_eq(ops->open(&args, &device), DLC_OK);
}

#define FOR_ALL(n) \
    for (size_t t_ = 0; t_ < sizeof thread_counts / sizeof *thread_counts; \
         t_++, ops->close(device)) \
        if ((open_device(thread_counts[t_]), 1)) \
            for (size_t s_ = 0, n; \
                 s_ < sizeof sizes / sizeof *sizes && ((n = sizes[s_]), 1); s_++)

/* ---- add_f16 ------------------------------------------------------------- */

/* Every half up to 65504, exactly; subnormals too. */
static double of_half(uint16_t half) {
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double size = exponent ? ldexp(1024 + mantissa, exponent - 25)
                           : ldexp(mantissa, -24);
    return half & 0x8000 ? -size : size;
}

/* The nearest half, ties to even: tries all with this sign. */
static uint16_t nearest_half(double exact) {
    uint16_t sign = signbit(exact) ? 0x8000 : 0, best = sign;
    if (fabs(exact) >= 65520)
        return sign | 0x7c00;
    for (uint16_t size = 0; size < 0x7c00; size++) {
        uint16_t half = sign | size;
        double off = fabs(of_half(half) - exact), least = fabs(of_half(best) - exact);
        if (off < least || (off == least && !(half & 1)))
            best = half;
    }
    return best;
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = teardown,
              .begin = mirror_begin);

TEST(add_f16_rounds_to_nearest_even) {
    dlc_random random = dlc_random_make(3, 3);
    enum { COUNT = 600 };
    uint16_t x[COUNT], y[COUNT + 1], want[COUNT];
    int subnormal = 0, infinite = 0, inexact = 0;
    for (size_t i = 0; i < COUNT; i++) {
        /* half of them similar in magnitude, so that they cancel */
        uint16_t exponent = (uint16_t)(dlc_random_below(&random, 31) << 10);
        x[i] = (uint16_t)(exponent | dlc_random_below(&random, 0x400));
        uint16_t other = i % 2 ? exponent
                               : (uint16_t)(dlc_random_below(&random, 31) << 10);
        y[i] = (uint16_t)(other | dlc_random_below(&random, 0x400) |
                          dlc_random_below(&random, 2) << 15);
        double exact = of_half(x[i]) + of_half(y[i]);
        want[i] = exact == 0 ? 0 : nearest_half(exact);
        subnormal += fabs(exact) < 0x1p-14;
        infinite += (want[i] & 0x7fff) == 0x7c00;
        inexact += (want[i] & 0x7fff) < 0x7c00 && of_half(want[i]) != exact;
    }
    ck_assert(subnormal > 3 && infinite > 3 && inexact > 50);
    open_device(1);
    y[COUNT] = 0x1234;
    ck_assert_int_eq(ops->add_f16(device, NULL, COUNT, x, y), DLC_OK);
    for (size_t i = 0; i < COUNT; i++)
        ck_assert_msg(y[i] == want[i], "%zu: %04x + ... is %04x, not %04x", i, x[i],
                      y[i], want[i]);
    ck_assert_uint_eq(y[COUNT], 0x1234);
    ops->close(device);
}

TEST(add_f16_of_any_size) {
    uint16_t *x = malloc(MOST * sizeof *x), *y = malloc((MOST + PAD) * sizeof *y);
    FOR_ALL(n) {
        for (size_t i = 0; i < MOST; i++) {
            x[i] = 0x3c00;                  /* 1 */
            y[i] = i % 2 ? 0x4000 : 0xfe00; /* 2, NaN */
        }
        ck_assert_int_eq(ops->add_f16(device, NULL, n, x, y), DLC_OK);
        for (size_t i = 0; i < MOST; i++)
            if (i % 2)
                ck_assert_uint_eq(y[i], i < n ? 0x4200 : 0x4000);
            else
                ck_assert((y[i] & 0x7c00) == 0x7c00 && (y[i] & 0x3ff) != 0);
    }
    free(x);
    free(y);
}

/* ---- add_mean ------------------------------------------------------------ */

TEST(add_mean_is_a_weighted_mean) {
    const float pair[2] = {10, 4}, none[2] = {7, 0};
    float y = 1;
    open_device(1);
    ck_assert_int_eq(ops->add_mean(device, NULL, 0.5f, pair, &y), DLC_OK);
    ck_assert(y == 2.25f);
    ck_assert_int_eq(ops->add_mean(device, NULL, 0.5f, none, &y), DLC_OK);
    ck_assert(y == 2.25f);
    ops->close(device);
}

/* ---- update -------------------------------------------------------------- */

typedef struct state {
    float *gradient, *slots[DLC_MAX_SLOTS], *weight;
} state;

static float *make_floats(dlc_random *random) {
    float *x = malloc(MOST * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < MOST; i++)
        x[i] = dlc_random_normal(random);
    return x;
}

static state make_state(void) {
    dlc_random random = dlc_random_make(5, 6);
    state s = {.gradient = make_floats(&random), .weight = make_floats(&random)};
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        s.slots[k] = make_floats(&random);
    return s;
}

static void free_state(const state *s) {
    free(s->gradient);
    free(s->weight);
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        free(s->slots[k]);
}

static int same_state(const state *a, const state *b) {
    int same = memcmp(a->weight, b->weight, MOST * sizeof(float)) == 0;
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        same = same && memcmp(a->slots[k], b->slots[k], MOST * sizeof(float)) == 0;
    return same;
}

static void step(const state *s, size_t n, const dlc_update *update) {
    ck_assert_int_eq(
        ops->update(device, NULL, n, update, s->gradient, s->slots, s->weight), DLC_OK);
}

/* Does update a change the same as b, which changes something? */
static void check_same_update(size_t n, const dlc_update *one, const dlc_update *two) {
    state a = make_state(), b = make_state(), before = make_state();
    step(&a, n, one);
    step(&b, n, two);
    ck_assert(same_state(&a, &b));
    ck_assert(n == 0 || !same_state(&a, &before));
    free_state(&a);
    free_state(&b);
    free_state(&before);
}

/* Values and scale in memory give the same result as by value. */
TEST_EACH(update_reads_its_values, TEST_RULES) {
    const dlc_update wanted = test_update(_i);
    const dlc_loss_scale scale = {.scale = 16, .inverse = 0.0625f};
    FOR_ALL(n) {
        dlc_update update = wanted;
        update.values = (dlc_rule_values){.learning_rate = NAN};
        update.values_at = &wanted.values;
        update.loss_scale = &scale;
        update.grad_scale *= scale.scale;
        check_same_update(n, &update, &wanted);
    }
}

TEST_EACH(update_skips_an_overflow, TEST_RULES) {
    const dlc_loss_scale scale = {.scale = 16, .inverse = 0.0625f, .overflow = 1};
    FOR_ALL(n) {
        state a = make_state(), b = make_state();
        dlc_update update = test_update(_i);
        update.loss_scale = &scale;
        step(&a, n, &update);
        ck_assert(same_state(&a, &b));
        float *copies[2] = {a.weight, b.gradient};
        if (DLC_CAN(ops, update_to))
            ck_assert_int_eq(ops->update_to(device, NULL, n, &update,
                                            (const float *[]){a.gradient}, 1, a.slots,
                                            copies, 2),
                             DLC_OK);
        ck_assert(same_state(&a, &b) &&
                  memcmp(a.gradient, b.gradient, MOST * sizeof(float)) == 0);
        free_state(&a);
        free_state(&b);
    }
}

/* ---- update_loss_scale ---------------------------------------------------------- */

/* Wherever the non-finite element is, the sums of squares tell. */
TEST(update_loss_scale_finds_every_overflow) {
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    float *x = calloc(MOST + 1, sizeof *x);
    double *sums = calloc(MOST / DLC_SQUARE_PIECE + 1, sizeof *sums), square = 0;
    FOR_ALL(n) {
        size_t pieces = (n + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
        for (size_t i = 0; i <= MOST; i++)
            x[i] = i % 2 ? -3e38f : 1e-42f;
        x[n] = NAN; /* past the end: not checked */
        for (size_t k = 0; k < 31; k++) {
            size_t at = n ? (k < 10   ? k
                             : k < 20 ? n - 1 - (k - 10) % n
                                      : k * 977) %
                                n
                          : 0;
            float kept = x[at];
            int is_bad = n > 0 && k > 0;
            x[at] = is_bad ? bad[k % 3] : kept;
            dlc_loss_scale scale = {.scale = 8, .good_iterations = 1};
            ck_assert_int_eq(ops->square_sums(device, NULL, n, x, sums), DLC_OK);
            ck_assert_int_eq(ops->total(device, NULL, pieces, sums, &square), DLC_OK);
            ck_assert_int_eq(ops->update_loss_scale(device, NULL, &square, 5, &scale),
                             DLC_OK);
            ck_assert_msg(scale.overflow == is_bad, "element %zu of %zu", at, n);
            ck_assert(is_bad ||
                      (scale.good_iterations == 2 && scale.inverse == 0.125f));
            x[at] = kept;
        }
    }
    free(sums);
    free(x);
}

TEST(update_loss_scale_adapts) {
    const double good = 1, bad = INFINITY;
    dlc_loss_scale scale = {.scale = 4};
    open_device(1);
#define UPDATE(x) \
    ck_assert_int_eq(ops->update_loss_scale(device, NULL, x, 2, &scale), DLC_OK)
#define IS(scale_, inverse_, overflow_, good_, skipped_) \
    ck_assert_msg(scale.scale == (scale_) && scale.inverse == (inverse_) && \
                      scale.overflow == (overflow_) && \
                      scale.good_iterations == (good_) && scale.skipped == (skipped_), \
                  "scale %g, inverse %g, overflow %d, good %d, skipped %lld", \
                  (double)scale.scale, (double)scale.inverse, scale.overflow, \
                  scale.good_iterations, (long long)scale.skipped)
    UPDATE(&good);
    IS(4, 0.25f, 0, 1, 0);
    UPDATE(&good);
    IS(8, 0.25f, 0, 0, 0);
    UPDATE(&good);
    IS(8, 0.125f, 0, 1, 0);
    UPDATE(&bad);
    IS(4, 0.125f, 1, 0, 1);
    UPDATE(&bad);
    IS(2, 0.25f, 1, 0, 2);
    UPDATE(&bad);
    IS(1, 0.5f, 1, 0, 3);
    UPDATE(&bad); /* at the lower limit */
    IS(1, 1, 1, 0, 4);
    scale.scale = 0x1p23f;
    UPDATE(&good);
    UPDATE(&good);
    IS(0x1p24f, 0x1p-23f, 0, 0, 4);
    UPDATE(&good);
    UPDATE(&good); /* at the upper limit */
    IS(0x1p24f, 0x1p-24f, 0, 0, 4);
    ops->close(device);
}
