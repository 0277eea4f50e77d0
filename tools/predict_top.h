/* The best classes of a sample by its scores. Pure arithmetic. */
#ifndef DLC_TOOLS_PREDICT_TOP_H
#define DLC_TOOLS_PREDICT_TOP_H

#include <stddef.h>
#include <stdint.h>

/* Writes the `top` classes with the highest scores, the best first and of equals the
 * lowest number first, and their probabilities by softmax. `top` is at most `classes`.
 */
void dlc_predict_top(const float *score, int32_t classes, int32_t top, int32_t *class,
                     double *probability);

/* Writes the classes whose probability is at least `least`, as far as there are no more
 * than `top`, in the same order, each with a probability of its own: 1 / (1 +
 * exp(-score)). Returns how many there are. */
int32_t dlc_predict_several(const float *score, int32_t classes, double least,
                            int32_t top, int32_t *class, double *probability);

/* The best class of each position, the first of equal ones; at most 256 classes, each
 * of which has a score for each position. */
void dlc_predict_mask(const float *score, size_t classes, size_t positions,
                      uint8_t *mask);

#endif
