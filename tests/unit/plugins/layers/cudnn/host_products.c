/* graph.h and product.h on the host: convolutions and matrix products in plain loops,
 * in place of cuDNN and cuBLASLt. With DLCORE_TEST_UNFUSED in the environment no engine
 * adds a bias or an activation. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "kernels/body.h"
#include "product.h"

typedef struct host_tensor {
    dlc_dtype dtype;
    int64_t dims[4], strides[4];
} host_tensor;

typedef struct host_op {
    enum { CONVOLVE, ADD, BOUND, STATISTICS } kind;
    graph_conv which;
    sliding_window win;
    bounds limit;
    graph_tensor a, b, y;
} host_op;

typedef struct host_graph {
    host_tensor tensor[GRAPH_TENSORS + 1];
    host_op op[GRAPH_OPS];
    int tensors, ops, is_bound[GRAPH_TENSORS + 1];
} host_graph;

static host_graph *host_graph_of(const graph *g) {
    return g->whole;
}

void graph_open(graph *g, context *net, const char *layer, const char *what) {
    memset(g, 0, sizeof *g);
    g->net = net;
    g->layer = layer;
    g->what = what;
    g->whole = calloc(1, sizeof(host_graph));
    if (!g->whole)
        abort();
}

void graph_close(graph *g) {
    free(g->whole);
    g->whole = NULL;
}

static graph_tensor add_tensor(graph *g, dlc_dtype dtype, const int64_t *dims,
                               const int64_t *strides, int is_bound) {
    host_graph *h = host_graph_of(g);
    host_tensor *t = &h->tensor[++h->tensors];
    t->dtype = dtype;
    memcpy(t->dims, dims, sizeof t->dims);
    memcpy(t->strides, strides, sizeof t->strides);
    h->is_bound[h->tensors] = is_bound;
    return h->tensors;
}

graph_tensor graph_last(graph *g, dlc_dtype dtype, int64_t n, int64_t c, int64_t h,
                        int64_t w) {
    const int64_t dims[] = {n, c, h, w}, strides[] = {c * h * w, 1, w * c, c};
    return add_tensor(g, dtype, dims, strides, 1);
}

graph_tensor graph_layout(graph *g, const dlc_layout *layout) {
    const int64_t *dims = layout->shape.dims;
    const fold *f = &layout->fold;
    if (!layout->last)
        abort(); /* images are always channels last */
    if (f->stride)
        return graph_last(g, layout->dtype, dims[0], layout->channels, f->blocks[0],
                          f->blocks[1]);
    return graph_last(g, layout->dtype, dims[0], layout->channels, dims[2], dims[3]);
}

graph_tensor graph_virtual(graph *g, graph_tensor like) {
    const host_tensor t = host_graph_of(g)->tensor[like];
    return add_tensor(g, DLC_F32, t.dims, t.strides, 0);
}

void graph_convolution(graph *g, graph_conv which, const sliding_window *win,
                       graph_tensor x, graph_tensor w, graph_tensor y) {
    host_graph *h = host_graph_of(g);
    h->op[h->ops++] = (host_op){CONVOLVE, which, *win, BOUNDS_NONE, x, w, y};
}

void graph_add(graph *g, graph_tensor a, graph_tensor b, graph_tensor y) {
    host_graph *h = host_graph_of(g);
    h->op[h->ops++] = (host_op){.kind = ADD, .a = a, .b = b, .y = y};
}

void graph_bounds(graph *g, const bounds *limit, graph_tensor x, graph_tensor y) {
    host_graph *h = host_graph_of(g);
    h->op[h->ops++] = (host_op){.kind = BOUND, .limit = *limit, .a = x, .y = y};
}

/* x, sum and squares use the fields of two inputs and an output. */
void graph_statistics(graph *g, graph_tensor x, graph_tensor sum,
                      graph_tensor squares) {
    host_graph *h = host_graph_of(g);
    h->op[h->ops++] = (host_op){.kind = STATISTICS, .a = x, .b = sum, .y = squares};
}

