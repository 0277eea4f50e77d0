/* Loads weights by name: matches the tensors of safetensors files, of dlcore's or of
 * other programs, with the parameters of a net. docs/weights.md describes names and
 * layouts. Called by the training loop, `dlcore test` and `dlcore predict`.
 */
#ifndef DLC_CHECKPOINT_WEIGHTS_H
#define DLC_CHECKPOINT_WEIGHTS_H

#include "checkpoint/safetensors.h"
#include "session/session.h"

typedef struct dlc_weights {
    const char *const *file; /* that together have the parameters */
    size_t files;
    /* Patterns of fnmatch(3). A parameter whose name matches keeps its initial values,
     * a tensor whose name (after `map`) matches is left out. */
    const char *const *skip;
    size_t skips;
    /* "FROM=TO": renames tensors. A '*' of FROM stands for any text, the '*' of TO at
     * the same place for the same text. All are applied, in this order. Then a batch
     * norm's tensors may still have PyTorch's names. */
    const char *const *map;
    size_t maps;
} dlc_weights;

/* Loads weights alone into a net. Collective; rank 0 reads. Into a test net, with
 * [train] test_ema, loads the average of the weights where a checkpoint has one. Checks
 * all files and all tensors first, then loads. DLC_ERR_DATA if parameters are missing,
 * tensors are unexpected or have another shape or type, or two tensors have one name;
 * these have been logged, and nothing was loaded. A tensor of a layer that only another
 * phase or another part of the net has is expected. */
dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const dlc_weights *weights);

/* Checks a rule of dlc_weights.map. DLC_ERR_CONFIG with what is wrong. */
dlc_status dlc_weights_check_map(const char *map);

#endif
