/* Kernels of channels.h, compiled once for each instruction set (vectors.h).
 *
 * A kernel processes its chunk one column after the other, and each image of a column
 * in one or two *strips*. A column is one vector of channels, or WIDE vectors if there
 * are so many adjacent channels.
 */
#include "channels.h"
#include "per_isa.h"
#include "vectors.h"

/* Vectors processed together, so that sums don't wait for each other: points of one
 * vector of channels, or several vectors of channels. */
enum { WIDE = 4, COLUMN = WIDE * LANES };
_Static_assert(CHANNEL_GROUP % COLUMN == 0, "whole columns");

/* ---- Addresses ------------------------------------------------------------------ */

/* `count` vectors, each of `lanes` elements, or of WIDE adjacent vectors. */
typedef struct strip {
    size_t at, step, count;
    size_t lanes;
} strip;

/* The part of a chunk within one image is [first, first + points). */
typedef struct extent {
    size_t image, images, first, points;
} extent;

static extent extent_of(const channel_chunk *at) {
    const channel_view *v = at->task->view;
    if (v->together > 1) {
        size_t image = at->chunk * v->together, left = v->images - image;
        return (extent){image, left < v->together ? left : v->together, 0, v->points};
    }
    size_t first = at->chunk % v->pieces * v->piece, left = v->points - first;
    return (extent){at->chunk / v->pieces, 1, first, left < v->piece ? left : v->piece};
}

/* A column of a group: its first channel, and the number of channels from there on, at
 * most as many as a column holds. */
typedef struct column {
    size_t first, lanes;
} column;

static int column_next(const channel_chunk *at, column *c) {
    const channel_view *v = at->task->view;
    size_t start = at->group * v->group;
    c->first += v->along ? c->lanes != 0 : c->lanes;
    if (c->first >= v->group || start + c->first >= v->blocks * v->side)
        return 0;
    size_t left = v->side - (start + c->first) % v->side;
    c->lanes = left >= COLUMN ? COLUMN : left < LANES ? left : LANES;
    return 1;
}

/* The strips of one image. */
static int strips_of(const channel_chunk *at, const extent *e, size_t image,
                     const column *c, strip s[2]) {
    const channel_view *v = at->task->view;
    size_t channel = at->group * v->group + c->first;
    size_t base = image * v->image_step + channel / v->side * v->block_step +
                  channel % v->side + e->first * v->point_step;
    if (!v->along) {
        s[0] = (strip){base, v->point_step, e->points, c->lanes};
        return 1;
    }
    size_t whole = e->points / LANES, rest = e->points % LANES;
    s[0] = (strip){base, LANES, whole, LANES};
    s[1] = (strip){base + whole * LANES, LANES, 1, rest};
    return rest ? 2 : 1;
}

/* ---- Compile-time variants ------------------------------------------------------ */

/* A compile-time constant in every use. */
typedef struct kind {
    access vector;
    size_t wide; /* vectors of channels of the column: 1 or WIDE */
    limit_kind limit;
    int residual;
} kind;

/* Runs `call` with `k` for each strip `s` of the column `c`. */
#define FOR_STRIPS(at_, extent_, column_, bf16_, limit_, join_, call) \
    for (size_t image_ = 0; image_ < (extent_)->images; image_++) { \
        strip both_[2]; \
        int count_ = strips_of(at_, extent_, (extent_)->image + image_, column_, \
                               both_); \
        for (int n_ = 0; n_ < count_; n_++) { \
            const strip *s = &both_[n_]; \
            if (s->lanes == LANES) { \
                const kind k = {{bf16_, 0, LANES}, 1, limit_, join_}; \
                call; \
            } else if (s->lanes > LANES) { \
                const kind k = {{bf16_, 0, LANES}, WIDE, limit_, join_}; \
                call; \
            } else { \
                const kind k = {{bf16_, 1, s->lanes}, 1, limit_, join_}; \
                call; \
            } \
        } \
    }

/* Runs `call` with `i`, an element, and `u`, the index of its vector among WIDE.
 * `sums`: points of one vector of channels alternate. */
