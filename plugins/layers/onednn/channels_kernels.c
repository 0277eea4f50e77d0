/* Kernels of channels.h, compiled once for each instruction set (vectors.h). A kernel
 * processes its chunk row by row (channels_rows.h), as it lies in memory: numbers of
 * each channel are read from the first cache. */
#include "channels.h"
#include "channels_rows.h"
#include "per_isa.h"
#include "vectors.h"

/* ---- Compile-time variants ------------------------------------------------------ */

typedef enum pass_name { SUM, APPLY, SUM_BACK, APPLY_BACK } pass_name;

/* A compile-time constant in every use. */
typedef struct kind {
    pass_name pass;
    int bf16;
    limit_kind limit;
    int residual;
} kind;

/* Runs `call` with each limit as a constant. */
#define FOR_LIMIT(call, pass_, bf16_, limit_, residual_, ...) \
    switch (limit_) { \
    case LIMIT_NONE: \
        call(((kind){pass_, bf16_, LIMIT_NONE, residual_}), __VA_ARGS__); \
        break; \
    case LIMIT_RELU: \
        call(((kind){pass_, bf16_, LIMIT_RELU, residual_}), __VA_ARGS__); \
        break; \
    default: \
        call(((kind){pass_, bf16_, LIMIT_ANY, residual_}), __VA_ARGS__); \
    }
#define FOR_KIND(call, pass_, bf16_, limit_, residual_, ...) \
    do { \
        if ((bf16_) && (residual_)) \
            FOR_LIMIT(call, pass_, 1, limit_, 1, __VA_ARGS__) \
        else if (bf16_) \
            FOR_LIMIT(call, pass_, 1, limit_, 0, __VA_ARGS__) \
        else if (residual_) \
            FOR_LIMIT(call, pass_, 0, limit_, 1, __VA_ARGS__) \
        else \
            FOR_LIMIT(call, pass_, 0, limit_, 0, __VA_ARGS__) \
    } while (0)

ALWAYS int adds_up(kind k) {
    return k.pass == SUM || k.pass == SUM_BACK;
}

/* ---- Values per channel --------------------------------------------------------- */

/* Values of each element of a row that repeats its channels. */
typedef struct repeated {
    float mean[LONGEST_REPEATED], factor[LONGEST_REPEATED], add[LONGEST_REPEATED];
    float diff_mean[LONGEST_REPEATED], diff_slope[LONGEST_REPEATED];
} repeated;

/* What a kernel reads and writes: memory, and the values of a row's elements. */
typedef struct operands {
    channel_task task; /* a copy that no store can alias */
    limits limit;
    const float *mean, *factor, *add, *diff_mean, *diff_slope;
    float *first, *second; /* sums */
} operands;

/* A vector's worth of the values. */
typedef struct terms {
    vec mean, factor, add, diff_mean, diff_slope;
} terms;

/* One value per channel becomes one per element of a row. */
static const float *values_of(const channel_view *v, const part *p, const float *from,
                              float *space) {
    from += p->first;
    for (size_t i = 0; v->along && i < part_width(p); i++)
        space[i] = from[0];
    if (!v->along && p->repeat == 1)
        return from;
    for (size_t r = 0; !v->along && r < p->repeat; r++)
        memcpy(space + r * p->unit, from, p->unit * sizeof *from);
    return space;
}

ALWAYS void start_values(kind k, const channel_view *v, const part *p,
                         const channel_values *from, repeated *space, operands *o) {
    o->mean = values_of(v, p, from->mean, space->mean);
    o->factor = values_of(v, p, from->factor, space->factor);
    o->add = values_of(v, p, from->add, space->add);
    if (k.pass != APPLY_BACK)
        return;
    o->diff_mean = values_of(v, p, from->diff_mean, space->diff_mean);
    o->diff_slope = values_of(v, p, from->diff_slope, space->diff_slope);
}

ALWAYS terms terms_of(kind k, const operands *v, size_t c) {
    terms t = {.mean = floats_at(v->mean + c)};
    if (k.pass != SUM) {
        t.factor = floats_at(v->factor + c);
        t.add = floats_at(v->add + c);
    }
    if (k.pass == APPLY_BACK) {
        t.diff_mean = floats_at(v->diff_mean + c);
        t.diff_slope = floats_at(v->diff_slope + c);
    }
    return t;
}

