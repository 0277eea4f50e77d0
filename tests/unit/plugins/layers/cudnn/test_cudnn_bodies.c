/* Tests the bodies of layers/cudnn's kernels on the host, as far as the conformance
 * tests of layers do not reach them: 16-bit numbers, fast division, and arguments in
 * device memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "kernels/kernels.h"
#include "support/test.h"

/* ---- Sixteen bits ------------------------------------------------------------ */

/* Decodes a 16-bit number with the given exponent and mantissa bits. */
static double value_of(uint16_t half, int exponent_bits, int mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = half >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = half & ((1 << mantissa_bits) - 1);
    double sign = half & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign *
           ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static const struct {
    dlc_dtype type;
    int exponent_bits, mantissa_bits;
} sixteen[] = {{DLC_BF16, 8, 7}, {DLC_F16, 5, 10}};

static uint16_t narrow(dlc_dtype type, float value) {
    return type == DLC_BF16 ? to_bf16(value) : to_f16(value);
}

static float widen(dlc_dtype type, uint16_t half) {
    return type == DLC_BF16 ? from_bf16(half) : from_f16(half);
}

/* Every 16-bit number converts to float32 and back. */
TEST_EACH(every_half, 2) {
    dlc_dtype type = sixteen[_i].type;
    for (uint32_t half = 0; half < 65536; half++) {
        float got = widen(type, (uint16_t)half);
        double want = value_of((uint16_t)half, sixteen[_i].exponent_bits,
                               sixteen[_i].mantissa_bits);
        if (isnan(want) ? !isnan(got) || !isnan(widen(type, narrow(type, got)))
                        : (double)got != want || narrow(type, got) != half)
            ck_abort_msg("%#x is %g, not %g", half, (double)got, want);
    }
}

/* Numbers between two neighbours round to the nearer, and ties to even. */
TEST_EACH(between_halves, 2) {
    dlc_dtype type = sixteen[_i].type;
    uint32_t infinity = ((1u << sixteen[_i].exponent_bits) - 1)
                        << sixteen[_i].mantissa_bits;
    for (uint32_t half = 0; half + 1 < infinity; half++) {
        double low = (double)widen(type, (uint16_t)half);
        double high = (double)widen(type, (uint16_t)(half + 1));
        uint32_t even = half & 1 ? half + 1 : half;
        float middle = (float)((low + high) / 2);
        if ((double)middle != (low + high) / 2)
            continue; /* float32 cannot represent the middle of bfloat16's smallest
                         numbers */
        if (narrow(type, middle) != even || narrow(type, -middle) != (even | 0x8000) ||
            narrow(type, nextafterf(middle, 0)) != half ||
            narrow(type, nextafterf(middle, INFINITY)) != half + 1)
            ck_abort_msg("wrong between %#x and the next", half);
    }
    ck_assert_uint_eq(narrow(type, INFINITY), infinity);
    ck_assert_uint_eq(narrow(type, -INFINITY), infinity | 0x8000);
    ck_assert_uint_eq(narrow(type, 3.4e38f), infinity);
}

TEST(just_too_large) {
    ck_assert_uint_eq(to_f16(65519.99f), 0x7bff);
    ck_assert_uint_eq(to_f16(65520), 0x7c00);
    ck_assert_uint_eq(to_f16(1e-8f), 0);
    ck_assert_float_eq(as_stored(DLC_F32, 0.1f), 0.1f);
    ck_assert_float_eq(as_stored(DLC_BF16, 0.7f), 0.69921875f);
}

/* ---- Division ---------------------------------------------------------------- */

TEST(division) {
    static const uint32_t divisors[] = {
        1,    2,    3,     5,     6,     7,     10,    641,     1000,       4095,
        4096, 4097, 65535, 65536, 65537, 96000, 99991, 7654321, 0x3fffffff, 0x7fffff00};
    dlc_random random = dlc_random_make(1, 1);
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        uint32_t by = divisors[i];
        fast_divisor d = fast_divisor_of(by);
        for (int k = 0; k < 20000; k++) {
            uint32_t n = dlc_random_u32(&random) >> (1 + k % 31);
            uint32_t near = k < 1000 ? (uint32_t)k * by : n / by * by;
            const uint32_t all[] = {n, near & 0x7fffffff, (near - 1) & 0x7fffffff};
            for (int j = 0; j < 3; j++) {
                uint32_t rest = all[j], left = fast_divmod(&rest, d);
                if (rest != all[j] / by || left != all[j] % by)
                    ck_abort_msg("%u / %u is not %u, rest %u", all[j], by, rest, left);
            }
        }
    }
}

/* ---- What lies in device memory ---------------------------------------------- */

enum { COUNT = 1003 };

