/* Conformance of devices: every kernel compared with plain loops, for odd sizes and
 * unaligned pointers; nothing is written outside, and results don't depend on the
 * number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "support/mirror.h"
#include "support/plugins.h"
#include "support/test.h"
#include "support/updates.h"

/* Sizes around the limits of vectors, blocks and threads. */
static const size_t sizes[] = {0,     1,     2,     3,     7,     8,     15,
                               16,    17,    31,    33,    63,    64,    65,
                               255,   1000,  1023,  1024,  1025,  4095,  4097,
                               16383, 16384, 16385, 20000, 65536, 100003};
enum { SIZES = sizeof sizes / sizeof *sizes, MOST = 100003, PAD = 32 };
static const int thread_counts[] = {1, 3};

static const dlc_device_ops *ops;
static dlc_device *device;
static float *a, *b, *c, *want, *got;

static float *room(void) {
    float *floats = calloc(MOST + 2 * PAD, sizeof(float));
    ck_assert_ptr_nonnull(floats);
    return floats;
}

static void open_device(int threads) {
    dlc_device_args args = {.size = sizeof args, .threads = threads};
    ck_assert_int_eq(ops->open(&args, &device), DLC_OK);
}

static void setup(void) {
    dlc_random random = dlc_random_make(1, 2);
    ops = mirror_ops();
    a = room();
    b = room();
    c = room();
    want = room();
    got = room();
    for (size_t i = 0; i < MOST + 2 * PAD; i++) {
        a[i] = dlc_random_normal(&random);
        b[i] = dlc_random_normal(&random);
        c[i] = dlc_random_normal(&random);
    }
}

static void teardown(void) {
    free(a);
    free(b);
    free(c);
    free(want);
    free(got);
    plugins_close();
}

/* Runs `body` for each size, each number of threads, and offsets 0 .. 2. */
#define FOR_ALL(n, at) \
    for (size_t t_ = 0; t_ < sizeof thread_counts / sizeof *thread_counts; \
         t_++, ops->close(device)) \
        if ((open_device(thread_counts[t_]), 1)) \
            for (size_t s_ = 0; s_ < SIZES; s_++) \
                for (size_t n = sizes[s_], at = PAD; at < PAD + 3; at++)

static void same_bits(const char *what, size_t n, size_t at) {
    if (memcmp(want, got, (MOST + 2 * PAD) * sizeof(float)) == 0)
        return;
    for (size_t i = 0; i < MOST + 2 * PAD; i++)
        if (memcmp(&want[i], &got[i], sizeof(float)) != 0)
            ck_abort_msg("%s of %zu at %zu: element %zd is %a, not %a", what, n, at,
                         (ssize_t)i - (ssize_t)at, (double)got[i], (double)want[i]);
}

static void start_from(const float *from) {
    memcpy(want, from, (MOST + 2 * PAD) * sizeof(float));
    memcpy(got, from, (MOST + 2 * PAD) * sizeof(float));
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = teardown,
              .begin = mirror_begin);

TEST(scale_is_a_product) {
    FOR_ALL(n, at) {
        start_from(a);
        for (size_t i = at; i < at + n; i++)
            want[i] = want[i] * 0.7f;
        ck_assert_int_eq(ops->scale(device, NULL, n, 0.7f, got + at), DLC_OK);
        same_bits("scale", n, at);
    }
}

TEST(add_is_a_sum) {
    FOR_ALL(n, at) {
        start_from(a);
        for (size_t i = at; i < at + n; i++)
            want[i] = want[i] + b[i + 1];
        ck_assert_int_eq(ops->add(device, NULL, n, b + at + 1, got + at), DLC_OK);
        same_bits("add", n, at);
    }
}

