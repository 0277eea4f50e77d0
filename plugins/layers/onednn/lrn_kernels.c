/* Kernels of lrn_kernels.h, compiled once for each instruction set (vectors.h).
 *
 * A few points at a time, what neighbours need of each other is written to memory that
 * stays in the L1 cache, channel by channel with zeros on both sides, and read again at
 * every offset.
 */
#include "lrn_kernels.h"
#include "lrn_powers.h"
#include "per_isa.h"

enum {
    MARGIN = 16,
    ROOM = LRN_MOST_CHANNELS + 2 * MARGIN,
    NEAR = 1024,  /* floats of all points at a time, if a point has fewer */
    AHEAD = 4096, /* bytes that are fetched before they are needed */
};
_Static_assert(LRN_MOST_SIZE / 2 <= MARGIN && LANES <= MARGIN, "zeros on both sides");

/* ---- Strips --------------------------------------------------------------------- */

/* Some points: the element of the first, and where each begins in the room. */
typedef struct strip {
    size_t at, points, row;
} strip;

ALWAYS size_t row_of(const lrn_plan *p) {
    size_t channels = p->blocks * p->lanes;
    return (channels + LANES - 1) / LANES * LANES + (size_t)2 * MARGIN;
}

/* Runs `call` with `i`, an element, `c`, its place in the room, and `v`, how to access
 * the vector there. In order of memory, and so that padding is overwritten. */
#define FOR_STRIP(plan_, bf16_, strip_, call) \
    for (size_t b_ = 0; b_ < (plan_)->blocks; b_++) \
        for (size_t q_ = 0; q_ < (strip_)->points; q_++) { \
            size_t e_ = (strip_)->at + (b_ * (plan_)->points + q_) * (plan_)->lanes; \
            size_t r_ = q_ * (strip_)->row + MARGIN + b_ * (plan_)->lanes, l_ = 0; \
            for (; l_ + LANES <= (plan_)->lanes; l_ += LANES) { \
                const access v = {bf16_, 0, LANES}; \
                const size_t i = e_ + l_, c = r_ + l_; \
                call; \
            } \
            if (l_ < (plan_)->lanes) { \
                const access v = {bf16_, 1, (plan_)->lanes - l_}; \
                const size_t i = e_ + l_, c = r_ + l_; \
                call; \
            } \
        }

ALWAYS size_t points_of(const strip *s) {
    return s->row < NEAR ? NEAR / s->row : 1;
}

/* What each element needs of the others, and of itself later on. */
typedef struct rooms {
    _Alignas(64) float x[ROOM], squares[ROOM], shares[ROOM], scaled[ROOM];
} rooms;

ALWAYS vec load_ahead(access v, const void *from, size_t i) {
    const char *at = element(v, from, i);
    __builtin_prefetch(at + AHEAD);
    return load(v, at);
}

ALWAYS void keep_square(access v, size_t i, size_t c, const void *in, rooms *r) {
    vec x = load_ahead(v, in, i);
    if (v.bf16)
        floats_to(r->x + c, x); /* not to be converted again */
    floats_to(r->squares + c, x * x);
}

ALWAYS vec x_of(access v, size_t i, size_t c, const void *in, const rooms *r) {
    return v.bf16 ? floats_at(r->x + c) : load(v, element(v, in, i));
}

/* The sum over the neighbourhood; `reach` is a constant if it is common. */
ALWAYS vec sum_around(const float *room, size_t c, size_t reach) {
    vec sum = floats_at(room + c);
    for (size_t d = 1; d <= reach; d++)
        sum += floats_at(room + c - d) + floats_at(room + c + d);
    return sum;
}

/* ---- Forward -------------------------------------------------------------------- */

ALWAYS void normalise(const lrn_plan *p, access v, size_t i, size_t c, size_t reach,
                      const rooms *r, const void *in, void *out) {
    powers s = powers_of(p->k + p->factor * sum_around(r->squares, c, reach));
    put(v, p->stream, element_to(v, out, i),
        x_of(v, i, c, in, r) * s.minus_three_quarters);
}

