/* batch_norm: its options, the shapes of its parameters, and what it fuses. */
#ifndef LAYERS_SHARED_NORM_H
#define LAYERS_SHARED_NORM_H

#include "params.h"
#include "relu.h"

typedef struct norm_settings {
    float epsilon, momentum;
    int affine; /* it has a scale and a bias */
    int fixed;  /* training, too, uses the running averages; so does a frozen layer */
    int global; /* statistics are over the samples of all ranks */
    param_settings scale, bias;
    int64_t channels, samples; /* samples: numbers per channel in a batch; by infer */
    fused_relu relu;
    int fused_sum; /* a sum with a second input is fused */
} norm_settings;

/* The head of batch_norm. */
typedef struct norm_layer {
    dlc_layer head;
    norm_settings how;
} norm_layer;

dlc_status norm_layer_alloc(const dlc_layer_args *args, size_t bytes,
                            dlc_layer **layer);
dlc_status norm_infer(dlc_layer *layer, dlc_layer_shapes *shapes);
/* Fuses a sum, then a relu or clip. */
dlc_status norm_fuse(dlc_layer *layer, const dlc_feature *next,
                     const dlc_settings *settings);
/* DLC_ERR_CONFIG if the batch has no variance. Called by prepare. */
dlc_status norm_check_batch(const norm_layer *norm, const dlc_shape *in);
/* Are mean and variance computed from the batch? And from the batch of several ranks?
 */
int norm_by_batch(const norm_layer *norm);
int norm_by_group(const norm_layer *norm);
/* Does backward read the input? And the output, to tell where an activation was
 * bounded: with a fused sum, and where it does not read the input. */
int norm_reads_in(const norm_layer *norm);
int norm_reads_out(const norm_layer *norm);
/* What `describe` says of the statistics, or "". */
const char *norm_statistics_text(const norm_layer *norm);

#endif
