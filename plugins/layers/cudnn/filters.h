/* What the cuDNN graphs of convolution and deconvolution have in common. All are
 * operations on the tensors of a convolution. To a deconvolution x is its output and y
 * its input, so that its forward pass is what a convolution does backward to the data,
 * and the other way round; weights have the same shape in both: channels of y first. */
#ifndef DLCORE_CUDNN_FILTERS_H
#define DLCORE_CUDNN_FILTERS_H

#include "graph.h"
#include "weighted.h"

typedef struct filters_tensors {
    graph_tensor x, weights, y; /* the same numbers in each graph of a layer */
} filters_tensors;

/* Adds the tensors to a graph. `transposed`: of a deconvolution. */
void filters_add(graph *g, const weighted *w, const filters *f, int transposed,
                 filters_tensors *at);

/* Limits for the engines; the scratch memory has room to reorder both tensors. */
plan_bounds filters_bounds(const weighted *w, const filters *f);

/* Plans a graph of nothing but this operation; `what` is for messages. */
dlc_status filters_plan(const weighted *w, const filters *f, int transposed,
                        graph_conv which, const char *what, filters_tensors *at,
                        cudnn_plan *p);

#endif
