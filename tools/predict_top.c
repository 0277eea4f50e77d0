/* Chooses the best classes. */
#include "predict_top.h"

#include <math.h>
#include <string.h>

/* Inserts a class into the list, which has `count` of at most `top` classes. */
static int32_t insert(const float *score, int32_t c, int32_t count, int32_t top,
                      int32_t *class) {
    int32_t at = count;
    while (at > 0 && (score[c] > score[class[at - 1]] ||
                      (isnan(score[class[at - 1]]) && !isnan(score[c]))))
        at--;
    if (at == top)
        return count;
    int32_t last = count < top ? count : top - 1;
    memmove(class + at + 1, class + at, (size_t)(last - at) * sizeof *class);
    class[at] = c;
    return count < top ? count + 1 : top;
}

void dlc_predict_top(const float *score, int32_t classes, int32_t top, int32_t *class,
                     double *probability) {
    int32_t count = 0;
    double sum = 0;
    for (int32_t c = 0; c < classes; c++)
        count = insert(score, c, count, top, class);
    double best = (double)score[class[0]];
    for (int32_t c = 0; c < classes; c++)
        sum += exp((double)score[c] - best);
    for (int32_t i = 0; i < top; i++)
        probability[i] = exp((double)score[class[i]] - best) / sum;
}

int32_t dlc_predict_several(const float *score, int32_t classes, double least,
                            int32_t top, int32_t *class, double *probability) {
    int32_t count = 0;
    for (int32_t c = 0; c < classes; c++)
        if (1 / (1 + exp(-(double)score[c])) >= least)
            count = insert(score, c, count, top, class);
    for (int32_t i = 0; i < count; i++)
        probability[i] = 1 / (1 + exp(-(double)score[class[i]]));
    return count;
}

void dlc_predict_mask(const float *score, size_t classes, size_t positions,
                      uint8_t *mask) {
    for (size_t i = 0; i < positions; i++) {
        size_t best = 0;
        for (size_t c = 1; c < classes; c++)
            if (score[c * positions + i] > score[best * positions + i])
                best = c;
        mask[i] = (uint8_t)best;
    }
}
