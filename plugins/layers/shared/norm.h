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

void norm_read(const dlc_layer *layer, const dlc_settings *settings, norm_settings *n);
dlc_status norm_infer(const dlc_layer *layer, norm_settings *n,
                      dlc_layer_shapes *shapes);
/* Fuses a sum, then a relu or clip. */
dlc_status norm_fuse(norm_settings *n, const dlc_feature *next,
                     const dlc_settings *settings);
/* DLC_ERR_CONFIG if the batch has no variance. Called by prepare. */
dlc_status norm_check_batch(const dlc_layer *layer, const norm_settings *n,
                            const dlc_shape *in);
/* Are mean and variance computed from the batch? And from the batch of several ranks?
 */
int norm_by_batch(const dlc_layer *layer, const norm_settings *n);
int norm_by_group(const dlc_layer *layer, const norm_settings *n);
/* Does backward read the input? And the output, to tell where an activation was
 * bounded: with a fused sum, and where it does not read the input. */
int norm_reads_in(const dlc_layer *layer, const norm_settings *n);
int norm_reads_out(const dlc_layer *layer, const norm_settings *n);
/* What `describe` says of the statistics, or "". */
const char *norm_statistics_text(const dlc_layer *layer, const norm_settings *n);

#endif