/* Used by forward and backward, which must get bitwise identical results. */
ALWAYS vec normal(const terms *t, vec centred) {
    return centred * t->factor + t->add;
}

/* ---- Vectors -------------------------------------------------------------------- */

/* Replaces missing lanes by zero. */
ALWAYS vec there(access vector, vec v) {
    return vector.partial ? choose(first_lanes(vector.lanes), v, (vec){0}) : v;
}

ALWAYS void sum_one(access v, const operands *o, size_t i, const terms *t, vec *first,
                    vec *second) {
    vec d = there(v, load(v, element(v, o->task.x, i)) - t->mean);
    *first += d;
    *second += d * d;
}

ALWAYS vec apply_one(kind k, access v, const operands *o, size_t i, const terms *t) {
    vec value = normal(t, load(v, element(v, o->task.x, i)) - t->mean);
    if (k.residual)
        value += load(v, element(v, o->task.other, i));
    return bounded(k.limit, &o->limit, value);
}

/* With a fused sum, y tells where the activation bounded; else its input is recomputed.
 */
ALWAYS vec sum_back_one(kind k, access v, const operands *o, size_t i, const terms *t,
                        vec *first, vec *second) {
    vec centred = load(v, element(v, o->task.x, i)) - t->mean;
    vec diff = load(v, element(v, o->task.out_diff, i)), at = centred;
    if (k.residual && k.limit != LIMIT_NONE)
        at = load(v, element(v, o->task.y, i));
    else if (!k.residual)
        at = normal(t, centred);
    diff = bounded_gradient(k.limit, &o->limit, at, diff);
    *first += diff; /* zero in missing lanes */
    *second += diff * there(v, centred);
    return diff;
}

ALWAYS vec apply_back_one(kind k, access v, const operands *o, size_t i,
                          const terms *t) {
    vec centred = load(v, element(v, o->task.x, i)) - t->mean, diff;
    if (k.residual)
        diff = load(v, element(v, o->task.other_diff, i));
    else
        diff = bounded_gradient(k.limit, &o->limit, normal(t, centred),
                                load(v, element(v, o->task.out_diff, i)));
    return t->factor * (diff - (t->diff_mean + centred * t->diff_slope));
}

/* Fetches what `count` vectors of each input will be. */
ALWAYS void fetch(kind k, access v, const operands *o, size_t i, size_t count) {
    const channel_task *task = &o->task;
    size_t bytes = count * LANES * (k.bf16 ? sizeof(uint16_t) : sizeof(float));
    fetch_ahead(element(v, task->x, i), bytes);
    if (k.pass == APPLY && k.residual)
        fetch_ahead(element(v, task->other, i), bytes);
    if (k.pass == APPLY_BACK && k.residual)
        fetch_ahead(element(v, task->other_diff, i), bytes);
    else if (k.pass == SUM_BACK || k.pass == APPLY_BACK)
        fetch_ahead(element(v, task->out_diff, i), bytes);
    if (k.pass == SUM_BACK && k.residual && k.limit != LIMIT_NONE)
        fetch_ahead(element(v, task->y, i), bytes);
}

/* ---- Rows ----------------------------------------------------------------------- */

/* Processes `wide` adjacent vectors from element c of a row on, in each of `count`
 * rows; the first row begins at element i. */
