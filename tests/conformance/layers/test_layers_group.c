/* Batch normalisation over the samples of several ranks: outputs, gradients and running
 * averages are those of one rank with all samples, however these are split. */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "../../../plugins/layers/shared/moments.h"
#include "base/status.h"
#include "config/config.h"
#include "fake_group.h"
#include "support/test.h"
#include "target.h"

static const dlc_shape shapes[] = {
    {4, {16, 3, 2, 2}}, {4, {16, 16, 5, 5}}, {4, {16, 70, 2, 1}}, {2, {16, 24}}};
static const char *const layouts[] = {NULL, "last", "blocked"};

/* Samples of each rank, and the order of reduction: one node, or two with ranks 0 and
 * 2, and 1 and 3. */
typedef struct split {
    int32_t ranks;
    int64_t samples[FAKE_RANKS];
    dlc_merge merges[FAKE_RANKS - 1];
} split;

static const split splits[] = {
    {2, {8, 8}, {{0, 1}}},
    {2, {12, 4}, {{0, 1}}},
    {3, {1, 0, 15}, {{0, 1}, {0, 2}}},
    {4, {5, 7, 3, 1}, {{0, 2}, {1, 3}, {0, 1}}},
};

static layer_spec spec_of(int shape, int layout) {
    layer_spec spec = {.type = "batch_norm",
                       .settings = "statistics=global",
                       .in = {shapes[shape]},
                       .layout = shapes[shape].rank == 4 ? layouts[layout] : NULL};
    return spec;
}

typedef struct parts {
    const split *how;
    fake_group group;
    fixture whole, part[FAKE_RANKS];
    int64_t first[FAKE_RANKS + 1]; /* sample of each part */
} parts;

/* Elements of one sample. */
static int64_t sample_of(const parts *p) {
    return fixture_in_count(&p->whole, 0) / p->whole.in[0].shape.dims[0];
}

static void open_part(parts *p, int r, layer_spec spec) {
    fixture *part = &p->part[r];
    int64_t samples = p->how->samples[r], size = sample_of(p);
    size_t bytes = (size_t)(samples * size) * sizeof(float);
    p->first[r + 1] = p->first[r] + samples;
    spec.group = &p->group.rank[r].table;
    spec.empty = samples == 0;
    spec.in[0].dims[0] = samples ? samples : 2;
    ck_assert_msg(fixture_open(part, &spec) == DLC_OK, "%s", dlc_detail());
    ck_assert_int_eq(part->shapes.collective, 1);
    for (int32_t i = 0; i < part->memory.inputs; i++)
        memcpy(part->in_data[i], p->whole.in_data[i] + p->first[r] * size, bytes);
    memcpy(part->out_diff, p->whole.out_diff + p->first[r] * size, bytes);
}

static void parts_open(parts *p, const split *how, const layer_spec *spec) {
    *p = (parts){.how = how};
    fake_group_open(&p->group, how->ranks, how->merges);
    ck_assert_msg(fixture_open(&p->whole, spec) == DLC_OK, "%s", dlc_detail());
    fill_fixture(&p->whole);
    for (int r = 0; r < how->ranks; r++)
        open_part(p, r, *spec);
}

static void parts_close(parts *p) {
    for (int r = 0; r < p->how->ranks; r++)
        fixture_close(&p->part[r]);
    fixture_close(&p->whole);
    fake_group_close(&p->group);
}

/* The values with which the whole layer starts. */
static void set_params(parts *p, const fixture *from) {
    for (int r = 0; r < p->how->ranks; r++)
        for (int32_t i = 0; i < from->memory.params; i++)
            memcpy(p->part[r].param_data[i], from->param_data[i],
                   (size_t)fixture_param_count(from, i) * sizeof(float));
}

static void backward_parts(parts *p) {
    for (p->group.replays = 0; p->group.replays < 2; p->group.replays++)
        for (int r = 0; r < p->how->ranks; r++)
            ck_assert_int_eq(fixture_backward(&p->part[r]), DLC_OK);
    ck_assert_int_eq(fixture_backward(&p->whole), DLC_OK);
}

