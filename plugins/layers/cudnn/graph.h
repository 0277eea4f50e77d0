/* Graphs of cuDNN's backend API (tensors and operations on them), and the plans that
 * engines make of them. Used by convolution.c.
 *
 * Calls that add to a graph return no errors: the first error is kept, and graph_plan
 * returns it. A graph can be closed once its plans are made. Running a plan only
 * enqueues work on the stream of the net. */
#ifndef DLCORE_CUDNN_GRAPH_H
#define DLCORE_CUDNN_GRAPH_H

#include "../shared/bounds.h"
#include "../shared/window.h"
#include "cudnn.h"
#include "library.h"

enum { GRAPH_TENSORS = 16, GRAPH_OPS = 8, GRAPH_KEY = 1024 };

typedef int graph_tensor; /* an index from 1 on, also cuDNN's unique id */

typedef struct graph {
    context *net;
    const char *layer, *what; /* for messages: "do its forward pass" */
    dlc_status status;
    int tensors, ops;
    cudnnBackendDescriptor_t tensor[GRAPH_TENSORS + 1], op[GRAPH_OPS], whole;
    int is_bound[GRAPH_TENSORS +
                 1]; /* 1: memory is given when the plan runs; 0: virtual */
    size_t bytes[GRAPH_TENSORS + 1];
    char key[GRAPH_KEY]; /* all that the plan depends on, except the GPU */
} graph;

void graph_open(graph *g, context *net, const char *layer, const char *what);
void graph_close(graph *g);

/* Adds a tensor with the shape, strides and type of a layout of images (rank 4). */
graph_tensor graph_layout(graph *g, const dlc_layout *layout);
/* Adds a dense tensor of four dimensions, channels last. */
graph_tensor graph_last(graph *g, dlc_dtype dtype, int64_t n, int64_t c, int64_t h,
                        int64_t w);
/* Adds a virtual tensor, which exists inside the engine only: float32, with the shape
 * and order of `like`. */
graph_tensor graph_virtual(graph *g, graph_tensor like);

/* Operations. Sums are float32. GRAPH_ACCUMULATE_DATA is an operation of its own, with
 * `beta` = 1, which the engines of backward_data can run; cuDNN 9.19 has no engine for
 * graph_add after a backward pass. */
typedef enum graph_conv {
    GRAPH_FORWARD,          /* x, w -> y */
    GRAPH_BACKWARD_DATA,    /* w, y -> x */
    GRAPH_BACKWARD_WEIGHTS, /* x, y -> w */
    GRAPH_ACCUMULATE_DATA   /* w, y -> added to x */
} graph_conv;
void graph_convolution(graph *g, graph_conv which, const sliding_window *win,
                       graph_tensor x, graph_tensor w, graph_tensor y);
/* y = a + b; b may have one element per channel. */
void graph_add(graph *g, graph_tensor a, graph_tensor b, graph_tensor y);
/* y = bounds_apply(x). */
void graph_bounds(graph *g, const bounds *limit, graph_tensor x, graph_tensor y);
/* The sum of each channel of x and the sum of its squares, in float32. */
void graph_statistics(graph *g, graph_tensor x, graph_tensor sum, graph_tensor squares);

/* ---- Plans ---------------------------------------------------------------------- */

typedef struct cudnn_plan {
    context *net;
    const char *layer, *what;
    cudnnBackendDescriptor_t plan, pack; /* pack: addresses; NULL until the first run */
    int tensors;                         /* number of bound tensors */
    int64_t uid[GRAPH_TENSORS];
    void *at[GRAPH_TENSORS]; /* addresses in the pack */
    void *scratch_at;
    size_t scratch_bytes;
    int64_t engine; /* cuDNN's global index */
    int compiled;   /* 1: at run time; 0: precompiled */
} cudnn_plan;

/* What engines must respect. */
typedef struct plan_bounds {
    size_t scratch_bytes; /* maximum */
    int direct;           /* 1: neither Winograd nor FFT */
} plan_bounds;

/* Makes a plan of the best engine within the limits, as cuDNN's heuristics or earlier
 * timings rank them. Replaces *p. DLC_ERR_UNSUPPORTED: there is no such engine. Only in
 * prepare; may take seconds (it may compile code). */
dlc_status graph_plan(graph *g, const plan_bounds *limit, cudnn_plan *p);

typedef struct plan_bind {
    graph_tensor tensor;
    const void *at;
} plan_bind;
dlc_status plan_run_all(cudnn_plan *p, void *scratch, const plan_bind *binds,
                        int count);
#define PLAN_RUN(p, scratch, ...) \
    plan_run_all((p), (scratch), (const plan_bind[]){__VA_ARGS__}, \
                 (int)(sizeof((const plan_bind[]){__VA_ARGS__}) / sizeof(plan_bind)))
void plan_clear(cudnn_plan *p); /* releases a plan; zeroed is allowed */

#endif
