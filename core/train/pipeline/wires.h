/* What crosses between stages, on its way: messages that go on while the rank computes.
 *
 * Every sub-batch has a slot of memory for all that comes in and goes out with it.
 * There is one slot more than sub-batches may be under way, so that the next one is
 * received while this rank works on others. Receives wait for their messages, never the
 * other way round; nobody blocks but in dlc_wires_wait.
 *
 * Sub-batch k has slot k % slots. Its life here:
 *
 *     expect      receives its inputs begin            slot's last user is through
 *     has_inputs  they are all there                   ... forward
 *     send        what forward made goes out, receives of its gradients begin
 *     has_gradients                                    ... backward
 *     give_back   the inputs' gradients go out
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_WIRES_H
#define DLC_TRAIN_WIRES_H

#include "train/pipeline/stages.h"

typedef struct dlc_wires_args {
    const dlc_mail *mail; /* nobody else uses these tags */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    const dlc_crossings *crossings; /* stays */
    int32_t slots;
} dlc_wires_args;

typedef struct dlc_wires dlc_wires;

dlc_status dlc_wires_open(const dlc_wires_args *args, dlc_wires **wires);
void dlc_wires_close(dlc_wires *wires); /* NULL allowed; the mail has been closed */

dlc_status dlc_wires_expect(dlc_wires *wires, int32_t sub_batch);
int dlc_wires_has_inputs(const dlc_wires *wires, int32_t sub_batch);
/* Nothing that forward would write to is still being sent. */
int dlc_wires_is_free(const dlc_wires *wires, int32_t sub_batch);
dlc_status dlc_wires_send(dlc_wires *wires, int32_t sub_batch);
/* All gradients are there, and nothing that backward would write to is being sent. */
int dlc_wires_has_gradients(const dlc_wires *wires, int32_t sub_batch);
/* Before backward: of several that came for one tensor, the sum. */
dlc_status dlc_wires_add_gradients(dlc_wires *wires, int32_t sub_batch);
dlc_status dlc_wires_give_back(dlc_wires *wires, int32_t sub_batch);

/* Fills in what of the pass is the ports'; good until the next call. */
void dlc_wires_point(dlc_wires *wires, int32_t sub_batch, dlc_net_pass *pass);

/* Moves messages on. */
dlc_status dlc_wires_poll(dlc_wires *wires);
/* Until a message has come or gone; fails when the job ends. */
dlc_status dlc_wires_wait(dlc_wires *wires);
/* Until all have gone. */
dlc_status dlc_wires_drain(dlc_wires *wires);

/* Bytes of memory in all slots, and those sent so far. */
size_t dlc_wires_memory(const dlc_wires *wires);
size_t dlc_wires_bytes(const dlc_crossings *crossings, int32_t slots); /* planned */
uint64_t dlc_wires_sent(const dlc_wires *wires);

#endif