static float of_half(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The half nearest to an exact sum, ties to even: tries all halves near the truncated
 * one. */
static uint16_t nearest_half(double exact) {
    float cut = (float)exact;
    uint32_t bits;
    memcpy(&bits, &cut, sizeof bits);
    uint16_t best = (uint16_t)(bits >> 16);
    for (int step = -1; step <= 1; step++) {
        uint16_t half = (uint16_t)((bits >> 16) + (uint32_t)step);
        double off = fabs((double)of_half(half) - exact);
        double least = fabs((double)of_half(best) - exact);
        if (off < least || (off == least && !(half & 1)))
            best = half;
    }
    return best;
}

/* Halves with 8 bits of mantissa and similar exponents: float32 holds their sum
 * exactly, so there is only one rounding. */
TEST(add_bf16_rounds_to_nearest_even) {
    uint16_t *x = (uint16_t *)b, *y = (uint16_t *)got, *sum = (uint16_t *)want;
    dlc_random random = dlc_random_make(7, 7);
    int ties = 0;
    FOR_ALL(n, at) {
        start_from(a);
        for (size_t i = at; i < at + n; i++) {
            x[i + 1] = (uint16_t)(0x3e00 + dlc_random_below(&random, 0x400));
            y[i] = (uint16_t)(0x3e00 + dlc_random_below(&random, 0x400));
            y[i] |= (uint16_t)(dlc_random_below(&random, 2) << 15);
            double exact = (double)of_half(x[i + 1]) + (double)of_half(y[i]);
            sum[i] = exact != 0 ? nearest_half(exact) : 0;
            ties += fabs(exact) > 2 && fmod(fabs(exact), 0x1p-6) == 0x1p-7;
        }
        ck_assert_int_eq(ops->add_bf16(device, NULL, n, x + at + 1, y + at), DLC_OK);
        same_bits("add_bf16", n, at);
    }
    ck_assert_int_gt(ties, 1000);
}

TEST(add_bf16_at_the_ends) {
    static const struct {
        uint16_t x, y, sum;
    } rows[] = {
        {0x7f80, 0x3f80, 0x7f80}, /* infinity and 1 */
        {0x7f7f, 0x7f7f, 0x7f80}, /* the largest twice */
        {0xff80, 0x0000, 0xff80}, /* -infinity */
        {0x8000, 0x8000, 0x8000}, /* -0 */
        {0x0001, 0x0001, 0x0002}, /* denormals */
        {0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8: a tie, rounds to even */
        {0x3f81, 0x3b80, 0x3f82},
    };
    open_device(1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t y = rows[i].y;
        ck_assert_int_eq(ops->add_bf16(device, NULL, 1, &rows[i].x, &y), DLC_OK);
        ck_assert_msg(y == rows[i].sum, "row %zu: %04x", i, y);
    }
    uint16_t x = 0x7f81, nan = 0x3f80, less = 0xff80;
    ck_assert_int_eq(ops->add_bf16(device, NULL, 1, &x, &nan), DLC_OK);
    ck_assert(isnan(of_half(nan)));
    x = 0x7f80; /* infinity minus infinity */
    ck_assert_int_eq(ops->add_bf16(device, NULL, 1, &x, &less), DLC_OK);
    ck_assert(isnan(of_half(less)));
    ops->close(device);
}

/* Two roundings, never a fused multiply-add: the same on every CPU. */
TEST(axpy_rounds_twice) {
    FOR_ALL(n, at) {
        start_from(a);
        for (size_t i = at; i < at + n; i++) {
            volatile float product = -1.3f * b[i];
            want[i] = want[i] + product;
        }
        ck_assert_int_eq(ops->axpy(device, NULL, n, -1.3f, b + at, got + at), DLC_OK);
        same_bits("axpy", n, at);
    }
}

/* The order of dlc_device_ops.sum. */
static float pairwise(const float *const *sources, int32_t count, size_t i) {
    float s[32];
    for (int32_t k = 0; k < count; k++)
        s[k] = sources[k][i];
    for (int32_t stride = 1; stride < count; stride *= 2)
        for (int32_t k = 0; k + stride < count; k += 2 * stride)
            s[k] += s[k + stride];
    return s[0];
}

TEST(sum_is_pairwise) {
    enum { MAX = 19 };
    const float *sources[MAX];
    dlc_random random = dlc_random_make(5, 5);
    open_device(2);
    for (int32_t count = 1; count <= MAX; count++) {
        for (size_t s = 0; s < SIZES; s++) {
            size_t n = sizes[s];
            if (n > 20000)
                continue;
            for (int32_t k = 0; k < count; k++)
                sources[k] = (k % 2 ? b : a) + dlc_random_below(&random, 30000);
            start_from(c);
            for (size_t i = 0; i < n; i++)
                want[PAD + i] = pairwise(sources, count, i);
            ck_assert_int_eq(ops->sum(device, NULL, n, sources, count, got + PAD),
                             DLC_OK);
            same_bits("sum", n, PAD);
        }
    }
    ops->close(device);
}

TEST(sum_into_a_source) {
    const float *sources[13];
    open_device(2);
    for (int32_t count = 1; count <= 13; count++)
        for (int32_t target = 0; target < count; target++) {
            size_t n = count % 2 ? 3001 : 20001;
            start_from(c);
            for (int32_t k = 0; k < count; k++)
                sources[k] = k == target ? got + PAD : (k % 2 ? a : b) + 11 * k;
            for (size_t i = 0; i < n; i++) {
                want[PAD + i] = pairwise(sources, count, i);
            }
            ck_assert_int_eq(ops->sum(device, NULL, n, sources, count, got + PAD),
                             DLC_OK);
            same_bits("sum in place", n, PAD);
        }
    ops->close(device);
}

/* Destinations: all of its sources, some of them, others, and one of them twice. */
TEST(sum_to_several) {
    enum { MAX = 9 };
    static float room_of[MAX][20001 + 2 * PAD], expected[20001 + 2 * PAD];
    const float *sources[MAX];
    float *dsts[MAX + 1];
    open_device(2);
    for (int32_t count = 1; count <= MAX; count++)
        for (int32_t targets = 1; targets <= MAX + 1; targets++) {
            size_t n = count == 2 ? 20001 : 1029, at = PAD + (size_t)targets % 3;
            for (int32_t k = 0; k < MAX; k++) {
                memcpy(room_of[k], k % 2 ? a + k : b + k, sizeof room_of[k]);
                sources[k] = room_of[k] + at;
                dsts[(k + count) % (MAX + 1)] = room_of[k] + at;
            }
            dsts[(MAX + count) % (MAX + 1)] = room_of[0] + at;
            start_from(c);
            for (size_t i = 0; i < n; i++)
                want[at + i] = pairwise(sources, count, i);
            ck_assert_int_eq(
                ops->sum_to(device, NULL, n, sources, count, dsts, targets), DLC_OK);
            for (int32_t k = 0; k < MAX; k++) {
                int is_target = 0;
                for (int32_t i = 0; i < targets; i++)
                    is_target |= dsts[i] == room_of[k] + at;
                memcpy(expected, k % 2 ? a + k : b + k, sizeof expected);
                if (is_target)
                    memcpy(expected + at, want + at, n * sizeof *expected);
                ck_assert(memcmp(room_of[k], expected, sizeof expected) == 0);
            }
        }
    ops->close(device);
}

TEST(sum_of_nothing_is_refused) {
    open_device(1);
    ck_assert_int_eq(ops->sum(device, NULL, 5, NULL, 0, got), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "0 sources"));
    ck_assert_int_eq(ops->sum_to(device, NULL, 5, NULL, 1, NULL, 0), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "0 destinations"));
    ops->close(device);
}

