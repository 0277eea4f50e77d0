/* Conformance of devices: conversions, compared with the compiler's for single numbers,
 * and exhaustively for the small types. */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "support/mirror.h"
#include "support/plugins.h"
#include "support/test.h"

/* For long loops: Check's own assertions write a record each. */
#define MUST(condition, ...) \
    do { \
        if (!(condition)) \
            ck_abort_msg(__VA_ARGS__); \
    } while (0)

static const dlc_device_ops *ops;
static dlc_device *device;

static void setup(void) {
    dlc_device_args args = {.size = sizeof args, .threads = 2};
    ops = mirror_ops();
    ck_assert_int_eq(ops->open(&args, &device), DLC_OK);
}

static void teardown(void) {
    ops->close(device);
    plugins_close();
}

static void convert(size_t n, dlc_dtype from, const void *src, dlc_dtype to,
                    void *dst) {
    ck_assert_int_eq(ops->convert(device, NULL, n, from, src, to, dst), DLC_OK);
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The value of a half, by its definition. */
static double half_value(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double size = exponent == 0    ? ldexp(fraction, -24)
                  : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                                   : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -size : size;
}

static double bf16_value(uint16_t bits) {
    return (double)float_of((uint32_t)bits << 16);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = teardown,
              .begin = mirror_begin);

TEST(every_small_number_becomes_a_float) {
    static uint16_t all[65536];
    static float got[65536];
    for (size_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    convert(65536, DLC_F16, all, DLC_F32, got);
    for (size_t i = 0; i < 65536; i++) {
        double want = half_value((uint16_t)i);
        MUST(isnan(want) ? isnan(got[i]) : (double)got[i] == want,
             "half %04zx became %a", i, (double)got[i]);
        MUST(isnan(want) || (signbit(got[i]) != 0) == (i >> 15), "sign of half %04zx",
             i);
    }
    convert(65536, DLC_BF16, all, DLC_F32, got);
    for (size_t i = 0; i < 65536; i++)
        MUST(bits_of(got[i]) == (uint32_t)i << 16, "bf16 %04zx", i);
}

/* Is `got` the 16-bit value nearest to x, and the even one of two equally near? Its
 * neighbours in magnitude are got - 1 and got + 1 (infinity stands for one step more).
 */
static void nearest(float x, uint16_t got, double (*value)(uint16_t), double beyond,
                    uint16_t infinity) {
    double is = (double)fabsf(x);
    uint16_t size = got & 0x7fff;
    double at = size == infinity ? beyond : value(size);
    double above = size == infinity       ? (double)INFINITY
                   : size + 1 == infinity ? beyond
                                          : value((uint16_t)(size + 1));
    double below = size == 0 ? -1.0 : value((uint16_t)(size - 1));

    MUST((signbit(x) != 0) == (got >> 15), "sign of %a", (double)x);
    if (isinf(x)) {
        MUST(size == infinity, "%a became %04x", (double)x, got);
        return;
    }
    double off = fabs(is - at);
    int ok = size == infinity ? is >= (at + below) / 2
                              : off <= fabs(above - is) && off <= fabs(is - below);
    if (ok && size != infinity && (off == fabs(above - is) || off == fabs(is - below)))
        ok = (size & 1) == 0;
    MUST(ok, "%a became %04x", (double)x, got);
}

static const float edges[] = {
    0.0f,
    -0.0f,
    1.0f,
    65504.0f,
    65519.9f,
    65520.0f,
    65536.0f,
    0x1p-14f,
    0x1.ffcp-15f,
    0x1.ffep-15f,
    0x1p-24f,
    0x1p-25f,
    0x1.000002p-25f,
    0x1.8p-24f,
    0x1p-26f,
    3.4e38f,
    0x1.fffffep127f,
    INFINITY,
    -INFINITY,
    0x1p-149f,
    0x1.01p0f,
    0x1.03p0f,
    0x1.0002p0f,
    0x1.006p0f,
    0x1.002p0f,
};
enum { EDGES = sizeof edges / sizeof *edges, N = 100000 };

static float *numbers(void) {
    static float x[N];
    dlc_random random = dlc_random_make(3, 1);
    for (size_t i = 0; i < N; i++) {
        x[i] = float_of(dlc_random_u32(&random));
        /* Many are in the halves' range, and exactly between two of them. */
        if (i % 2)
            x[i] = float_of((bits_of(x[i]) & 0x8ffff000) | 0x30000000);
        if (isnan(x[i]))
            x[i] = 1.0f;
    }
    memcpy(x, edges, sizeof edges);
    return x;
}

TEST(floats_round_to_the_nearest) {
    static uint16_t got[N];
    const float *x = numbers();
    convert(N, DLC_F32, x, DLC_F16, got);
    for (size_t i = 0; i < N; i++)
        nearest(x[i], got[i], half_value, 65536.0, 0x7c00);
    convert(N, DLC_F32, x, DLC_BF16, got);
    for (size_t i = 0; i < N; i++)
        nearest(x[i], got[i], bf16_value, 0x1p128, 0x7f80);
}

TEST(nan_stays_nan) {
    float x[64];
    uint16_t half[64], bf16[64];
    uint8_t bytes[64];
    int32_t ints[64];
    int64_t longs[64];
    for (uint32_t i = 0; i < 64; i++)
        x[i] = float_of(0x7f800001u + (i * 0x10421u & 0x7ffffe) + (i << 31));
    convert(64, DLC_F32, x, DLC_F16, half);
    convert(64, DLC_F32, x, DLC_BF16, bf16);
    convert(64, DLC_F32, x, DLC_U8, bytes);
    convert(64, DLC_F32, x, DLC_I32, ints);
    convert(64, DLC_F32, x, DLC_I64, longs);
    for (size_t i = 0; i < 64; i++) {
        ck_assert(isnan(x[i]) && isnan(half_value(half[i])));
        ck_assert(isnan(bf16_value(bf16[i])));
        ck_assert(bytes[i] == 0 && ints[i] == 0 && longs[i] == 0);
    }
}

static double within(double x, double low, double high) {
    double whole = nearbyint(x); /* rounds to nearest, ties to even */
    return whole < low ? low : whole > high ? high : whole;
}

TEST(whole_numbers) {
    static uint8_t bytes[N];
    static int32_t ints[N];
    static int64_t longs[N];
    static float x[N], back[N];
    dlc_random random = dlc_random_make(4, 1);

    ck_assert_int_eq(fegetround(), FE_TONEAREST);
    for (size_t i = 0; i < N; i++)
        x[i] = ldexpf(dlc_random_uniform(&random) - 0.5f, (int)(i % 70));
    for (size_t i = 0; i < 2000; i++)
        x[i] = (float)i / 4.0f - 100.0f;
    memcpy(x, edges, sizeof edges);
    convert(N, DLC_F32, x, DLC_U8, bytes);
    convert(N, DLC_F32, x, DLC_I32, ints);
    convert(N, DLC_F32, x, DLC_I64, longs);
    for (size_t i = 0; i < N; i++) {
        double is = (double)x[i];
        MUST(bytes[i] == within(is, 0, 255), "%a became %d", is, bytes[i]);
        MUST(ints[i] == within(is, INT32_MIN, INT32_MAX), "%a became %d", is, ints[i]);
        if (is < 0x1p63 && is >= -0x1p63)
            MUST(longs[i] == (int64_t)nearbyint(is), "%a became %lld", is,
                 (long long)longs[i]);
        else
            MUST(longs[i] == (is > 0 ? INT64_MAX : INT64_MIN), "%a", is);
    }
    convert(N, DLC_U8, bytes, DLC_F32, back);
    for (size_t i = 0; i < N; i++)
        MUST(back[i] == (float)bytes[i], "back to %a", (double)back[i]);
    convert(N, DLC_I32, ints, DLC_F32, back);
    for (size_t i = 0; i < N; i++)
        MUST(back[i] == (float)ints[i], "back to %a", (double)back[i]);
    convert(N, DLC_I64, longs, DLC_F32, back);
    for (size_t i = 0; i < N; i++)
        MUST(back[i] == (float)longs[i], "back to %a", (double)back[i]);
}

TEST(doubles) {
    static double wide[N];
    static float back[N];
    const float *x = numbers();
    convert(N, DLC_F32, x, DLC_F64, wide);
    for (size_t i = 0; i < N; i++) {
        MUST(wide[i] == (double)x[i], "%a", (double)x[i]);
        wide[i] = isfinite(x[i]) ? (double)x[i] * 1.0000001 : (double)x[i];
    }
    convert(N, DLC_F64, wide, DLC_F32, back);
    for (size_t i = 0; i < N; i++) {
        volatile float want = (float)wide[i];
        MUST(bits_of(back[i]) == bits_of(want), "%a became %a", wide[i],
             (double)back[i]);
    }
}

TEST(same_type_is_a_copy) {
    uint16_t from[100], to[101];
    for (size_t i = 0; i < 100; i++)
        from[i] = (uint16_t)(i * 777);
    to[100] = 5;
    convert(100, DLC_F16, from, DLC_F16, to);
    ck_assert(memcmp(from, to, sizeof from) == 0);
    ck_assert_uint_eq(to[100], 5);
}

TEST(unsupported_conversions) {
    char a[64] = "", b[64] = "same";
    ck_assert_int_eq(ops->convert(device, NULL, 8, DLC_F16, a, DLC_U8, b),
                     DLC_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "to float32 first"));
    ck_assert_int_eq(ops->convert(device, NULL, 8, (dlc_dtype)99, a, (dlc_dtype)99, b),
                     DLC_ERR_UNSUPPORTED);
    ck_assert_str_eq(b, "same");
}
