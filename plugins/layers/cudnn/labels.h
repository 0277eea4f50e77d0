/* What losses and accuracy share: scores of classes, and the labels beside them.
 *
 * Labels are read by the GPU alone. One that cannot be makes the sum no number at once;
 * the sentence about it comes with a later pass, as soon as it is known here. */
#ifndef DLCORE_CUDNN_LABELS_H
#define DLCORE_CUDNN_LABELS_H

#include "cudnn.h"
#include "kernels/kernels.h"

/* Begins with the layer's head. */
typedef struct labelled {
    dlc_layer head;
    int64_t spatial;      /* positions of a sample */
    labels_args args;     /* all but the pointers */
    label_report *report; /* NULL where no GPU is */
} labelled;

#define LABEL_OPTIONS \
    DLC_INT("ignore_label", NULL, INT32_MIN, INT32_MAX, \
            "samples with this label don't count")

/* A layer with the options above read. */
dlc_status labels_create(const dlc_layer_args *args, dlc_layer **layer);
void labels_destroy(dlc_layer *layer);
/* Inputs: scores, labels. Checks them and makes out[0] {sum, count}. */
dlc_status labels_infer(dlc_layer *layer, dlc_layer_plan *plan);
/* Scratch: what each position gives. */
dlc_status labels_prepare(dlc_layer *layer, dlc_layer_plan *plan);
/* The arguments of a forward pass. */
labels_args labels_forward(const labelled *l, const dlc_layer_run *run);
/* The error that the GPU has told of by now. */
dlc_status labels_check(const labelled *l);

#endif