/* The numbers are the same with any number of threads, and added by any calls. */
TEST(norms_are_sums_of_squares) {
    double first[SIZES];
    double *sums = calloc(MOST / DLC_SQUARE_PIECE + 1, sizeof *sums);
    FOR_ALL(n, at) {
        size_t pieces = (n + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
        size_t half = pieces / 2, skip = half * DLC_SQUARE_PIECE;
        long double exact = 0;
        double total = -1;
        for (size_t i = 0; i < n; i++)
            exact += (long double)a[at + i] * a[at + i];
        ck_assert_int_eq(
            ops->square_sums(device, NULL, n - skip, a + at + skip, sums + half),
            DLC_OK);
        ck_assert_int_eq(ops->square_sums(device, NULL, skip, a + at, sums), DLC_OK);
        ck_assert_int_eq(ops->total(device, NULL, pieces, sums, &total), DLC_OK);
        ck_assert_double_le(fabs(total - (double)exact), 1e-13 * (double)exact);
        if (at != PAD)
            continue;
        if (t_ == 0)
            first[s_] = total;
        ck_assert(memcmp(&first[s_], &total, sizeof total) == 0);
    }
    free(sums);
}

/* ---- Updates ----------------------------------------------------------------- */

/* NaN may have any sign and payload: instructions choose which operand's they keep. */
static void same_floats(const char *what, const float *x, const float *wanted,
                        size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&x[i], &wanted[i], sizeof *x) != 0 &&
            !(isnan(x[i]) && isnan(wanted[i])))
            ck_abort_msg("%s: element %zu of %zu is %a, not %a", what, i, n,
                         (double)x[i], (double)wanted[i]);
}