/* Iteration and sample give the same result in the arguments and in device memory. Four
 * elements use the words of one block, wherever in a block the batch starts. */
TEST_EACH(dropout_from_memory, 8) {
    static float in[2048], out[2][2048];
    const dlc_step step = {.iteration = 77, .sample = _i};
    dropout_args d = {.type = DLC_F32,
                      .count = (int64_t)2 * COUNT,
                      .features = COUNT,
                      .channels = 17,
                      .spatial = 59,
                      .last = _i % 2,
                      .seed = 5,
                      .index = 3,
                      .limit = 0x80000000u,
                      .scale = 2,
                      .from = in};
    for (int i = 0; i < 2 * COUNT; i++)
        in[i] = 1;
    d.step = step;
    d.to = out[0];
    ck_assert_int_eq(dropout_run(&d, NULL), cudaSuccess);
    d.step = (dlc_step){.iteration = 1, .sample = 1};
    d.step_at = &step;
    d.to = out[1];
    ck_assert_int_eq(dropout_run(&d, NULL), cudaSuccess);
    ck_assert_mem_eq(out[0], out[1], sizeof out[0]);
    for (int i = 0; i < 2 * COUNT; i++) {
        int at = i % COUNT, sample = i / COUNT;
        int plain = d.last ? at % 17 * 59 + at / 17 : at;
        uint64_t element = (uint64_t)(step.sample + sample) * COUNT + (uint64_t)plain;
        uint32_t words[4];
        dlc_random_block(5, (uint64_t)77 << 32 | 3, element / 4, words);
        float want = words[element % 4] >= d.limit ? 2 : 0;
        if (out[0][i] != want)
            ck_abort_msg("element %d is %g", i, (double)out[0][i]);
    }
}

TEST(loss_scale_from_memory) {
    static const float scores[6] = {1, 2, 3, 3, 2, 1};
    static const int32_t labels[2] = {0, 2};
    const float factor = 4096;
    float per_row[2], out[2], count = 0, diff[2][6];
    softmax_stats stats[2];
    labels_args l = {.type = DLC_F32,
                     .rows = 2,
                     .classes = 3,
                     .scores = scores,
                     .labels = labels,
                     .per_row = per_row,
                     .out = out,
                     .stats = stats,
                     .count = &count,
                     .loss_scale = 0.5f};
    ck_assert_int_eq(loss_forward_run(&l, NULL), cudaSuccess);
    for (int i = 0; i < 2; i++) {
        l.diff = diff[i];
        l.loss_scale_at = i ? &factor : NULL;
        ck_assert_int_eq(loss_backward_run(&l, NULL), cudaSuccess);
    }
    for (int i = 0; i < 6; i++) {
        ck_assert_float_ne(diff[0][i], 0);
        ck_assert_float_eq(diff[1][i], factor * diff[0][i]);
    }
}

/* An invalid label makes the sum NaN, and the report names it. */
TEST_EACH(label_report_names_it, 2) {
    static const float scores[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t labels[4] = {0, -1, -7, 1};
    float per_row[4], out[2];
    label_report *report = NULL;
    ck_assert_int_eq(report_open(&report), cudaSuccess);
    labels_args l = {.type = DLC_F32,
                     .rows = 4,
                     .classes = 2,
                     .top_k = 1,
                     .scores = scores,
                     .labels = labels,
                     .per_row = per_row,
                     .out = out,
                     .report = report};
    ck_assert_int_eq(_i ? loss_forward_run(&l, NULL) : accuracy_run(&l, NULL),
                     cudaSuccess);
    ck_assert_float_nan(out[0]);
    ck_assert_float_eq(out[1], 3);
    ck_assert_uint_eq(*report, (uint64_t)3 << 32 | (uint32_t)-7);
    report_close(report);
}

/* ---- Pooling ----------------------------------------------------------------- */

/* NaN is the maximum of its window and receives the gradient. */
TEST(nan_is_the_maximum) {
    float in[9] = {1, 2, NAN, 3, 0, 5, 6, 7, 8}, out, diff = 3, in_diff[9];
    uint8_t place;
    pooling_args p = {.type = DLC_F32,
                      .in = {3, 3},
                      .out = {1, 1},
                      .kernel = {3, 3},
                      .stride = {1, 1},
                      .channels = 1,
                      .images = 1,
                      .from = in,
                      .to = &out,
                      .place = &place};
    pooling_ready(&p);
    ck_assert_int_eq(pooling_forward_run(&p, NULL), cudaSuccess);
    ck_assert_float_nan(out);
    ck_assert_uint_eq(place, 2);
    p.from = &diff;
    p.to = in_diff;
    ck_assert_int_eq(pooling_backward_run(&p, NULL), cudaSuccess);
    for (int i = 0; i < 9; i++)
        ck_assert_float_eq(in_diff[i], i == 2 ? 3 : 0);
    for (int i = 0; i < 9; i++)
        in[i] = -INFINITY;
    p.from = in;
    p.to = &out;
    ck_assert_int_eq(pooling_forward_run(&p, NULL), cudaSuccess);
    ck_assert_float_eq(out, -INFINITY);
    ck_assert_uint_eq(place, 0);
}

/* Windows with more positions than fit in a byte. */
TEST(large_window) {
    enum { SIDE = 20 };
    static float in[SIDE * SIDE * 3], in_diff[SIDE * SIDE * 3];
    float out[3], diff[3] = {1, 2, 3};
    uint32_t place[3];
    static const int where[3] = {0, SIDE * SIDE - 1, 300};
    pooling_args p = {.type = DLC_F32,
                      .in = {SIDE, SIDE},
                      .out = {1, 1},
                      .kernel = {SIDE, SIDE},
                      .stride = {1, 1},
                      .channels = 3,
                      .images = 1,
                      .from = in,
                      .to = out,
                      .place = place};
    for (int c = 0; c < 3; c++)
        in[3 * where[c] + c] = 1;
    pooling_ready(&p);
    ck_assert(p.wide_place);
    ck_assert_int_eq(pooling_forward_run(&p, NULL), cudaSuccess);
    p.from = diff;
    p.to = in_diff;
    ck_assert_int_eq(pooling_backward_run(&p, NULL), cudaSuccess);
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        int c = i % 3;
        if (in_diff[i] != (i / 3 == where[c] ? diff[c] : 0))
            ck_abort_msg("gradient %d is %g", i, (double)in_diff[i]);
    }
}