ALWAYS void strips_forward(const lrn_plan *plan, int bf16, size_t reach, size_t at,
                           size_t points, const void *in, void *out) {
    const lrn_plan copy = *plan, *p = &copy;
    strip s = {.at = at, .row = row_of(p)};
    size_t most = points_of(&s);
    rooms r;
    memset(r.squares, 0, sizeof r.squares);
    for (; points; points -= s.points, s.at += s.points * p->lanes) {
        s.points = points < most ? points : most;
        FOR_STRIP(p, bf16, &s, keep_square(v, i, c, in, &r))
        FOR_STRIP(p, bf16, &s, normalise(p, v, i, c, reach, &r, in, out))
    }
}

/* Runs `call(plan, bf16, reach, ...)` with constants. */
#define FOR_PLAN(call, plan_, ...) \
    do { \
        if ((plan_)->bf16 && (plan_)->reach == 2) \
            call(plan_, 1, 2, __VA_ARGS__); \
        else if ((plan_)->bf16) \
            call(plan_, 1, (plan_)->reach, __VA_ARGS__); \
        else if ((plan_)->reach == 2) \
            call(plan_, 0, 2, __VA_ARGS__); \
        else \
            call(plan_, 0, (plan_)->reach, __VA_ARGS__); \
        if ((plan_)->stream) \
            stream_end(); \
    } while (0)

static void forward(const lrn_plan *plan, size_t at, size_t points, const void *in,
                    void *out) {
    FOR_PLAN(strips_forward, plan, at, points, in, out);
}

/* ---- Backward ------------------------------------------------------------------- */

/* With s = k + factor * sum of squares:
 *   in_diff = out_diff * s^(-3/4) -
 *             3/2 * factor * in * sum of (out_diff * in * s^(-7/4)) */
ALWAYS void keep_share(const lrn_plan *p, access v, size_t i, size_t c, size_t reach,
                       const void *in, const void *out_diff, rooms *r) {
    powers s = powers_of(p->k + p->factor * sum_around(r->squares, c, reach));
    vec diff = load_ahead(v, out_diff, i) * s.minus_three_quarters;
    floats_to(r->scaled + c, diff);
    floats_to(r->shares + c, diff * x_of(v, i, c, in, r) * s.minus_one);
}

ALWAYS void gradient(const lrn_plan *p, access v, size_t i, size_t c, size_t reach,
                     const rooms *r, const void *in, void *in_diff) {
    vec others = sum_around(r->shares, c, reach) * (1.5f * p->factor);
    put(v, p->stream, element_to(v, in_diff, i),
        floats_at(r->scaled + c) - others * x_of(v, i, c, in, r));
}

ALWAYS void strips_backward(const lrn_plan *plan, int bf16, size_t reach, size_t at,
                            size_t points, const void *in, const void *out_diff,
                            void *in_diff) {
    const lrn_plan copy = *plan, *p = &copy;
    strip s = {.at = at, .row = row_of(p)};
    size_t most = points_of(&s);
    rooms r;
    memset(r.squares, 0, sizeof r.squares);
    memset(r.shares, 0, sizeof r.shares);
    for (; points; points -= s.points, s.at += s.points * p->lanes) {
        s.points = points < most ? points : most;
        FOR_STRIP(p, bf16, &s, keep_square(v, i, c, in, &r))
        FOR_STRIP(p, bf16, &s, keep_share(p, v, i, c, reach, in, out_diff, &r))
        FOR_STRIP(p, bf16, &s, gradient(p, v, i, c, reach, &r, in, in_diff))
    }
}

static void backward(const lrn_plan *plan, size_t at, size_t points, const void *in,
                     const void *out_diff, void *in_diff) {
    FOR_PLAN(strips_backward, plan, at, points, in, out_diff, in_diff);
}

const lrn_kernels PER_ISA(lrn_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .forward = forward,
    .backward = backward,
};
