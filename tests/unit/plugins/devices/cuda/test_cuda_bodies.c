/* The arithmetic of the cuda device's kernels (bodies.h), compiled for the CPU: bitwise
 * identical to the cpu device's, which has tests of its own, for every kind of number;
 * and how the kernels handle many sources, or none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"
#include "support/plugins.h"

#include "bodies.h"
#include "support/test.h"

/* For long loops: Check's own assertions write a record each. */
#define MUST(condition, ...) \
    do { \
        if (!(condition)) \
            ck_abort_msg(__VA_ARGS__); \
    } while (0)

enum { N = 200000 };

static const dlc_device_ops *ops;
static dlc_device *device;

static void setup(void) {
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    ck_assert_int_eq(ops->open(&args, &device), DLC_OK);
}

static void teardown(void) {
    ops->close(device);
    plugins_close();
}

/* Numbers of every kind: zeros, denormals, infinities, the largest, ties between
 * integers and between 16-bit floats, and random bits; NaN where asked for. */
static float *numbers(uint64_t stream, int with_nan) {
    static const float odd[] = {
        0.0f,      -0.0f,      1.0f,      -1.0f,     0.5f,       1.5f,
        2.5f,      -0.5f,      254.5f,    255.5f,    255.0f,     256.0f,
        65504.0f,  65519.9f,   65520.0f,  65536.0f,  0x1p-14f,   0x1p-24f,
        0x1p-25f,  0x1.8p-24f, 0x1p-149f, 0x1p31f,   -0x1p31f,   0x1p63f,
        -0x1p63f,  0x1p32f,    3.4e38f,   -3.4e38f,  INFINITY,   0x1p-26f,
        -INFINITY, 0x1.fcp-1f, 0x1.01p0f, 0x1.03p0f, 0x1.002p0f, 0x1.006p0f};
    enum { ODD = sizeof odd / sizeof *odd };
    dlc_random random = dlc_random_make(11, stream);
    float *x = malloc(N * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = dlc_random_u32(&random);
        if (i % 4 == 1) /* in the range of fp16, many of them ties */
            bits = (bits & 0x8ffff000) | 0x30000000;
        if (i % 4 == 2) /* ties for bf16 */
            bits = (bits & 0xffff0000) | 0x8000;
        x[i] = body_float(bits);
        if (i % 4 == 3)
            x[i] = (float)((int32_t)bits >> (i % 31)) / 2.0f;
        if (isnan(x[i]) && !with_nan)
            x[i] = 1.0f;
    }
    memcpy(x, odd, sizeof odd);
    for (size_t i = 0; i < (size_t)ODD * ODD; i++) /* all pairs, in two streams */
        x[ODD + i] = odd[stream % 2 ? i % ODD : i / ODD];
    return x;
}

/* ---- Conversions ------------------------------------------------------------- */

#define SAME_CONVERSION(from_dtype, from_type, source, to_dtype, to_type, body) \
    do { \
        const from_type *src_ = (source); \
        to_type *want_ = malloc(N * sizeof *want_); \
        ck_assert_int_eq( \
            ops->convert(device, NULL, N, from_dtype, src_, to_dtype, want_), DLC_OK); \
        for (size_t i = 0; i < N; i++) { \
            to_type got_ = body(src_[i]); \
            MUST(memcmp(&got_, &want_[i], sizeof got_) == 0, #body " of %zu: %.9g", i, \
                 (double)src_[i]); \
        } \
        free(want_); \
    } while (0)

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = teardown);

TEST(from_floats) {
    float *x = numbers(1, 1);
    SAME_CONVERSION(DLC_F32, float, x, DLC_BF16, uint16_t, body_bf16_of);
    SAME_CONVERSION(DLC_F32, float, x, DLC_F16, uint16_t, body_f16_of);
    SAME_CONVERSION(DLC_F32, float, x, DLC_I32, int32_t, body_i32_of);
    SAME_CONVERSION(DLC_F32, float, x, DLC_I64, int64_t, body_i64_of);
    SAME_CONVERSION(DLC_F32, float, x, DLC_U8, uint8_t, body_u8_of);
    SAME_CONVERSION(DLC_F32, float, x, DLC_F64, double, body_f64_of);
    free(x);
}

