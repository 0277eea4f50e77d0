/* Kernels of lrn_kernels.h within channels, compiled once for each instruction set
 * (vectors.h).
 *
 * A vector of each point of an image at a time: what neighbours need of each other is
 * written to a plane with zeros around it. Sums over a neighbourhood are sums of its
 * columns' sums, which a row of the image shares.
 */
#include "lrn_kernels.h"
#include "lrn_powers.h"
#include "per_isa.h"

enum { AHEAD = 4096 /* bytes that are fetched before they are needed */ };

/* A vector of all points of an image: how to access it and its first element. */
typedef struct slice {
    access v;
    size_t at;
} slice;

/* Vectors with margins. scaled: in the rows of `squares` that are no longer needed. */
typedef struct planes {
    size_t row; /* floats */
    float *squares, *shares, *columns;
} planes;

static size_t row_of(const lrn_plan *p) {
    return (p->columns + 2 * p->reach) * LANES;
}

static size_t plane_of(const lrn_plan *p) {
    return (p->rows + 2 * p->reach) * row_of(p);
}

static size_t plane_bytes(const lrn_plan *p) {
    return plane_of(p) * sizeof(float);
}

static size_t space_bytes(const lrn_plan *p) {
    return (2 * plane_of(p) + row_of(p)) * sizeof(float);
}

/* Margins are zero, and stay so. */
static planes planes_in(const lrn_plan *p, float *space) {
    memset(space, 0, space_bytes(p));
    return (planes){row_of(p), space, space + plane_of(p), space + 2 * plane_of(p)};
}

/* Element `x` of row `y`. */
ALWAYS size_t element_of(const lrn_plan *p, const slice *s, size_t y, size_t x) {
    return s->at + (y * p->columns + x) * p->lanes;
}

ALWAYS void keep_squares(const lrn_plan *p, const slice *s, const void *in,
                         const planes *r) {
    for (size_t y = 0; y < p->rows; y++) {
        float *to = r->squares + (y + p->reach) * r->row + p->reach * LANES;
        for (size_t x = 0; x < p->columns; x++) {
            const char *from = element(s->v, in, element_of(p, s, y, x));
            __builtin_prefetch(from + AHEAD);
            vec value = load(s->v, from);
            *vec_to(to + x * LANES) = value * value;
        }
    }
}

/* Sums of the columns of `plane` around row `y`; `reach` is a constant if common. */
ALWAYS void sum_columns(const lrn_plan *p, size_t reach, const float *plane, size_t y,
                        const planes *r) {
    for (size_t x = reach * LANES; x < (p->columns + reach) * LANES; x += LANES) {
        vec sum = *vec_at(plane + y * r->row + x);
        for (size_t d = 1; d <= 2 * reach; d++)
            sum += *vec_at(plane + (y + d) * r->row + x);
        *vec_to(r->columns + x) = sum;
    }
}

ALWAYS vec sum_around(size_t reach, const planes *r, size_t x) {
    vec sum = *vec_at(r->columns + x * LANES);
    for (size_t d = 1; d <= 2 * reach; d++)
        sum += *vec_at(r->columns + (x + d) * LANES);
    return sum;
}

ALWAYS void normalise(const lrn_plan *p, size_t reach, const slice *s, const planes *r,
                      const void *in, void *out) {
    keep_squares(p, s, in, r);
    for (size_t y = 0; y < p->rows; y++) {
        sum_columns(p, reach, r->squares, y, r);
        for (size_t x = 0; x < p->columns; x++) {
            size_t i = element_of(p, s, y, x);
            powers power = powers_of(p->k + p->factor * sum_around(reach, r, x));
            vec value = load(s->v, element(s->v, in, i));
            put(s->v, p->stream, element_to(s->v, out, i),
                value * power.minus_three_quarters);
        }
    }
}

/* As lrn_kernels.c has it. */
ALWAYS void gradient(const lrn_plan *p, size_t reach, const slice *s, const planes *r,
                     const void *in, const void *out_diff, void *in_diff) {
    memset(r->squares, 0, reach * r->row * sizeof(float)); /* overwritten below */
    keep_squares(p, s, in, r);
    for (size_t y = 0; y < p->rows; y++) {
        float *scaled = r->squares + y * r->row;
        float *shares = r->shares + (y + reach) * r->row + reach * LANES;
        sum_columns(p, reach, r->squares, y, r);
        for (size_t x = 0; x < p->columns; x++) {
            size_t i = element_of(p, s, y, x);
            powers power = powers_of(p->k + p->factor * sum_around(reach, r, x));
            const char *from = element(s->v, out_diff, i);
            __builtin_prefetch(from + AHEAD);
            vec diff = load(s->v, from) * power.minus_three_quarters;
            vec value = load(s->v, element(s->v, in, i));
            *vec_to(scaled + x * LANES) = diff;
            *vec_to(shares + x * LANES) = diff * value * power.minus_one;
        }
    }
    for (size_t y = 0; y < p->rows; y++) {
        const float *scaled = r->squares + y * r->row;
        sum_columns(p, reach, r->shares, y, r);
        for (size_t x = 0; x < p->columns; x++) {
            size_t i = element_of(p, s, y, x);
            vec others = sum_around(reach, r, x) * (1.5f * p->factor);
            vec value = load(s->v, element(s->v, in, i));
            put(s->v, p->stream, element_to(s->v, in_diff, i),
                *vec_at(scaled + x * LANES) - others * value);
        }
    }
}

/* Runs `call` for all vectors `s` of planes. */
#define FOR_SLICES(plan_, bf16_, first_, end_, call) \
    for (size_t u_ = (first_); u_ < (end_); u_++) { \
        size_t l_ = 0, at_ = u_ * (plan_)->points * (plan_)->lanes; \
        for (; l_ + LANES <= (plan_)->lanes; l_ += LANES) { \
            const slice s = {{bf16_, 0, LANES}, at_ + l_}; \
            call; \
        } \
        if (l_ < (plan_)->lanes) { \
            const slice s = {{bf16_, 1, (plan_)->lanes - l_}, at_ + l_}; \
            call; \
        } \
    }

/* Backward if there is an out_diff. Copies of the arguments, which no store can change,
 * stay in registers. */
ALWAYS void run_planes(int bf16, size_t reach, const lrn_plan *plan, size_t first,
                       size_t end, const void *in, const void *out_diff, void *to,
                       float *space) {
    const lrn_plan copy = *plan, *p = &copy;
    const planes r = planes_in(p, space);
    if (out_diff)
        FOR_SLICES(p, bf16, first, end, gradient(p, reach, &s, &r, in, out_diff, to))
    else
        FOR_SLICES(p, bf16, first, end, normalise(p, reach, &s, &r, in, to))
    if (p->stream)
        stream_end();
}

static void backward(const lrn_plan *plan, size_t first, size_t end, const void *in,
                     const void *out_diff, void *in_diff, float *space) {
    if (plan->bf16)
        run_planes(1, plan->reach, plan, first, end, in, out_diff, in_diff, space);
    else if (plan->reach == 1)
        run_planes(0, 1, plan, first, end, in, out_diff, in_diff, space);
    else
        run_planes(0, plan->reach, plan, first, end, in, out_diff, in_diff, space);
}

static void forward(const lrn_plan *plan, size_t first, size_t end, const void *in,
                    void *out, float *space) {
    backward(plan, first, end, in, NULL, out, space);
}

const lrn_plane_kernels PER_ISA(lrn_plane_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .plane_bytes = plane_bytes,
    .space_bytes = space_bytes,
    .forward = forward,
    .backward = backward,
};
