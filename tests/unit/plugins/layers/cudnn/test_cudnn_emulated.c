/* Tests kernels with barriers and many blocks, emulated on the CPU, against plain
 * loops; the shapes do not divide evenly into threads, chunks and tiles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/bounds.h"
#include "bias.h"
#include "kernels/body.h"
#include "norm.h"
#include "reorder.h"
#include "support/test.h"

static const dlc_dtype types[] = {DLC_F32, DLC_BF16, DLC_F16};
enum { TYPES = 3 };

/* Values that every type represents; neighbours differ. */
static float value_at(int64_t i) {
    return (float)(i * 37 % 61 - 30) / 8;
}

static void *tensor_of(dlc_dtype type, int64_t count, int filled) {
    void *made = aligned_alloc(64, ((size_t)count * 4 + 63) / 64 * 64);
    ck_assert_ptr_nonnull(made);
    for (int64_t i = 0; i < count; i++)
        store_one(type, made, i, filled ? value_at(i) : -99);
    return made;
}

/* ---- Reorders ---------------------------------------------------------------- */

static int64_t place(const reorder_side *side, const reorder_job *job, int64_t n,
                     int64_t c, int64_t p) {
    return side->last ? (n * job->points + p) * side->channels + c
                      : (n * side->channels + c) * job->points + p;
}

static void check_reorder(const reorder_job *job) {
    const reorder_side *from = &job->from, *to = &job->to;
    int64_t read = job->images * from->channels * job->points,
            written = job->images * to->channels * job->points;
    void *src = tensor_of((dlc_dtype)from->dtype, read, 1);
    void *dst = tensor_of((dlc_dtype)to->dtype, written + 1, 0);
    ck_assert_int_eq(reorder_launch(job, src, dst, NULL), cudaSuccess);
    for (int64_t n = 0; n < job->images; n++)
        for (int64_t c = 0; c < to->channels; c++)
            for (int64_t p = 0; p < job->points; p++) {
                float expected = c < job->channels ? value_at(place(from, job, n, c, p))
                                                   : 0;
                float got = load_one((dlc_dtype)to->dtype, dst,
                                     place(to, job, n, c, p));
                ck_assert_msg(got == expected,
                              "%lldx%lldx%lld, last %d->%d, type %d->%d, channels "
                              "%lld->%lld: at %lld,%lld,%lld %g, not %g",
                              (long long)job->images, (long long)job->channels,
                              (long long)job->points, from->last, to->last, from->dtype,
                              to->dtype, (long long)from->channels,
                              (long long)to->channels, (long long)n, (long long)c,
                              (long long)p, (double)got, (double)expected);
            }
    ck_assert(load_one((dlc_dtype)to->dtype, dst, written) ==
              -99); /* nothing is written past the end */
    free(src);
    free(dst);
}

TEST_SETTINGS(.timeout = 60);

/* All orders, and padded channels on either side where it is channels last. */
TEST(reorders) {
    static const int64_t shapes[][3] = {{2, 3, 35}, {1, 1, 1}, {3, 33, 7}, {2, 40, 70}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int pair = 0; pair < TYPES * TYPES; pair++)
            for (int order = 0; order < 4; order++)
                for (int pad = 0; pad < 3; pad++) {
                    const int64_t *d = shapes[s];
                    reorder_job job = {
                        .images = d[0], .channels = d[1], .points = d[2]};
                    job.from = (reorder_side){(int)types[pair / TYPES], order & 1,
                                              d[1]};
                    job.to = (reorder_side){(int)types[pair % TYPES], order >> 1, d[1]};
                    if (pad == 1 && job.to.last)
                        job.to.channels += 5;
                    if (pad == 2 && job.from.last)
                        job.from.channels += 5;
                    check_reorder(&job);
                }
}

/* ---- Sums over many chunks --------------------------------------------------- */

static const int64_t matrices[][2] = {{700, 8}, {4000, 3}, {33, 300}, {1500, 64}};
enum { MATRICES = 4 };

static void near(double got, double expected, double scale, const char *what,
                 int64_t at) {
    ck_assert_msg(fabs(got - expected) <= scale, "%s of channel %lld: %g, not %g", what,
                  (long long)at, got, expected);
}

TEST(bias_and_activation) {
    const bounds relu = {.low = 0, .high = 3, .slope = 0};
    for (int m = 0; m < MATRICES * TYPES; m++) {
        dlc_dtype type = types[m % TYPES];
        const bias_job job = {.dtype = (int)type,
                              .rows = matrices[m / TYPES][0],
                              .channels = matrices[m / TYPES][1],
                              .low = relu.low,
                              .high = relu.high,
                              .slope = relu.slope,
                              .bounded = 1};
        int64_t count = job.rows * job.channels;
        void *y = tensor_of(type, count, 1), *dy = tensor_of(type, count, 1);
        float *diff = tensor_of(DLC_F32, job.channels, 0);
        double *sums = calloc((size_t)job.channels, sizeof *sums);
        void *scratch = tensor_of(DLC_F32, (int64_t)(bias_scratch(&job) / 4), 0);
        ck_assert_int_eq(bias_backward(&job, y, dy, diff, scratch, NULL), cudaSuccess);
        for (int64_t i = 0; i < count; i++) {
            float expected = bounds_gradient(&relu, value_at(i), value_at(i));
            ck_assert(load_one(type, dy, i) == expected);
            sums[i % job.channels] += (double)expected;
        }
        for (int64_t c = 0; c < job.channels; c++)
            near((double)diff[c], sums[c], 1e-2, "the bias' gradient", c);
        ck_assert_int_eq(bias_add(&job, diff, y, NULL), cudaSuccess);
        for (int64_t i = 0; i < count; i++) {
            float more = value_at(i) + diff[i % job.channels];
            double got = (double)load_one(type, y, i);
            near(got, (double)bounds_apply(&relu, more), 0.02, "a sum",
                 i % job.channels);
        }
        free(y), free(dy), free(diff), free(sums), free(scratch);
    }
}