/* What an update works on, with other elements before and after. */
typedef struct operands {
    size_t all;
    float *memory, *gradient, *slots[DLC_MAX_SLOTS], *weight;
} operands;

static operands make_operands(size_t n) {
    static const float odd[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e-44f, -1e38f};
    const size_t all = n + 2 * PAD;
    operands o = {.all = (2 + DLC_MAX_SLOTS) * all};
    o.memory = calloc(o.all, sizeof(float));
    ck_assert_ptr_nonnull(o.memory);
    for (size_t i = 0; i < o.all; i++)
        o.memory[i] = i % 53 == 3 ? odd[i / 53 % 7] : a[i % MOST];
    o.gradient = o.memory;
    o.weight = o.memory + all;
    for (size_t k = 0; k < DLC_MAX_SLOTS; k++)
        o.slots[k] = o.memory + (2 + k) * all;
    return o;
}

/* Slots that the rule does not have must not be read. */
static void point_to(const operands *o, const dlc_rule *rule, size_t at,
                     float **slots) {
    for (int32_t k = 0; k < DLC_MAX_SLOTS; k++)
        slots[k] = k < rule->slots ? o->slots[k] + at + (k & 1) : NULL;
}

static void check_update(const dlc_update *update, size_t n, size_t at) {
    operands x = make_operands(n), wanted = make_operands(n);
    float *slots[DLC_MAX_SLOTS];
    point_to(&wanted, update->rule, at, slots);
    test_update_reference(update, n, wanted.gradient + at + 1, slots,
                          wanted.weight + at);
    point_to(&x, update->rule, at, slots);
    ck_assert_int_eq(
        ops->update(device, NULL, n, update, x.gradient + at + 1, slots, x.weight + at),
        DLC_OK);
    same_floats(update->rule->kernel, x.memory, wanted.memory, x.all);
    free(x.memory);
    free(wanted.memory);
}

TEST_EACH(updates_follow_the_rule, TEST_RULES) {
    const dlc_update update = test_update(_i);
    FOR_ALL(n, at) {
        check_update(&update, n, at);
    }
}

/* Infinite: gradients are not clipped, not even infinite ones. */
TEST_EACH(updates_without_decay_or_clipping, TEST_RULES) {
    dlc_update update = test_update(_i);
    update.values.weight_decay = update.values.l1_decay = 0;
    update.values.clip_value = INFINITY;
    open_device(2);
    check_update(&update, 20001, PAD + 1);
    update.values.own[1] = 0; /* not Nesterov's */
    check_update(&update, 20001, PAD);
    ops->close(device);
}

enum { GRADIENTS = 5, TARGETS = 3 };

static void fill_gradients(size_t n, float **gradients) {
    for (size_t k = 0; k < GRADIENTS; k++) {
        gradients[k] = malloc((n + 1) * sizeof(float));
        ck_assert_ptr_nonnull(gradients[k]);
        for (size_t i = 0; i <= n; i++)
            gradients[k][i] = (k % 2 ? b : c)[(i + k) % MOST];
    }
}

/* Compares with a sum and an update. All but the first copy of the weights begin with
 * other numbers. */
