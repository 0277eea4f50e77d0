/* The weights' gradient of a convolution over images of a few colours: when to use our
 * own kernels, and the shapes they need. */
#include "convolution_colours.h"
#include "isa.h"

#include <omp.h>

static const colours_kernels *kernels_here(void) {
    static const colours_kernels *const all[] = ISA_TABLES(colours_);
    return all[isa_here()];
}

void convolution_colours_plan(const weighted *w, const sliding_window *window,
                              int64_t group, const dlc_layer_memory *memory,
                              convolution_colours *colours) {
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    const colours_kernels *kernels = kernels_here();
    colours_conv *conv = &colours->conv;
    colours->kernels = NULL;
    *conv = (colours_conv){
        .threads = (size_t)omp_get_max_threads(),
        .images = (size_t)in->dims[0],
        .channels = (size_t)in->dims[1],
        .filters = (size_t)out->dims[1],
    };
    for (int d = 0; d < 2; d++) {
        conv->in[d] = (size_t)in->dims[2 + d];
        conv->out[d] = (size_t)out->dims[2 + d];
        conv->kernel[d] = (size_t)window->kernel[d];
        conv->stride[d] = (size_t)window->stride[d];
        conv->pad[d] = (size_t)window->pad_begin[d];
        if (window->dilation[d] || conv->pad[d] >= conv->kernel[d])
            return;
    }
    if (w->head.net->precision == DLC_F32 && group == 1 && conv->channels <= COLOURS &&
        conv->filters % kernels->filters == 0)
        colours->kernels = kernels;
}

size_t convolution_colours_bytes(const weighted *w, convolution_colours *colours) {
    colours_conv *conv = &colours->conv;
    const dlc_layout *dst = w->dst;
    conv->block = dst->last ? conv->filters : (size_t)dst->block;
    if (!colours->kernels || !w->src->last || !conv->block ||
        conv->block % colours->kernels->lanes || conv->filters % conv->block)
        return 0;
    return colours->kernels->space_bytes(conv);
}
