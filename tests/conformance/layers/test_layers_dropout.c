/* dropout: its statistics, and that its choice depends only on (seed, layer, iteration,
 * element of the global batch). */
#include "checker.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "support/test.h"

static void open_ones(fixture *r, const layer_spec *spec) {
    ck_assert_int_eq(fixture_open(r, spec), DLC_OK);
    for (int64_t i = 0; i < fixture_in_count(r, 0); i++)
        r->in_data[0][i] = 1;
    ck_assert_int_eq(fixture_forward(r), DLC_OK);
}

static int same_output(const fixture *a, const fixture *b) {
    return memcmp(a->out_data, b->out_data,
                  (size_t)fixture_out_count(a) * sizeof(float)) == 0;
}

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

TEST(statistics) {
    static const struct {
        const char *settings;
        double ratio;
    } rows[] = {{"", 0.5}, {"ratio=0.1", 0.1}, {"ratio=0.9", 0.9}, {"ratio=0", 0}};
    for (int i = 0; i < COUNT(rows); i++) {
        fixture r;
        layer_spec spec = {.type = "dropout",
                           .settings = rows[i].settings,
                           .seed = 42,
                           .in = {SHAPE(100, 1001)}};
        open_ones(&r, &spec);
        int64_t zero = 0, count = fixture_out_count(&r);
        float left = (float)(1 / (1 - rows[i].ratio));
        for (int64_t k = 0; k < count; k++) {
            zero += r.out_data[k] == 0;
            if (!(r.out_data[k] == 0 || fabsf(r.out_data[k] - left) < 1e-5f))
                ck_abort_msg("%g is neither 0 nor %g", (double)r.out_data[k],
                             (double)left);
        }
        /* Five standard deviations. */
        double far = 5 * sqrt(rows[i].ratio * (1 - rows[i].ratio) * (double)count);
        ck_assert_double_le(fabs((double)zero - rows[i].ratio * (double)count), far);
        fixture_close(&r);
    }
}

/* Backward keeps the same elements as forward, scaled alike. */
TEST(backward) {
    static const char *const layouts[] = {NULL, "last", "blocked"};
    for (int i = 0; i < 6; i++) {
        fixture r;
        layer_spec spec = {.type = "dropout",
                           .settings = "ratio=0.3",
                           .layout = layouts[i / 2],
                           .in_place = i % 2,
                           .in = {SHAPE(3, 17, 4, 5)}};
        open_ones(&r, &spec);
        fill_values(r.out_diff, fixture_out_count(&r), 1, 1);
        ck_assert_int_eq(fixture_backward(&r), DLC_OK);
        for (int64_t k = 0; k < fixture_out_count(&r); k++)
            ck_assert_float_eq_tol(r.in_diff[0][k], r.out_diff[k] * r.out_data[k],
                                   1e-6f);
        fixture_close(&r);
    }
}

TEST(what_it_depends_on) {
    const layer_spec base = {.type = "dropout",
                             .settings = "",
                             .seed = 1,
                             .index = 2,
                             .iteration = 3,
                             .in = {SHAPE(8, 5, 3, 3)}};
    layer_spec spec = base;
    fixture first, other;
    open_ones(&first, &base);
    /* Must not depend on these. */
    spec.threads = 1;
    open_ones(&other, &spec);
    ck_assert(same_output(&first, &other));
    fixture_close(&other);
    spec = base;
    spec.layout = "last";
    open_ones(&other, &spec);
    ck_assert(same_output(&first, &other));
    fixture_close(&other);
    /* Must depend on these. */
    for (int i = 0; i < 4; i++) {
        spec = base;
        spec.seed += i == 0;
        spec.index += i == 1;
        spec.iteration += i == 2;
        spec.sample += i == 3;
        open_ones(&other, &spec);
        ck_assert(!same_output(&first, &other));
        fixture_close(&other);
    }
    fixture_close(&first);
}

/* Four ranks with two samples each draw what one rank with eight draws. */
TEST(ranks) {
    fixture whole, part;
    layer_spec spec = {
        .type = "dropout", .settings = "", .seed = 9, .in = {SHAPE(8, 5, 3, 3)}};
    open_ones(&whole, &spec);
    spec.in[0].dims[0] = 2;
    for (int rank = 0; rank < 4; rank++) {
        spec.sample = 2 * rank;
        open_ones(&part, &spec);
        ck_assert_mem_eq(part.out_data,
                         whole.out_data + rank * fixture_out_count(&part),
                         (size_t)fixture_out_count(&part) * sizeof(float));
        fixture_close(&part);
    }
    fixture_close(&whole);
}

/* The same elements in every family: results depend on the seed, and not on the device.
 * Element e of the global batch uses word e % 4 of block e / 4. */
TEST(bits) {
    static const struct {
        dlc_shape in;
        const char *layout;
    } cases[] = {{{2, {3, 8}}, NULL},
                 {{2, {3, 7}}, NULL},
                 {{4, {2, 3, 4, 5}}, NULL},
                 {{4, {2, 3, 4, 5}}, "last"},
                 {{4, {3, 20, 3, 3}}, "blocked"},
                 {{1, {5}}, NULL}};
    for (int i = 0; i < COUNT(cases); i++) {
        fixture r;
        layer_spec spec = {.type = "dropout",
                           .settings = "ratio=0.25",
                           .layout = cases[i].layout,
                           .seed = 0x123456789abcdef0u,
                           .index = 7,
                           .iteration = 3,
                           .sample = 1000001,
                           .in = {cases[i].in}};
        open_ones(&r, &spec);
        uint64_t count = (uint64_t)fixture_out_count(&r);
        uint64_t first = 1000001 * (count / (uint64_t)cases[i].in.dims[0]);
        for (uint64_t k = 0; k < count; k++) {
            uint32_t words[4];
            dlc_random_block(spec.seed, (uint64_t)3 << 32 | 7, (first + k) / 4, words);
            int kept = words[(first + k) % 4] >= 0x40000000u;
            if ((r.out_data[k] != 0) != kept)
                ck_abort_msg("case %d: element %llu", i, (unsigned long long)k);
        }
        fixture_close(&r);
    }
}

TEST(testing) {
    static const char *const layouts[] = {NULL, "last", "blocked"};
    for (int i = 0; i < 6; i++) {
        fixture r;
        layer_spec spec = {.type = "dropout",
                           .settings = "",
                           .phase = DLC_PHASE_TEST,
                           .layout = layouts[i / 2],
                           .in_place = i % 2,
                           .in = {SHAPE(3, 17, 4, 5)}};
        ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
        fill_values(r.in_data[0], fixture_in_count(&r, 0), 1, 1);
        ck_assert_int_eq(fixture_forward(&r), DLC_OK);
        ck_assert_double_eq(
            largest_difference(r.in_data[0], r.out_data, fixture_out_count(&r)), 0);
        fixture_close(&r);
    }
}