/* ---- Upsampling -------------------------------------------------------------- */

/* The shares of a pixel add up to 1, and backward visits each pixel where forward has
 * it as a part. */
TEST_EACH(shares_add_up, 2) {
    enum { MOST_SIDE = 5, MOST_FACTOR = 9 };
    upsample_args u = {.type = DLC_F32, .channels = 1, .images = 1, .bilinear = _i};
    for (u.factor = 1; u.factor <= MOST_FACTOR; u.factor++)
        for (int32_t side = 1; side <= MOST_SIDE; side++) {
            u.in[0] = u.in[1] = side;
            upsample_ready(&u);
            for (int32_t out = 0; out < u.out[1]; out++) {
                const upsample_range from = upsample_sources(&u, 1, out);
                float sum = 0;
                for (int32_t in = 0; in < side; in++) {
                    const upsample_range to = upsample_targets(&u, 1, in);
                    int is_part = in >= from.begin && in < from.end &&
                                  upsample_share(&u, 1, in, out) > 0;
                    ck_assert_int_eq(is_part, out >= to.begin && out < to.end);
                    sum += is_part ? upsample_share(&u, 1, in, out) : 0;
                }
                ck_assert_float_eq_tol(sum, 1, 1e-6f);
            }
        }
}

/* ---- Sums -------------------------------------------------------------------- */

/* The gradients of scale over more rows than fit in a chunk, and more than there are
 * chunks. */
TEST_EACH(scale_sums, 7) {
    static const int64_t rows[] = {1, 7, 8, 128, 129, 1000, 70000};
    enum { CHANNELS = 3 };
    int64_t n = rows[_i], chunks = scale_chunks(n);
    size_t bytes = (size_t)(n * CHANNELS) * sizeof(float);
    float *in = malloc(bytes), *diff = malloc(bytes);
    float *partial = malloc((size_t)(2 * chunks * CHANNELS) * sizeof(float));
    float factor[CHANNELS], bias[CHANNELS];
    ck_assert(in && diff && partial);
    for (int64_t i = 0; i < n * CHANNELS; i++) {
        in[i] = (float)(i % CHANNELS + 1);
        diff[i] = (float)(i % 4);
    }
    scale_args s = {.type = DLC_F32,
                    .rows = n,
                    .channels = CHANNELS,
                    .from = diff,
                    .in = in,
                    .partial = partial,
                    .factor_diff = factor,
                    .bias_diff = bias};
    ck_assert_int_eq(scale_sums_run(&s, NULL), cudaSuccess);
    for (int c = 0; c < CHANNELS;
         c++) { /* whole numbers, so the sum is exact in any order */
        double want = 0;
        for (int64_t r = 0; r < n; r++)
            want += (double)diff[r * CHANNELS + c];
        ck_assert_double_eq((double)bias[c], want);
        ck_assert_double_eq((double)factor[c], want * (c + 1));
    }
    free(in);
    free(diff);
    free(partial);
}
