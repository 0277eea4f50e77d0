/* Graphs of cuDNN's backend API: tensors and operations on them, and the plan that an
 * engine makes of them.
 *
 * Calls that add to a graph don't tell of errors: the first one spoils the graph, and
 * graph_plan tells of it. A graph is thrown away once plans are made; a plan runs as
 * often as one likes and only gives work to the net's stream. */
#ifndef DLCORE_CUDNN_GRAPH_H
#define DLCORE_CUDNN_GRAPH_H

#include "../shared/bounds.h"
#include "../shared/window.h"
#include "cudnn.h"
#include "library.h"

enum { GRAPH_TENSORS = 16, GRAPH_OPS = 8, GRAPH_KEY = 1024 };

typedef int graph_tensor; /* its number, from 1 on: also cuDNN's unique id */

typedef struct graph {
    context *net;
    const char *layer, *what; /* for messages: "do its forward pass" */
    dlc_status status;
    int tensors, ops;
    cudnnBackendDescriptor_t tensor[GRAPH_TENSORS + 1], op[GRAPH_OPS], whole;
    int outside[GRAPH_TENSORS + 1]; /* bound when the plan runs; others are virtual */
    size_t bytes[GRAPH_TENSORS + 1];
    char key[GRAPH_KEY]; /* all that the plan depends on but the GPU */
} graph;

void graph_open(graph *g, context *net, const char *layer, const char *what);
void graph_close(graph *g);

/* Tensors. What is known by a layout: images (rank 4), whose strides follow it. */
graph_tensor graph_layout(graph *g, const dlc_layout *layout);
/* Four dimensions, dense, in the order n, h, w, c. */
graph_tensor graph_last(graph *g, dlc_dtype dtype, int64_t n, int64_t c, int64_t h,
                        int64_t w);
/* One that lives inside the engine alone; float32, shape and order of `like`. */
graph_tensor graph_virtual(graph *g, graph_tensor like);

/* Operations. Sums are float32. GRAPH_ADD_DATA is an operation of its own (its `beta`
 * is 1), run by the engines that overwrite, too: for graph_add behind a backward pass
 * cuDNN 9.19 has none. */
typedef enum graph_conv {
    GRAPH_FORWARD,          /* x, w -> y */
    GRAPH_BACKWARD_DATA,    /* w, y -> x */
    GRAPH_BACKWARD_WEIGHTS, /* x, y -> w */
    GRAPH_ADD_DATA          /* w, y -> added to x */
} graph_conv;
void graph_convolution(graph *g, graph_conv which, const sliding_window *win,
                       graph_tensor x, graph_tensor w, graph_tensor y);
/* y = a + b; b may have one element a channel */
void graph_add(graph *g, graph_tensor a, graph_tensor b, graph_tensor y);
/* y = bounds_apply(x) */
void graph_bounds(graph *g, const bounds *limit, graph_tensor x, graph_tensor y);
/* Of every channel of x: the sum, and the sum of squares; float32. */
void graph_statistics(graph *g, graph_tensor x, graph_tensor sum, graph_tensor squares);

/* ---- Plans ---------------------------------------------------------------------- */

typedef struct cudnn_plan {
    context *net;
    const char *layer, *what;
    cudnnBackendDescriptor_t plan, pack; /* pack: NULL until it runs */
    int tensors;                         /* those that are bound */
    int64_t uid[GRAPH_TENSORS];
    void *at[GRAPH_TENSORS]; /* as the pack has them */
    void *scratch_at;
    size_t scratch_bytes;
    int64_t engine; /* its number */
    int compiled;   /* at run time; else it came with the library */
} cudnn_plan;

/* What an engine must keep to. */
typedef struct plan_bounds {
    size_t scratch_bytes; /* at most */
    int direct;           /* no Winograd, no Fourier transform */
} plan_bounds;

/* The best engine that keeps to the bounds, as cuDNN's heuristics see it or as it was
 * measured before. DLC_ERR_UNSUPPORTED: there is none. Takes what *p had. */
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
void plan_clear(cudnn_plan *p); /* zeroed is allowed */

#endif