#define FOR_VECTORS(k_, s_, sums, call) \
    do { \
        size_t j_ = 0; \
        for (; (k_).wide == WIDE && j_ < (s_)->count; j_++) \
            EACH(u, WIDE) { \
                const size_t i = (s_)->at + j_ * (s_)->step + u * LANES; \
                call; \
            } \
        for (; (sums) && !(k_).vector.partial && j_ + WIDE <= (s_)->count; j_ += WIDE) \
            EACH(u, WIDE) { \
                const size_t i = (s_)->at + (j_ + u) * (s_)->step; \
                call; \
            } \
        for (; (k_).wide == 1 && j_ < (s_)->count; j_++) { \
            const size_t i = (s_)->at + j_ * (s_)->step, u = 0; \
            call; \
        } \
    } while (0)

/* Runs `call(bf16, limit, residual, ...)` with constants. */
#define FOR_LIMIT(call, bf16_, limit_, join_, ...) \
    switch (limit_) { \
    case LIMIT_NONE: \
        call(bf16_, LIMIT_NONE, join_, __VA_ARGS__); \
        break; \
    case LIMIT_RELU: \
        call(bf16_, LIMIT_RELU, join_, __VA_ARGS__); \
        break; \
    default: \
        call(bf16_, LIMIT_ANY, join_, __VA_ARGS__); \
    }
#define FOR_KIND(call, task_, limit_, join_, ...) \
    do { \
        if ((task_)->view->bf16 && (join_)) \
            FOR_LIMIT(call, 1, limit_, 1, __VA_ARGS__) \
        else if ((task_)->view->bf16) \
            FOR_LIMIT(call, 1, limit_, 0, __VA_ARGS__) \
        else if (join_) \
            FOR_LIMIT(call, 0, limit_, 1, __VA_ARGS__) \
        else \
            FOR_LIMIT(call, 0, limit_, 0, __VA_ARGS__) \
    } while (0)

/* ---- Values per channel --------------------------------------------------------- */

typedef struct terms {
    vec mean[WIDE], factor[WIDE], add[WIDE], diff_mean[WIDE], diff_slope[WIDE];
    limits limit;
} terms;

static inline void term(const channel_view *v, const float *values, const column *c,
                        vec to[WIDE]) {
    for (size_t u = 0; u < WIDE; u++) {
        const float *from = values + c->first + u * LANES;
        if (v->along)
            to[u] = (vec){0} + values[c->first];
        else
            to[u] = u * LANES < c->lanes ? (vec) * (const vec_there *)(const void *)from
                                         : to[0];
    }
}

static terms terms_of(const channel_task *task, const channel_values *values,
                      const column *c) {
    terms t = {.limit = limits_of(&task->limit)};
    term(task->view, values->mean, c, t.mean);
    term(task->view, values->factor, c, t.factor);
    term(task->view, values->add, c, t.add);
    term(task->view, values->diff_mean, c, t.diff_mean);
    term(task->view, values->diff_slope, c, t.diff_slope);
    return t;
}

/* Used by forward and backward, which must get bitwise identical results. */
ALWAYS vec normal(const terms *t, size_t u, vec centred) {
    return centred * t->factor[u] + t->add[u];
}

/* ---- Sums ----------------------------------------------------------------------- */

typedef struct partial_sums {
    vec first[WIDE], second[WIDE];
} partial_sums;

/* Replaces missing lanes by zero. */
ALWAYS vec there(access vector, vec v) {
    return vector.partial ? choose(first_lanes(vector.lanes), v, (vec){0}) : v;
}

/* A column of one vector has four partial sums of the same channels. */
static void sums_fold(const column *c, partial_sums *p) {
    if (c->lanes > LANES)
        return;
    p->first[0] = (p->first[0] + p->first[1]) + (p->first[2] + p->first[3]);
    p->second[0] = (p->second[0] + p->second[1]) + (p->second[2] + p->second[3]);
}

/* If vectors hold elements of one channel, all lanes belong to it. */
static void sums_keep(const channel_view *v, const column *c, partial_sums *p,
                      double *sums) {
    float a[COLUMN], b[COLUMN];
    sums_fold(c, p);
    memcpy(a, p->first, sizeof a);
    memcpy(b, p->second, sizeof b);
    double *first = sums + c->first, *second = first + v->group;
    if (v->along)
        *first = *second = 0;
    for (size_t i = 0; v->along && i < LANES; i++) {
        *first += (double)a[i];
        *second += (double)b[i];
    }
    for (size_t i = 0; !v->along && i < c->lanes; i++) {
        first[i] = (double)a[i];
        second[i] = (double)b[i];
    }
}