/* Forward keeps the running averages that each rank has computed. */
static void forward_parts(parts *p) {
    fixture *whole = &p->whole;
    for (p->group.replays = 0; p->group.replays < 2; p->group.replays++) {
        set_params(p, whole);
        for (int r = 0; r < p->how->ranks; r++)
            ck_assert_int_eq(fixture_forward(&p->part[r]), DLC_OK);
    }
    ck_assert_int_eq(fixture_forward(whole), DLC_OK);
}

static void near(const char *what, const float *found, const float *want, int64_t count,
                 double tolerance) {
    double most = 1e-6;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs((double)found[i] - (double)want[i]) <= tolerance * most,
                      "%s %lld is %g, not %g", what, (long long)i, (double)found[i],
                      (double)want[i]);
}

static void compare_samples(const parts *p, double tolerance) {
    int64_t size = sample_of(p);
    for (int r = 0; r < p->how->ranks; r++) {
        const fixture *part = &p->part[r];
        int64_t at = p->first[r] * size, count = p->how->samples[r] * size;
        near("output", part->out_data, p->whole.out_data + at, count, tolerance);
        for (int32_t i = 0; i < part->memory.inputs; i++)
            near("gradient", part->in_diff[i], p->whole.in_diff[i] + at, count,
                 tolerance);
    }
}

/* Gradients add up over the ranks; running averages are bitwise the same on all. */
static void compare_params(parts *p, double tolerance) {
    for (int32_t i = 0; i < p->whole.memory.params; i++) {
        int64_t count = fixture_param_count(&p->whole, i);
        if (p->whole.param[i].flags & DLC_PARAM_BUFFER) {
            near("average", p->part[0].param_data[i], p->whole.param_data[i], count,
                 tolerance);
            for (int r = 1; r < p->how->ranks; r++)
                check_same_bits(p->part[0].param_data[i], p->part[r].param_data[i],
                                count);
            continue;
        }
        for (int64_t k = 0; k < count; k++) {
            double sum = 0;
            for (int r = 0; r < p->how->ranks; r++)
                sum += p->how->samples[r] ? (double)p->part[r].param_diff[i][k] : 0;
            p->part[0].param_diff[i][k] = (float)sum;
        }
        near("parameter's gradient", p->part[0].param_diff[i], p->whole.param_diff[i],
             count, tolerance);
    }
}

static void check_split(const split *how, const layer_spec *spec, double tolerance) {
    parts p;
    parts_open(&p, how, spec);
    forward_parts(&p);
    backward_parts(&p);
    compare_samples(&p, tolerance);
    compare_params(&p, tolerance);
    parts_close(&p);
}

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

/* Parts of a set of numbers, one of them empty, combined in two orders. */
TEST(formula) {
    static const double x[] = {1e6 + 1, 1e6 - 2, 1e6 + 4, 1e6 - 0.5, 1e6 + 8};
    static const int end[] = {0, 2, 2, 3, 5};
    moments part[4], all = {0, 0, 0};
    double mean = 0, m2 = 0;
    for (int i = 0; i < 5; i++)
        mean += x[i] / 5;
    for (int i = 0; i < 5; i++)
        m2 += (x[i] - mean) * (x[i] - mean);
    for (int p = 0; p < 4; p++) {
        part[p] = (moments){0, 0, 0};
        for (int i = end[p]; i < end[p + 1]; i++)
            part[p] = moments_merge(part[p], moments_of(1, x[i], 0));
        all = moments_merge(all, part[p]);
    }
    moments pairs = moments_merge(moments_merge(part[0], part[1]),
                                  moments_merge(part[2], part[3]));
    ck_assert_double_eq(all.count, 5);
    ck_assert_double_eq(pairs.count, 5);
    ck_assert_double_eq_tol(all.mean, mean, 1e-9);
    ck_assert_double_eq_tol(pairs.mean, mean, 1e-9);
    ck_assert_double_eq_tol(moments_variance(all), m2 / 5, 1e-8);
    ck_assert_double_eq_tol(moments_unbiased(pairs), m2 / 4, 1e-8);
    ck_assert_double_eq(moments_merge((moments){0, 0, 0}, (moments){0, 0, 0}).m2, 0);
}

