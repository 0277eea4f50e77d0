/* Checkpoints: all that a run needs to go on as if it had never stopped.
 *
 * A safetensors file: each parameter under its name ("conv1.weight") in plain
 * layout, each of the solver's slots as "slot/parameter" ("momentum/conv1.weight"),
 * the solver's own bytes as "solver"; metadata under "dlcore.*". The random state
 * and the data cursor are functions of the seed and the iteration.
 *
 * All calls: all ranks together; rank 0 reads and writes.
 */
#ifndef DLC_TRAIN_CHECKPOINT_H
#define DLC_TRAIN_CHECKPOINT_H

#include "train/session.h"

/* Writes NET-ITERATION.safetensors into the run's folder (run_folder.h), and removes
 * what is not kept (retention.h). *written is 0 on all ranks where the file could not
 * be written, of which dlc_detail tells, and nothing else has changed. *path: of rank
 * 0, to be freed with dlc_free; NULL of the others and where nothing was written. */
dlc_status dlc_checkpoint_save(dlc_session *session, int *written, char **path);

/* For a session whose solver was not started: weights, solver state and iteration of
 * the checkpoint that the run's folder says, or the newest sound one. */
dlc_status dlc_checkpoint_resume(dlc_session *session);

/* Weights alone, from a checkpoint or anybody's safetensors file, into a net. Every
 * parameter of the net must be there; more tensors do no harm. */
dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const char *path);

#endif