TEST(to_floats) {
    dlc_random random = dlc_random_make(12, 1);
    float *x = numbers(2, 0);
    uint16_t *half = malloc(N * sizeof *half);
    uint8_t *byte = malloc(N);
    int32_t *word = malloc(N * sizeof *word);
    int64_t *wide = malloc(N * sizeof *wide);
    double *real = malloc(N * sizeof *real);
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = dlc_random_u32(&random);
        half[i] = (uint16_t)i; /* all values */
        byte[i] = (uint8_t)i;
        word[i] = (int32_t)bits >> (i % 32);
        wide[i] = (int64_t)((uint64_t)bits << 32 | dlc_random_u32(&random)) >> (i % 64);
        real[i] = (double)x[i] * (i % 2 ? 1 + 0x1p-25 : 1 + 0x1p-24);
    }
    SAME_CONVERSION(DLC_BF16, uint16_t, half, DLC_F32, float, body_of_bf16);
    SAME_CONVERSION(DLC_F16, uint16_t, half, DLC_F32, float, body_of_f16);
    SAME_CONVERSION(DLC_U8, uint8_t, byte, DLC_F32, float, body_of_u8);
    SAME_CONVERSION(DLC_I32, int32_t, word, DLC_F32, float, body_of_i32);
    SAME_CONVERSION(DLC_I64, int64_t, wide, DLC_F32, float, body_of_i64);
    SAME_CONVERSION(DLC_F64, double, real, DLC_F32, float, body_of_f64);
    free(x);
    free(half);
    free(byte);
    free(word);
    free(wide);
    free(real);
}

/* ---- Vectors ----------------------------------------------------------------- */

static void same_floats(const char *what, const float *got, const float *want,
                        size_t n) {
    for (size_t i = 0; i < n; i++)
        MUST(memcmp(&got[i], &want[i], sizeof *got) == 0 ||
                 (isnan(got[i]) && isnan(want[i])),
             "%s: element %zu is %a, not %a", what, i, (double)got[i], (double)want[i]);
}

static float *copy_of(const float *x) {
    float *copy = malloc(N * sizeof *copy);
    memcpy(copy, x, N * sizeof *copy);
    return copy;
}

TEST(vectors) {
    float *x = numbers(3, 1), *y = numbers(4, 1), *got = copy_of(y), *want = copy_of(y);
    for (size_t i = 0; i < N; i++)
        got[i] = body_scale(0.7f, y[i]);
    ck_assert_int_eq(ops->scale(device, NULL, N, 0.7f, want), DLC_OK);
    same_floats("scale", got, want, N);
    memcpy(want, y, N * sizeof *want);
    for (size_t i = 0; i < N; i++)
        got[i] = body_add(x[i], y[i]);
    ck_assert_int_eq(ops->add(device, NULL, N, x, want), DLC_OK);
    same_floats("add", got, want, N);
    memcpy(want, y, N * sizeof *want);
    for (size_t i = 0; i < N; i++)
        got[i] = body_axpy(-1.3f, x[i], y[i]);
    ck_assert_int_eq(ops->axpy(device, NULL, N, -1.3f, x, want), DLC_OK);
    same_floats("axpy", got, want, N);
    free(x);
    free(y);
    free(got);
    free(want);
}

/* Pairs of all halves, with strides that cover every exponent. */
TEST(quotients) {
    static const uint32_t ends[] = {1,      2,          3,          7,          641,
                                    51529,  0x7fffffff, 0x80000000, 0x80000001, 65536,
                                    100003, 0xfffffffe, 0xffffffff};
    enum { ENDS = sizeof ends / sizeof *ends };
    dlc_random random = dlc_random_make(16, 1);
    for (int i = 0; i < N; i++) {
        uint32_t divisor = i < ENDS ? ends[i] : dlc_random_u32(&random) >> i % 32;
        divisor = divisor ? divisor : 1;
        uint64_t inverse = body_inverse(divisor);
        for (uint32_t k = 0; k < ENDS + 3; k++) {
            uint32_t n = k < ENDS ? ends[k] : dlc_random_u32(&random);
            n = k == ENDS + 1 ? n / divisor * divisor : n; /* and one less */
            n = k == ENDS + 2 ? n / divisor * divisor - 1 : n;
            MUST(body_quotient(n, inverse) == n / divisor, "%u / %u", n, divisor);
        }
    }
}