/* Converts sums of d = x - shift, which don't cancel, to sums of x, in double
 * precision. */
static void unshift(const channel_view *v, const column *c, const vec shift[WIDE],
                    double n, double *sums) {
    float shifts[COLUMN];
    memcpy(shifts, shift, sizeof shifts);
    for (size_t i = 0; i < (v->along ? 1 : c->lanes); i++) {
        double *first = sums + c->first + i, *second = first + v->group;
        double by = (double)shifts[i];
        *second += 2 * by * *first + n * by * by;
        *first += n * by;
    }
}

/* One value of each channel, the first of the chunk. */
static void shifts_of(const channel_task *task, const strip *s, const column *c,
                      vec shift[WIDE]) {
    int bf16 = task->view->bf16, along = task->view->along;
    for (size_t u = 0; u < WIDE; u++) {
        size_t lanes = along ? 1 : c->lanes < LANES ? c->lanes : LANES;
        const access vector = {bf16, 1, lanes};
        size_t i = s->at + (u * LANES < c->lanes ? u * LANES : 0);
        vec value = load_some(vector, element(vector, task->x, along ? s->at : i));
        shift[u] = value;
        if (along)
            shift[u] = (vec){0} + value[0];
    }
}

ALWAYS void sum_one(kind k, const void *x, vec shift, vec *first, vec *second) {
    vec d = there(k.vector, load(k.vector, x) - shift);
    *first += d;
    *second += d * d;
}

ALWAYS void sum_strip(kind k, const strip *s, const void *x, const vec shift[WIDE],
                      partial_sums *p) {
    FOR_VECTORS(
        k, s, 1,
        sum_one(k, element(k.vector, x, i), shift[u], &p->first[u], &p->second[u]));
}

ALWAYS void sum_of(int bf16, const channel_chunk *at, double *sums) {
    const channel_task *task = at->task;
    const extent e = extent_of(at);
    for (column c = {0, 0}; column_next(at, &c);) {
        partial_sums p = {0};
        strip s0[2];
        vec shift[WIDE];
        (void)strips_of(at, &e, e.image, &c, s0);
        shifts_of(task, s0, &c, shift);
        FOR_STRIPS(at, &e, &c, bf16, LIMIT_NONE, 0, sum_strip(k, s, task->x, shift, &p))
        sums_keep(task->view, &c, &p, sums);
        unshift(task->view, &c, shift, (double)(e.images * e.points), sums);
    }
}

static void sum(const channel_chunk *at, const channel_values *values, double *sums) {
    (void)values;
    if (at->task->view->bf16)
        sum_of(1, at, sums);
    else
        sum_of(0, at, sums);
}

/* With a fused sum, y tells where the activation bounded; else its input is recomputed.
 */
ALWAYS void sum_back_one(kind k, const channel_task *task, size_t i, const terms *t,
                         size_t u, vec *first, vec *second) {
    const access v = k.vector;
    vec centred = load(v, element(v, task->x, i)) - t->mean[u];
    vec diff = load(v, element(v, task->out_diff, i));
    if (k.residual) {
        if (k.limit != LIMIT_NONE)
            diff = bounded_gradient(k.limit, &t->limit, load(v, element(v, task->y, i)),
                                    diff);
        store(v, element_to(v, task->other_diff, i), diff);
    } else {
        diff = bounded_gradient(k.limit, &t->limit, normal(t, u, centred), diff);
    }
    *first += diff; /* zero in missing lanes */
    *second += diff * there(v, centred);
}

ALWAYS void sum_back_strip(kind k, const strip *s, const channel_task *task,
                           const terms *t, partial_sums *p) {
    FOR_VECTORS(k, s, 1, sum_back_one(k, task, i, t, u, &p->first[u], &p->second[u]));
}