dlc_status graph_plan(graph *g, const plan_bounds *limit, cudnn_plan *p) {
    const host_graph *h = host_graph_of(g);
    (void)limit;
    plan_clear(p);
    if (h->ops > 1 && getenv("DLCORE_TEST_UNFUSED"))
        return DLC_ERR_UNSUPPORTED;
    p->plan = malloc(sizeof *h);
    if (!p->plan)
        return DLC_ERR_NOMEM;
    memcpy(p->plan, h, sizeof *h);
    p->scratch_bytes = 64;
    return DLC_OK;
}

void plan_clear(cudnn_plan *p) {
    free(p->plan);
    memset(p, 0, sizeof *p);
}

/* ---- Running ----------------------------------------------------------------- */

static int64_t place(const host_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * t->strides[0] + b * t->strides[1] + c * t->strides[2] +
           d * t->strides[3];
}

static int64_t count_of(const host_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

/* A tensor converted to double; zeros if `from` is NULL. */
static double *as_double(const host_tensor *t, const void *from) {
    double *made = calloc((size_t)count_of(t), sizeof *made);
    if (!made)
        abort();
    for (int64_t i = 0; from && i < count_of(t); i++)
        made[i] = (double)load_one(t->dtype, from, i);
    return made;
}

typedef struct triple {
    const host_tensor *x, *w, *y;
    double *x_at, *w_at, *y_at;
} triple;

/* All channels of one filter point at one position, which are adjacent in memory. */
static void channels(const triple *t, graph_conv which, int64_t x, int64_t w,
                     int64_t y) {
    double *a = t->x_at + x, *b = t->w_at + w, *c = t->y_at + y;
    int64_t depth = t->w->dims[1];
    for (int64_t i = 0; i < depth; i++)
        if (which == GRAPH_FORWARD)
            *c += a[i] * b[i];
        else if (which == GRAPH_BACKWARD_DATA || which == GRAPH_ACCUMULATE_DATA)
            a[i] += *c * b[i];
        else
            b[i] += *c * a[i];
}

static void slide(const triple *t, const host_op *op, int64_t n, int64_t k, int64_t r,
                  int64_t s) {
    const sliding_window *win = &op->win;
    int64_t groups = t->x->dims[1] / t->w->dims[1];
    int64_t first = k / (t->y->dims[1] / groups) * t->w->dims[1];
    for (int64_t i = 0; i < t->y->dims[2]; i++)
        for (int64_t j = 0; j < t->y->dims[3]; j++) {
            int64_t h = i * win->stride[0] - win->pad_begin[0] +
                        r * (win->dilation[0] + 1);
            int64_t v = j * win->stride[1] - win->pad_begin[1] +
                        s * (win->dilation[1] + 1);
            if (h >= 0 && v >= 0 && h < t->x->dims[2] && v < t->x->dims[3])
                channels(t, op->which, place(t->x, n, first, h, v),
                         place(t->w, k, 0, r, s), place(t->y, n, k, i, j));
        }
}

static void convolve(const host_graph *h, const host_op *op, void *const *at) {
    const int forward = op->which == GRAPH_FORWARD,
              accumulate = op->which == GRAPH_ACCUMULATE_DATA,
              data = op->which == GRAPH_BACKWARD_DATA || accumulate;
    triple t = {
        &h->tensor[op->a], &h->tensor[op->b], &h->tensor[op->y], NULL, NULL, NULL};
    t.x_at = as_double(t.x, data && !accumulate ? NULL : at[op->a]);
    t.w_at = as_double(t.w, forward || data ? at[op->b] : NULL);
    t.y_at = as_double(t.y, forward ? NULL : at[op->y]);
    for (int64_t n = 0; n < t.x->dims[0]; n++)
        for (int64_t k = 0; k < t.w->dims[0]; k++)
            for (int64_t r = 0; r < t.w->dims[2]; r++)
                for (int64_t s = 0; s < t.w->dims[3]; s++)
                    slide(&t, op, n, k, r, s);
    const graph_tensor made = forward ? op->y : data ? op->a : op->b;
    const double *from = forward ? t.y_at : data ? t.x_at : t.w_at;
    for (int64_t i = 0; i < count_of(&h->tensor[made]); i++)
        store_one(h->tensor[made].dtype, at[made], i, (float)from[i]);
    free(t.x_at);
    free(t.w_at);
    free(t.y_at);
}

/* Tensors are channels last, so i % channels is the channel of the bias. */
static void pointwise(const host_graph *h, const host_op *op, void *const *at) {
    const host_tensor *a = &h->tensor[op->a], *y = &h->tensor[op->y];
    for (int64_t i = 0; i < count_of(y); i++) {
        float v = load_one(a->dtype, at[op->a], i);
        if (op->kind == ADD)
            v += load_one(h->tensor[op->b].dtype, at[op->b], i % y->dims[1]);
        else
            v = bounds_apply(&op->limit, v);
        store_one(y->dtype, at[op->y], i, v);
    }
}

static void statistics(const host_graph *h, const host_op *op, void *const *at) {
    const host_tensor *x = &h->tensor[op->a];
    int64_t channels = x->dims[1];
    float *sum = at[op->b], *squares = at[op->y];
    for (int64_t c = 0; c < channels; c++) {
        double one = 0, two = 0;
        for (int64_t i = c; i < count_of(x); i += channels) {
            double v = (double)load_one(x->dtype, at[op->a], i);
            one += v;
            two += v * v;
        }
        sum[c] = (float)one;
        squares[c] = (float)two;
    }
}

dlc_status plan_run_all(cudnn_plan *p, void *scratch, const plan_bind *binds,
                        int count) {
    const host_graph *h = (const host_graph *)p->plan;
    void *at[GRAPH_TENSORS + 1] = {0};
    (void)scratch;
    for (int i = 0; i < count; i++)
        at[binds[i].tensor] = (void *)(uintptr_t)binds[i].at;
    for (int i = 1; i <= h->tensors; i++)
        if (!h->is_bound[i] && !(at[i] = malloc((size_t)count_of(&h->tensor[i]) * 4)))
            abort();
    for (int i = 0; i < h->ops; i++)
        if (h->op[i].kind == CONVOLVE)
            convolve(h, &h->op[i], at);
        else if (h->op[i].kind == STATISTICS)
            statistics(h, &h->op[i], at);
        else
            pointwise(h, &h->op[i], at);
    for (int i = 1; i <= h->tensors; i++)
        if (!h->is_bound[i])
            free(at[i]);
    return DLC_OK;
}

/* ---- Products of matrices ---------------------------------------------------- */

dlc_status product_make(product *p, context *net, const char *layer, const char *what,
                        const product_shape *shape) {
    *p = (product){
        .net = net, .layer = layer, .what = what, .shape = *shape, .scratch_bytes = 64};
    return DLC_OK;
}

void product_clear(product *p) {
    memset(p, 0, sizeof *p);
}

/* Matrices are column-major. */
dlc_status product_run(const product *p, const void *a, const void *b,
                       const float *bias, int accumulate, void *d, void *scratch) {
    const product_shape *s = &p->shape;
    (void)scratch;
    for (int64_t j = 0; j < s->columns; j++)
        for (int64_t i = 0; i < s->rows; i++) {
            double sum = 0;
            for (int64_t k = 0; k < s->depth; k++)
                sum += (double)load_one(s->dtype, a,
                                        s->transpose_a ? i * s->depth + k
                                                       : k * s->rows + i) *
                       (double)load_one(s->dtype, b,
                                        s->transpose_b ? k * s->columns + j
                                                       : j * s->depth + k);
            float v = (float)sum;
            if (s->bias)
                v += bias[i];
            if (s->relu && v < 0)
                v = 0;
            if (accumulate)
                v += load_one(s->out_dtype, d, j * s->rows + i);
            store_one(s->out_dtype, d, j * s->rows + i, v);
        }
    return DLC_OK;
}
