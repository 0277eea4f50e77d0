/* Losses and accuracy: scores of classes, and labels. */
#ifndef LAYERS_SHARED_SCORES_H
#define LAYERS_SHARED_SCORES_H

#include "layer.h"

/* Scores N x C x spatial: `positions` of them, each with a label. */
typedef struct score_shape {
    int64_t positions, classes, spatial;
} score_shape;

/* Reads ignore_label; 0 if there is none. */
int ignore_label_read(const dlc_settings *settings, int32_t *label);
/* Checks the inputs (scores, labels), and makes out[0] {sum, count}. */
dlc_status scores_infer(const dlc_layer *layer, dlc_layer_shapes *shapes,
                        score_shape *s);
/* The labels may also be a probability of each class, float32 of the shape of the
 * scores; then *soft is 1. */
dlc_status soft_scores_infer(const dlc_layer *layer, dlc_layer_shapes *shapes,
                             score_shape *s, int *soft);
/* For accuracy: also checks top_k, and wants no gradient. */
dlc_status accuracy_infer(const dlc_layer *layer, int64_t top_k,
                          dlc_layer_shapes *shapes, score_shape *s);
/* What counts in each of `samples` samples: the positions with a label that is not
 * ignored or, if `soft`, with probabilities that are not NaN. */
void scores_count(const score_shape *s, int soft, const int32_t *ignore,
                  const void *labels, int64_t samples, double *counted);
/* DLC_ERR_DATA: the label of a position is not a class. */
dlc_status invalid_label(const char *layer, const score_shape *s, int64_t position,
                         int32_t label);

#endif
