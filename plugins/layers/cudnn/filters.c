/* Graphs of convolution and deconvolution. */
#include "filters.h"

void filters_add(graph *g, const weighted *w, const filters *f, int transposed,
                 filters_tensors *at) {
    at->x = graph_layout(g, transposed ? w->dst : w->src);
    int64_t channels = w->fold.stride ? w->fold.depth : w->padded;
    at->weights = graph_last(g, w->head.net->precision, w->linear.shape.dims[0],
                             channels, f->window.kernel[0], f->window.kernel[1]);
    at->y = graph_layout(g, transposed ? w->src : w->dst);
}

plan_bounds filters_bounds(const weighted *w, const filters *f) {
    const size_t some = (size_t)256 << 20;
    return (plan_bounds){.scratch_bytes = some + 2 * (w->src->bytes + w->dst->bytes),
                         .direct = f->direct};
}

dlc_status filters_plan(const weighted *w, const filters *f, int transposed,
                        graph_conv which, const char *what, filters_tensors *at,
                        cudnn_plan *p) {
    const plan_bounds limit = filters_bounds(w, f);
    graph g;
    graph_open(&g, w->head.net, w->head.name, what);
    filters_add(&g, w, f, transposed, at);
    graph_convolution(&g, which, &f->window, at->x, at->weights, at->y);
    dlc_status status = graph_plan(&g, &limit, p);
    graph_close(&g);
    return status;
}
