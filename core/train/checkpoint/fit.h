/* Does a checkpoint belong to this run: the same net, a solver that can go on from the
 * state of the one that wrote it, the same data and seed? Looked at as a whole before
 * anything of it is taken. */
#ifndef DLC_TRAIN_FIT_H
#define DLC_TRAIN_FIT_H

#include "train/checkpoint/safetensors.h"
#include "train/session.h"

/* Rank 0. DLC_ERR_DATA where it does not; every difference is logged, as it was -> as
 * it is now. Settings that may change are told where they have. */
dlc_status dlc_fit_check(const dlc_session *session, const dlc_safetensors *file);

/* Does the file have all parameters of `net`, in their shapes? DLC_ERR_DATA with the
 * first that is missing or of another shape. */
dlc_status dlc_fit_weights(const dlc_session *session, const dlc_net *net,
                           const dlc_safetensors *file);

#endif
