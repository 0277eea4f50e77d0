/* Are parameters laid out alike on all ranks? Gradients are summed element by element,
 * in the layouts that layers have chosen; and what a layer chooses may depend on its
 * batch, its number of threads and the processor, in which ranks may differ. So before
 * anything is exchanged the ranks compare, and layers of which they don't agree have
 * their parameters plain (dlc_layer_args.plain_params).
 */
#ifndef DLC_TRAIN_ALIKE_H
#define DLC_TRAIN_ALIKE_H

#include "train/session.h"

/* All ranks together, when the training net has its memory; gradients are zero then and
 * again afterwards. *again: some rank's parameters lie otherwise than others'; the nets
 * have to be built anew, with dlc_session.plain as it is then, and asked about again.
 * It is an error where that has not helped. */
dlc_status dlc_alike_agree(dlc_session *session, int *again);

#endif