/* Each byte, with means and scales that amplify a rounding error. */
TEST(images) {
    static const float means[] = {0, 0.1f, 127.5f, -1e30f, 104.00699f};
    static const float scales[] = {1, 1.0f / 255, 0.017124753f, -3e-39f, 1e30f};
    uint8_t bytes[256];
    float want[256], got[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    for (int k = 0; k < 25; k++) {
        float mean = means[k % 5], scale = scales[k / 5];
        ck_assert_int_eq(
            ops->normalize(device, NULL, 256, 256, 1, bytes, &mean, &scale, want),
            DLC_OK);
        for (int i = 0; i < 256; i++)
            got[i] = body_normalize(bytes[i], mean, scale);
        same_floats("normalize", got, want, 256);
    }
}

TEST(halves) {
    uint16_t *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    uint16_t *bf16 = malloc(N * sizeof *bf16), *f16 = malloc(N * sizeof *f16);
    dlc_random random = dlc_random_make(13, 1);
    for (size_t i = 0; i < N; i++) {
        x[i] = (uint16_t)i;
        y[i] = bf16[i] = f16[i] = (uint16_t)dlc_random_u32(&random);
        if (i % 3 == 0)
            y[i] = bf16[i] = f16[i] = x[i] ^ 0x8000 ^ (uint16_t)(i % 5);
    }
    ck_assert_int_eq(ops->add_bf16(device, NULL, N, x, bf16), DLC_OK);
    ck_assert_int_eq(ops->add_f16(device, NULL, N, x, f16), DLC_OK);
    for (size_t i = 0; i < N; i++) {
        uint16_t b = body_add_bf16(x[i], y[i]), h = body_add_f16(x[i], y[i]);
        int both_nan = isnan(body_of_bf16(b)) && isnan(body_of_bf16(bf16[i]));
        MUST(b == bf16[i] || both_nan, "bf16 %04x + %04x", x[i], y[i]);
        both_nan = isnan(body_of_f16(h)) && isnan(body_of_f16(f16[i]));
        MUST(h == f16[i] || both_nan, "f16 %04x + %04x", x[i], y[i]);
    }
    free(x);
    free(y);
    free(bf16);
    free(f16);
}

/* ---- Sums -------------------------------------------------------------------- */

/* As the kernel does it: groups of 8, then the groups. */
static float sum_of(const float *const *sources, int count, size_t i) {
    float parts[8], s[8];
    int groups = 0;
    for (int begin = 0; begin < count; begin += 8, groups++) {
        for (int k = 0; k < 8 && begin + k < count; k++)
            s[k] = sources[begin + k][i];
        parts[groups] = body_pairwise(s, 8, count - begin);
    }
    return body_pairwise(parts, 8, groups);
}

TEST(sums_of_up_to_64) {
    enum { FEW = 1000, MOST = 64 };
    static float room[MOST][FEW], want[FEW], got[FEW];
    const float *sources[MOST];
    dlc_random random = dlc_random_make(14, 1);
    for (int k = 0; k < MOST; k++) {
        sources[k] = room[k];
        for (size_t i = 0; i < FEW; i++)
            room[k][i] = ldexpf(dlc_random_normal(&random), (int)(i % 20));
    }
    for (int count = 1; count <= MOST; count++) {
        ck_assert_int_eq(ops->sum(device, NULL, FEW, sources, count, want), DLC_OK);
        for (size_t i = 0; i < FEW; i++)
            got[i] = sum_of(sources, count, i);
        same_floats("sum", got, want, FEW);
        /* The kernels for few sources have room for only so many. */
        for (int most = 2; count <= 4 && most <= 4; most *= 2)
            for (size_t i = 0; i < FEW && count <= most; i++) {
                float s[4] = {NAN, NAN, NAN, NAN};
                for (int k = 0; k < count; k++)
                    s[k] = room[k][i];
                got[i] = body_pairwise(s, most, count);
                MUST(got[i] == want[i], "%d of at most %d", count, most);
            }
    }
}

/* ---- A mean ------------------------------------------------------------------ */

TEST(means) {
    static const float pairs[][2] = {{10, 4}, {7, 0}, {1, 3}, {-5, 7}, {0, 2}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        float got = 0.1f, want = 0.1f;
        body_add_mean(0.3f, pairs[i], &got);
        ck_assert_int_eq(ops->add_mean(device, NULL, 0.3f, pairs[i], &want), DLC_OK);
        ck_assert(memcmp(&got, &want, sizeof got) == 0);
    }
}

/* ---- The loss scale ---------------------------------------------------------- */

/* A thousand iterations with and without overflow, compared with the cpu device. */
TEST(loss_scale) {
    dlc_random random = dlc_random_make(15, 1);
    dlc_loss_scale got = {.scale = 65536.0f}, want = got;
    int seen = 0;
    for (int i = 0; i < 1000; i++) {
        int rough = i / 100 % 2;
        double x = dlc_random_below(&random, rough ? 3 : 1000) ? 1
                   : i % 2                                     ? (double)NAN
                                                               : (double)INFINITY;
        body_update_scale(&got, x, 3);
        ck_assert_int_eq(ops->update_loss_scale(device, NULL, &x, 3, &want), DLC_OK);
        MUST(memcmp(&got, &want, sizeof got) == 0, "iteration %d: %g, not %g", i,
             (double)got.scale, (double)want.scale);
        seen |= got.scale == 1.0f ? 1 : got.scale == 0x1p24f ? 2 : 0;
    }
    ck_assert_int_eq(seen, 3); /* both limits were reached */
    ck_assert_int_gt(got.skipped, 100);
}