ALWAYS void column(kind k, access v, size_t wide, size_t count, const operands *o,
                   const rows *r, size_t i, size_t c) {
    terms t[2];
    vec first[2], second[2], out[2];
    EACH(u, wide) {
        t[u] = terms_of(k, o, c + u * LANES);
        if (!adds_up(k))
            continue;
        first[u] = floats_at(o->first + c + u * LANES);
        second[u] = floats_at(o->second + c + u * LANES);
    }
    EACH(j, count) {
        size_t at = i + j * r->step + c;
        fetch(k, v, o, at + r->ahead, wide);
        EACH(u, wide) {
            size_t here = at + u * LANES;
            if (k.pass == SUM)
                sum_one(v, o, here, &t[u], &first[u], &second[u]);
            else if (k.pass == APPLY)
                out[u] = apply_one(k, v, o, here, &t[u]);
            else if (k.pass == SUM_BACK)
                out[u] = sum_back_one(k, v, o, here, &t[u], &first[u], &second[u]);
            else
                out[u] = apply_back_one(k, v, o, here, &t[u]);
        }
        if (k.pass == SUM_BACK && k.residual)
            store_adjacent(v, wide, 0, element_to(v, o->task.other_diff, at), out);
        else if (k.pass == APPLY)
            store_adjacent(v, wide, o->task.stream, element_to(v, o->task.y, at), out);
        else if (k.pass == APPLY_BACK)
            store_adjacent(v, wide, o->task.stream, element_to(v, o->task.in_diff, at),
                           out);
    }
    EACH(u, wide) {
        if (!adds_up(k))
            break;
        floats_to(o->first + c + u * LANES, first[u]);
        floats_to(o->second + c + u * LANES, second[u]);
    }
}

ALWAYS void columns(kind k, size_t count, const operands *o, const rows *r, size_t i) {
    const access whole = {k.bf16, 0, LANES};
    size_t c = 0;
    const size_t both = (size_t)2 * LANES;
    for (; c + both <= r->width; c += both)
        column(k, whole, 2, count, o, r, i, c);
    if (c + LANES <= r->width) {
        column(k, whole, 1, count, o, r, i, c);
        c += LANES;
    }
    if (c < r->width) {
        const access some = {k.bf16, 1, r->width - c};
        column(k, some, 1, count, o, r, i, c);
    }
}

/* Sums are kept in registers for a few rows. */
ALWAYS void run_rows(kind k, const operands *o, const rows *r) {
    size_t j = 0;
    for (; adds_up(k) && j + WIDE <= r->count; j += WIDE)
        columns(k, WIDE, o, r, r->at + j * r->step);
    for (; j < r->count; j++)
        columns(k, 1, o, r, r->at + j * r->step);
}

ALWAYS void run_part(kind k, const channel_chunk *at, const extent *e, size_t index,
                     const operands *o) {
    const channel_view *v = at->task->view;
    const part p = part_of(v, at->group, index);
    for (size_t image = 0; image < e->images; image++) {
        rows all[MOST_ROWS];
        size_t base = first_element(v, at->group, &p, e, image);
        size_t next = next_element(at, e, index, image);
        size_t count = rows_of(v, &p, e, base, next, adds_up(k) ? WIDE : 1, all);
        for (size_t n = 0; n < count; n++)
            run_rows(k, o, &all[n]);
    }
}

/* ---- Sums ----------------------------------------------------------------------- */

/* Adds the sums of the same channels, in pairs. */
static void fold(const part *p, float *sums) {
    for (size_t n = p->repeat / 2; n > 0; n /= 2)
        for (size_t r = 0; r < n; r++) {
            const float *from = sums + 2 * r * p->unit;
            for (size_t i = 0; i < p->unit; i++)
                sums[r * p->unit + i] = from[i] + from[p->unit + i];
        }
}

/* If vectors hold elements of one channel, all lanes belong to it. */
static void keep_sums(const channel_view *v, const part *p, float *from, double *to) {
    fold(p, from);
    to += p->first;
    if (v->along)
        *to = 0;
    for (size_t i = 0; v->along && i < LANES; i++)
        *to += (double)from[i];
    for (size_t i = 0; !v->along && i < p->unit; i++)
        to[i] = (double)from[i];
}

/* One value of each channel, the first of the chunk. `shift` has a vector more. */
static void start_shifts(const channel_chunk *at, const extent *e, const part *p,
                         float *shift) {
    const channel_view *v = at->task->view;
    size_t base = first_element(v, at->group, p, e, 0);
    for (size_t i = 0, width = v->along ? 1 : p->unit; i < width; i += LANES) {
        const access some = {v->bf16, 1, width - i < LANES ? width - i : LANES};
        floats_to(shift + i, load_some(some, element(some, at->task->x, base + i)));
    }
}

