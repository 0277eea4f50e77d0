/* Checkpoints hold all that a run needs to continue as if it had never stopped.
 *
 * A checkpoint is a safetensors file: each parameter under its name ("conv1.weight") in
 * plain layout, each of the solver's slots as "slot/parameter"
 * ("momentum/conv1.weight"), the consistency model's own bytes as "consistency";
 * metadata under "dlcore.*". The random state and the data cursor are functions of the
 * seed and the iteration.
 *
 * Every call here is collective: all ranks make it, and rank 0 reads and writes. Called
 * by the training loop and by `dlcore test`.
 */
#ifndef DLC_CHECKPOINT_CHECKPOINT_H
#define DLC_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/weights.h"
#include "session/session.h"

/* Writes NET-ITERATION.safetensors into the run's folder (run_folder.h), and removes
 * checkpoints that are not kept (retention.h). If the file cannot be written *written
 * is 0 on all ranks, dlc_detail() says why, and nothing has changed. *path is the file
 * on rank 0, to be released with dlc_free; NULL on other ranks and if nothing was
 * written.
 */
dlc_status dlc_checkpoint_save(dlc_session *session, int *written, char **path);

/* Restores weights, solver state and iteration from the checkpoint that the run folder
 * names, or from the newest one that is intact. The consistency model must not have
 * been started.
 */
dlc_status dlc_checkpoint_resume(dlc_session *session);

/* Loads weights alone into a net, from checkpoints or any other safetensors files
 * (weights.h says what must match). */
dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const dlc_weights *weights);

#endif