TEST_EACH(like_one_rank, COUNT(shapes)) {
    for (int layout = 0; layout < COUNT(layouts); layout++)
        for (int k = 0; k < COUNT(splits); k++) {
            layer_spec spec = spec_of(_i, layout);
            check_split(&splits[k], &spec, 1e-5);
            spec.fused = k % 2 ? "" : "negative_slope=0.25";
            spec.residual = layout % 2;
            check_split(&splits[k], &spec, 1e-5);
        }
}

TEST(without_scale) {
    layer_spec spec = spec_of(1, 1);
    spec.settings = "statistics=global scale_bias=no";
    check_split(&splits[3], &spec, 1e-5);
}

/* Statistics are not rounded to 16 bits on their way. */
TEST(bfloat16) {
    if (!fixture_has(DLC_BF16))
        return;
    for (int k = 0; k < COUNT(splits); k++) {
        layer_spec spec = spec_of(1, 1);
        spec.floats = DLC_BF16;
        parts p;
        parts_open(&p, &splits[k], &spec);
        forward_parts(&p);
        compare_params(&p, 1e-5);
        parts_close(&p);
    }
}

/* Where sums of squares lose the variance; and one sample a rank. */
TEST(far_from_zero) {
    static const split single = {3, {1, 1, 1}, {{0, 1}, {0, 2}}};
    layer_spec spec = spec_of(3, 0);
    spec.settings = "statistics=global momentum=0";
    spec.in[0].dims[0] = 3;
    parts p;
    parts_open(&p, &single, &spec);
    int64_t channels = spec.in[0].dims[1];
    for (int64_t i = 0; i < 3 * channels; i++)
        p.whole.in_data[0][i] = 4096 + (float)(i / channels - 1) / 8;
    for (int r = 0; r < 3; r++)
        memcpy(p.part[r].in_data[0], p.whole.in_data[0] + r * channels,
               (size_t)channels * sizeof(float));
    forward_parts(&p);
    for (int64_t c = 0; c < channels; c++) {
        ck_assert_float_eq(p.part[0].param_data[2][c], 4096);
        ck_assert_float_eq(p.part[0].param_data[3][c], 1.0f / 64);
    }
    parts_close(&p);
}

/* What is computed a second time is not gathered again; nor are gradients of parameters
 * alone. */
TEST(gathers_once) {
    layer_spec spec = spec_of(1, 1);
    parts p;
    parts_open(&p, &splits[0], &spec);
    forward_parts(&p);
    const fake_rank *rank = &p.group.rank[0];
    int calls = rank->calls;
    ck_assert_int_eq(calls, 2);
    ck_assert_int_eq(fixture_recompute(&p.part[0]), DLC_OK);
    ck_assert_int_eq(rank->calls, calls);
    p.part[0].unwanted = 1;
    ck_assert_int_eq(fixture_backward(&p.part[0]), DLC_OK);
    ck_assert_int_eq(rank->calls, calls);
    parts_close(&p);
}

/* A layer with local statistics, or with running averages, leaves the group alone. */
TEST(others_do_not_gather) {
    static const char *const settings[] = {"",
                                           "statistics=global use_global_stats=yes"};
    for (int k = 0; k < COUNT(settings); k++) {
        fake_group group;
        fixture r;
        layer_spec spec = spec_of(1, 1);
        fake_group_open(&group, 2, splits[0].merges);
        spec.settings = settings[k];
        spec.group = &group.rank[0].table;
        run_fixture(&r, &spec);
        ck_assert_int_eq(r.shapes.collective, 0);
        ck_assert_int_eq(group.rank[0].calls, 0);
        fixture_close(&r);
        fake_group_close(&group);
    }
}

/* One number a channel has no variance, unless other ranks have more. */
TEST(needs_two_numbers) {
    fixture r;
    fake_group group;
    layer_spec spec = spec_of(3, 0);
    spec.in[0].dims[0] = 1;
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "no variance"));
    fixture_close(&r);
    fake_group_open(&group, 2, splits[0].merges);
    spec.group = &group.rank[0].table;
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    fixture_close(&r);
    fake_group_close(&group);
}
