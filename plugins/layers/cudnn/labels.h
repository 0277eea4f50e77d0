/* What losses and accuracy have in common: scores of classes, and labels.
 *
 * Only the GPU reads labels. An invalid label makes the sum NaN at once; the error
 * sentence follows with a later pass, as soon as the host has seen the report. */
#ifndef DLCORE_CUDNN_LABELS_H
#define DLCORE_CUDNN_LABELS_H

#include "../shared/scores.h"
#include "cudnn.h"
#include "kernels/kernels.h"

/* Starts with the fields of every layer. */
typedef struct labelled {
    dlc_layer head;
    score_shape shape;
    int soft;             /* labels are probabilities, in plain layout */
    labels_args args;     /* all but the pointers */
    label_report *report; /* NULL if there is no GPU */
} labelled;

/* Creates a layer and reads ignore_label. */
dlc_status labels_create(const dlc_layer_args *args, dlc_layer **layer);
void labels_destroy(dlc_layer *layer);
/* `infer` of a loss. */
dlc_status labels_infer(dlc_layer *layer, dlc_layer_shapes *shapes);
/* Points at the labels. */
void labels_point(const labelled *l, const void *labels, labels_args *args);
/* Chooses layouts. The scratch memory holds one float per position. */
dlc_status labels_prepare(dlc_layer *layer, dlc_layer_memory *memory);
/* The arguments of a forward pass. */
labels_args labels_forward(const labelled *l, const dlc_layer_run *run);
/* DLC_ERR_DATA if the GPU has reported an invalid label. Does not wait for the GPU. */
dlc_status labels_check(const labelled *l);

#endif