ALWAYS void sum_back_of(int bf16, limit_kind limit, int residual,
                        const channel_chunk *at, const channel_values *values,
                        double *sums) {
    const channel_task task = *at->task; /* a copy that no store can alias */
    const extent e = extent_of(at);
    for (column c = {0, 0}; column_next(at, &c);) {
        const terms t = terms_of(&task, values, &c);
        partial_sums p = {0};
        FOR_STRIPS(at, &e, &c, bf16, limit, residual,
                   sum_back_strip(k, s, &task, &t, &p))
        sums_keep(at->task->view, &c, &p, sums);
    }
}

static void sum_back(const channel_chunk *at, const channel_values *values,
                     double *sums) {
    const channel_task *task = at->task;
    FOR_KIND(sum_back_of, task, limit_kind_of(&task->limit), task->other_diff != NULL,
             at, values, sums);
}

/* ---- Results ------------------------------------------------------------------- */

ALWAYS void put(kind k, const channel_task *task, void *to, vec v) {
    if (!k.vector.partial && task->stream)
        store_stream(k.vector, to, v);
    else
        store(k.vector, to, v);
}

ALWAYS void apply_one(kind k, const channel_task *task, size_t i, const terms *t,
                      size_t u) {
    const access v = k.vector;
    vec value = normal(t, u, load(v, element(v, task->x, i)) - t->mean[u]);
    if (k.residual)
        value += load(v, element(v, task->other, i));
    put(k, task, element_to(v, task->y, i), bounded(k.limit, &t->limit, value));
}

ALWAYS void apply_strip(kind k, const strip *s, const channel_task *task,
                        const terms *t) {
    FOR_VECTORS(k, s, 0, apply_one(k, task, i, t, u));
}

ALWAYS void apply_of(int bf16, limit_kind limit, int residual, const channel_chunk *at,
                     const channel_values *values) {
    const channel_task task = *at->task; /* a copy that no store can alias */
    const extent e = extent_of(at);
    for (column c = {0, 0}; column_next(at, &c);) {
        const terms t = terms_of(&task, values, &c);
        FOR_STRIPS(at, &e, &c, bf16, limit, residual, apply_strip(k, s, &task, &t))
    }
}

static void apply(const channel_chunk *at, const channel_values *values) {
    const channel_task *task = at->task;
    FOR_KIND(apply_of, task, limit_kind_of(&task->limit), task->other != NULL, at,
             values);
    stream_end();
}

ALWAYS void apply_back_one(kind k, const channel_task *task, size_t i, const terms *t,
                           size_t u) {
    const access v = k.vector;
    vec centred = load(v, element(v, task->x, i)) - t->mean[u];
    vec diff;
    if (k.residual)
        diff = load(v, element(v, task->other_diff, i));
    else
        diff = bounded_gradient(k.limit, &t->limit, normal(t, u, centred),
                                load(v, element(v, task->out_diff, i)));
    put(k, task, element_to(v, task->in_diff, i),
        t->factor[u] * (diff - (t->diff_mean[u] + centred * t->diff_slope[u])));
}

ALWAYS void apply_back_strip(kind k, const strip *s, const channel_task *task,
                             const terms *t) {
    FOR_VECTORS(k, s, 0, apply_back_one(k, task, i, t, u));
}

ALWAYS void apply_back_of(int bf16, limit_kind limit, int residual,
                          const channel_chunk *at, const channel_values *values) {
    const channel_task task = *at->task; /* a copy that no store can alias */
    const extent e = extent_of(at);
    for (column c = {0, 0}; column_next(at, &c);) {
        const terms t = terms_of(&task, values, &c);
        FOR_STRIPS(at, &e, &c, bf16, limit, residual, apply_back_strip(k, s, &task, &t))
    }
}

static void apply_back(const channel_chunk *at, const channel_values *values) {
    const channel_task *task = at->task;
    if (task->other_diff && task->view->bf16)
        apply_back_of(1, LIMIT_NONE, 1, at, values);
    else if (task->other_diff)
        apply_back_of(0, LIMIT_NONE, 1, at, values);
    else
        FOR_KIND(apply_back_of, task, limit_kind_of(&task->limit), 0, at, values);
    stream_end();
}

const channel_kernels PER_ISA(channels_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .sum = sum,
    .apply = apply,
    .sum_back = sum_back,
    .apply_back = apply_back,
};