static void check_update_to(const dlc_update *update, size_t n, int32_t count,
                            int32_t targets) {
    const size_t at = PAD + 1;
    operands x = make_operands(n), wanted = make_operands(n), copies[TARGETS];
    float *gradients[GRADIENTS], *same[GRADIENTS], *slots[DLC_MAX_SLOTS];
    float *weights[TARGETS] = {x.weight + at}, *sum = wanted.gradient + at;
    fill_gradients(n, gradients);
    fill_gradients(n, same);
    for (int32_t k = 1; k < targets; k++) {
        copies[k] = make_operands(n);
        memset(copies[k].memory, 0, copies[k].all * sizeof(float));
        weights[k] = copies[k].weight + at;
    }
    ck_assert_int_eq(
        ops->sum(device, NULL, n, (const float *const *)gradients, count, sum), DLC_OK);
    memcpy(x.gradient + at, sum, n * sizeof(float));
    point_to(&wanted, update->rule, at, slots);
    ck_assert_int_eq(
        ops->update(device, NULL, n, update, sum, slots, wanted.weight + at), DLC_OK);
    point_to(&x, update->rule, at, slots);
    ck_assert_int_eq(ops->update_to(device, NULL, n, update,
                                    (const float *const *)gradients, count, slots,
                                    weights, targets),
                     DLC_OK);
    same_floats("update_to", x.memory, wanted.memory, x.all);
    memset(wanted.weight, 0, at * sizeof(float));
    memset(wanted.weight + at + n, 0, (PAD - 1) * sizeof(float));
    for (int32_t k = 1; k < targets; k++) {
        same_floats("a copy", copies[k].weight, wanted.weight, n + 2 * PAD);
        free(copies[k].memory);
    }
    for (int k = 0; k < GRADIENTS; k++) {
        same_floats("a gradient", gradients[k], same[k], n + 1);
        free(gradients[k]);
        free(same[k]);
    }
    free(x.memory);
    free(wanted.memory);
}

/* The last length exceeds the caches. */
TEST_EACH(update_to_is_a_sum_and_an_update, TEST_RULES) {
    static const size_t lengths[] = {0, 1, 17, 1029, 20001};
    const dlc_update update = test_update(_i);
    open_device(2);
    for (size_t i = 0; DLC_CAN(ops, update_to) && i < 5; i++)
        for (int32_t count = 1; count <= GRADIENTS; count++)
            check_update_to(&update, lengths[i], count, 1 + count % 3);
    if (DLC_CAN(ops, update_to)) {
        check_update_to(&update, 700016, 2, 3);
        ck_assert_int_eq(
            ops->update_to(device, NULL, 0, &update, NULL, 0, NULL, NULL, 1),
            DLC_ERR_CONFIG);
    }
    ops->close(device);
}

/* Planes begin and end anywhere, even within vectors; bytes have the floats' alignment,
 * and others. */
TEST(normalize_takes_each_channels_values) {
    static const size_t planes[] = {
        1, 2, 3, 7, 64, 784, 16385, 227 * 227, (size_t)1 << 33};
    static const float means[] = {123.68f, -0.1f, 0, 1e30f, 103.939f};
    static const float scales[] = {0.017124753f, 1, -3, 1e-30f, 1.0f / 255};
    const uint8_t *bytes = (const uint8_t *)c;
    FOR_ALL(n, at) {
        size_t plane = planes[(s_ + at) % (sizeof planes / sizeof *planes)];
        size_t channels = 1 + (s_ + at + t_) % (sizeof means / sizeof *means);
        const uint8_t *src = bytes + at + (s_ + t_) % 2;
        start_from(a);
        for (size_t i = 0; i < n; i++) {
            size_t channel = i / plane % channels;
            volatile float off = (float)src[i] - means[channel];
            want[at + i] = off * scales[channel];
        }
        ck_assert_int_eq(ops->normalize(device, NULL, n, plane, channels, src, means,
                                        scales, got + at),
                         DLC_OK);
        same_bits("normalize", n, at);
    }
}

TEST(copy_and_fill) {
    FOR_ALL(n, at) {
        unsigned char *bytes = (unsigned char *)got + 4 * at + 1;
        start_from(a);
        memcpy((unsigned char *)want + 4 * at + 1, b, n);
        ck_assert_int_eq(ops->copy(device, NULL, bytes, b, n), DLC_OK);
        same_bits("copy", n, at);
        memset((unsigned char *)want + 4 * at + 1, 0x5a, n);
        ck_assert_int_eq(ops->fill(device, NULL, bytes, 0x5a, n), DLC_OK);
        same_bits("fill", n, at);
    }
    open_device(3);
    start_from(a);
    memcpy(want, b, MOST * sizeof(float));
    ck_assert_int_eq(ops->copy(device, NULL, got, b, MOST * sizeof(float)), DLC_OK);
    same_bits("copy", MOST, 0);
    ops->close(device);
}
