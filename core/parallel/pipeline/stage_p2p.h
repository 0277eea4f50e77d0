/* Messages between pipeline stages, which make progress whenever the pipeline polls or
 * waits for its progress engine.
 *
 * Every micro-batch has a slot of memory for its boundary tensors. There is one slot
 * more than micro-batches may be in flight, so that the next one is received while this
 * rank works on others. Receives are posted before their messages are sent. No call
 * blocks.
 *
 * Micro-batch k has slot k % slots, which is used in this order:
 *
 *     post_receives      receives its inputs          slot's last user is done
 *     has_inputs         they have arrived            ... forward
 *     send               sends outputs, posts receives of their gradients
 *     has_gradients                                   ... backward
 *     return_gradients   sends the gradients of its inputs
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_PIPELINE_STAGE_P2P_H
#define DLC_PARALLEL_PIPELINE_STAGE_P2P_H

#include "comm/progress_engine.h"
#include "parallel/pipeline/stages.h"

typedef struct dlc_stage_p2p_args {
    dlc_progress_engine *engine; /* without a thread */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    const dlc_boundary_tensors *boundary; /* must outlive this */
    int32_t slots;
} dlc_stage_p2p_args;

typedef struct dlc_stage_p2p dlc_stage_p2p;

dlc_status dlc_stage_p2p_open(const dlc_stage_p2p_args *args,
                              dlc_stage_p2p **stage_p2p);
/* NULL allowed; the engine must be closed already */
void dlc_stage_p2p_close(dlc_stage_p2p *stage_p2p);

dlc_status dlc_stage_p2p_post_receives(dlc_stage_p2p *stage_p2p, int32_t micro_batch);
int dlc_stage_p2p_has_inputs(const dlc_stage_p2p *stage_p2p, int32_t micro_batch);
/* Have all outputs in the slot been sent, so that forward may overwrite them? */
int dlc_stage_p2p_outputs_sent(const dlc_stage_p2p *stage_p2p, int32_t micro_batch);
dlc_status dlc_stage_p2p_send(dlc_stage_p2p *stage_p2p, int32_t micro_batch);
/* Have all gradients arrived, and those that backward overwrites been sent? */
int dlc_stage_p2p_has_gradients(const dlc_stage_p2p *stage_p2p, int32_t micro_batch);
/* Before backward: sums gradients that several stages sent for one tensor. */
dlc_status dlc_stage_p2p_add_gradients(dlc_stage_p2p *stage_p2p, int32_t micro_batch);
dlc_status dlc_stage_p2p_return_gradients(dlc_stage_p2p *stage_p2p,
                                          int32_t micro_batch);

/* Sets the stage boundary's pointers of a micro-batch; valid until the next call. */
void dlc_stage_p2p_bind(dlc_stage_p2p *stage_p2p, int32_t micro_batch,
                        dlc_net_micro_batch *of_net);

/* Is a message in flight that this rank sends? */
int dlc_stage_p2p_is_sending(const dlc_stage_p2p *stage_p2p);

/* Bytes of all slots; bytes planned for so many slots; bytes sent so far. */
size_t dlc_stage_p2p_memory(const dlc_stage_p2p *stage_p2p);
size_t dlc_stage_p2p_bytes(const dlc_boundary_tensors *boundary, int32_t slots);
uint64_t dlc_stage_p2p_sent(const dlc_stage_p2p *stage_p2p);

#endif