/* A mean far from zero does not affect the variance; two runs are bitwise identical. */
TEST(statistics) {
    const float far = 4096;
    for (int m = 0; m < MATRICES; m++) {
        norm_job job = {.dtype = DLC_F32,
                        .rows = matrices[m][0],
                        .channels = matrices[m][1],
                        .epsilon = 1e-5f,
                        .momentum = 0.9f};
        int64_t count = job.rows * job.channels, n = job.channels;
        float *x = tensor_of(DLC_F32, count, 1), *kept = tensor_of(DLC_F32, 6 * n, 0);
        void *scratch = tensor_of(DLC_F32, (int64_t)(norm_scratch(&job) / 4), 0);
        for (int64_t i = 0; i < count; i++)
            x[i] += far;
        job.x = x;
        for (int64_t again = 0; again < 2; again++) {
            job.mean = kept + 2 * again * n;
            job.inverse = job.mean + n;
            job.running_mean = kept + 4 * n;
            job.running_variance = kept + 5 * n;
            ck_assert_int_eq(norm_statistics(&job, scratch, NULL), cudaSuccess);
        }
        ck_assert_mem_eq(kept, kept + 2 * n, (size_t)(2 * n) * sizeof(float));
        for (int64_t c = 0; c < n; c++) {
            double sum = 0, squares = 0, rows = (double)job.rows;
            for (int64_t r = 0; r < job.rows; r++)
                sum += (double)x[r * n + c];
            for (int64_t r = 0; r < job.rows; r++)
                squares += pow((double)x[r * n + c] - sum / rows, 2);
            near((double)kept[c], sum / rows, 1e-3, "the mean", c);
            near((double)kept[n + c], 1 / sqrt(squares / rows + 1e-5), 1e-5,
                 "one by the deviation", c);
        }
        free(x), free(kept), free(scratch);
    }
}

/* Statistics from sums that were computed elsewhere, in float32 from half precision:
 * the error grows with the mean as norm.h says. */
TEST(statistics_from_given_sums) {
    const double means[] = {0, 1, -8, 64}; /* the deviation is about 1 */
    for (int m = 0; m < MATRICES * 4; m++) {
        norm_job job = {.dtype = DLC_F16,
                        .rows = matrices[m / 4][0],
                        .channels = matrices[m / 4][1],
                        .epsilon = 1e-5f,
                        .momentum = 0.75f};
        int64_t n = job.channels;
        double mean = means[m % 4], rows = (double)job.rows;
        float *sums = tensor_of(DLC_F32, 2 * n, 0),
              *kept = tensor_of(DLC_F32, 4 * n, 0);
        job.sums = sums;
        job.squares = sums + n;
        job.mean = kept;
        job.inverse = kept + n;
        job.running_mean = kept + 2 * n;
        job.running_variance = kept + 3 * n;
        memset(kept, 0, (size_t)(4 * n) * sizeof *kept);
        double *variance = calloc((size_t)n, sizeof *variance);
        double *centre = calloc((size_t)n, sizeof *centre);
        ck_assert(variance && centre);
        for (int64_t c = 0; c < n; c++) {
            double one = 0, two = 0;
            for (int64_t r = 0; r < job.rows; r++)
                one += mean + (double)value_at(r * n + c);
            centre[c] = one / rows;
            for (int64_t r = 0; r < job.rows; r++) {
                double v = mean + (double)value_at(r * n + c);
                two += v * v;
                variance[c] += (v - centre[c]) * (v - centre[c]) / rows;
            }
            sums[c] = (float)one;
            sums[n + c] = (float)two;
        }
        ck_assert_int_eq(norm_statistics(&job, NULL, NULL), cudaSuccess);
        for (int64_t c = 0; c < n; c++) {
            double factor = 1 + centre[c] * centre[c] / variance[c];
            double unbiased = variance[c] * rows / (rows - 1);
            double inverse = 1 / sqrt(variance[c] + 1e-5);
            double small = 1e-7 * (1 + fabs(centre[c]));
            near((double)job.mean[c], centre[c], small, "the mean", c);
            near((double)job.inverse[c] / inverse, 1, 2.5e-7 * factor, "its inverse",
                 c);
            near((double)job.running_mean[c], 0.25 * centre[c], small, "averaged", c);
            near((double)job.running_variance[c] / (0.25 * unbiased), 1, 5e-7 * factor,
                 "the averaged variance", c);
        }
        free(sums), free(kept), free(variance), free(centre);
    }
}

/* A constant channel: rounding may make its variance negative. */
TEST(statistics_of_a_constant_channel) {
    float sums[] = {3.3f, 0}, squares[] = {3.62999f, 0}, kept[8] = {0};
    norm_job job = {.dtype = DLC_F16, .rows = 3, .channels = 2, .epsilon = 1e-4f};
    job.sums = sums;
    job.squares = squares;
    job.mean = kept;
    job.inverse = kept + 2;
    job.running_mean = kept + 4;
    job.running_variance = kept + 6;
    ck_assert_int_eq(norm_statistics(&job, NULL, NULL), cudaSuccess);
    for (int c = 0; c < 2; c++) {
        near((double)job.inverse[c], 100, 1e-4, "one by the deviation", c);
        ck_assert(job.running_variance[c] == 0);
    }
}