/* Converts sums of d = x - shift, which don't cancel, to sums of x, in double
 * precision. */
static void unshift(const channel_view *v, const part *p, const float *shift, double n,
                    double *restrict first) {
    double *restrict second = first + p->first + v->group;
    first += p->first;
    for (size_t i = 0, width = v->along ? 1 : p->unit; i < width; i++) {
        double by = (double)shift[i];
        second[i] += 2 * by * first[i] + n * by * by;
        first[i] += n * by;
    }
}

/* ---- Chunks --------------------------------------------------------------------- */

/* Are all rows of the output whole cache lines? */
static int whole_lines(const channel_view *v, const void *to) {
    size_t steps = v->image_step | v->block_step | (v->along ? 0 : v->point_step);
    return ((uintptr_t)to | steps * (v->bf16 ? 2 : 4)) % 64 == 0;
}

ALWAYS void run_chunk(kind k, const channel_chunk *at, const channel_values *values) {
    const channel_view *v = at->task->view;
    const extent e = extent_of(v, at->chunk);
    repeated space;
    operands o = {.task = *at->task, .limit = limits_of(&at->task->limit)};
    if (o.task.stream && whole_lines(v, k.pass == APPLY ? o.task.y : o.task.in_diff))
        o.task.stream = STREAM_LINES;
    for (size_t index = 0; index < parts_of(v, at->group); index++) {
        const part p = part_of(v, at->group, index);
        start_values(k, v, &p, values, &space, &o);
        run_part(k, at, &e, index, &o);
    }
}

/* As run_chunk, for sums. */
ALWAYS void add_chunk(kind k, const channel_chunk *at, const channel_values *values,
                      double *sums) {
    const channel_view *v = at->task->view;
    const extent e = extent_of(v, at->chunk);
    repeated space;
    float shift[CHANNEL_GROUP + LANES], first[CHANNEL_GROUP], second[CHANNEL_GROUP];
    operands o = {.task = *at->task,
                  .limit = limits_of(&at->task->limit),
                  .first = first,
                  .second = second};
    for (size_t index = 0; index < parts_of(v, at->group); index++) {
        const part p = part_of(v, at->group, index);
        size_t bytes = (part_width(&p) + LANES - 1) / LANES * LANES * sizeof *first;
        memset(first, 0, bytes);
        memset(second, 0, bytes);
        if (k.pass == SUM) {
            const part one = {0, p.unit, p.repeat};
            start_shifts(at, &e, &p, shift);
            o.mean = values_of(v, &one, shift, space.mean);
        } else {
            start_values(k, v, &p, values, &space, &o);
        }
        run_part(k, at, &e, index, &o);
        keep_sums(v, &p, first, sums);
        keep_sums(v, &p, second, sums + v->group);
        if (k.pass == SUM)
            unshift(v, &p, shift, (double)(e.images * e.points), sums);
    }
}

static void sum(const channel_chunk *at, const channel_values *values, double *sums) {
    if (at->task->view->bf16)
        add_chunk((kind){SUM, 1, LIMIT_NONE, 0}, at, values, sums);
    else
        add_chunk((kind){SUM, 0, LIMIT_NONE, 0}, at, values, sums);
}

static void sum_back(const channel_chunk *at, const channel_values *values,
                     double *sums) {
    const channel_task *task = at->task;
    FOR_KIND(add_chunk, SUM_BACK, task->view->bf16, limit_kind_of(&task->limit),
             task->other_diff != NULL, at, values, sums);
}

static void apply(const channel_chunk *at, const channel_values *values) {
    const channel_task *task = at->task;
    FOR_KIND(run_chunk, APPLY, task->view->bf16, limit_kind_of(&task->limit),
             task->other != NULL, at, values);
    stream_end();
}

/* The gradient of a fused sum is bounded already. */
static void apply_back(const channel_chunk *at, const channel_values *values) {
    const channel_task *task = at->task;
    limit_kind limit = task->other_diff ? LIMIT_NONE : limit_kind_of(&task->limit);
    FOR_KIND(run_chunk, APPLY_BACK, task->view->bf16, limit, task->other_diff != NULL,
             at, values);
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
