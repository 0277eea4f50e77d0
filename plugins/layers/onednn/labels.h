/* What losses and accuracy share: scores of classes, and labels. */
#ifndef ONEDNN_LABELS_H
#define ONEDNN_LABELS_H

#include "../shared/scores.h"
#include "onednn.h"

/* The scores of a position are `stride` apart. */
typedef struct labelled {
    score_shape shape;
    int last;          /* channels last */
    int soft;          /* labels are probabilities, in plain layout */
    int has_ignore;    /* is there an ignored label? */
    int32_t ignore;    /* it */
    const char *layer; /* for messages */
} labelled;

void labels_read(labelled *l, const dlc_layer *layer, const dlc_settings *settings);
dlc_status labels_prepare(labelled *l, const dlc_layer *layer,
                          dlc_layer_memory *memory);

static inline int label_counts(const labelled *l, int32_t label) {
    return label != DLC_LABEL_NONE && !(l->has_ignore && label == l->ignore);
}
/* Checks that all labels that count are below the number of classes. *count: how many
 * there are. */
dlc_status labels_check(const labelled *l, const int32_t *labels, int64_t *count);

static inline int64_t label_offset(const labelled *l, int64_t position) {
    if (l->last)
        return position * l->shape.classes;
    return position / l->shape.spatial * l->shape.classes * l->shape.spatial +
           position % l->shape.spatial;
}

static inline int64_t label_stride(const labelled *l) {
    return l->last ? 1 : l->shape.spatial;
}

#endif
