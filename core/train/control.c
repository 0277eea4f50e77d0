/* See control.h. */
#include "train/control.h"

#include "base/status.h"

static dlc_status take_memory(const dlc_control *control, size_t bytes, uint32_t flags,
                              dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return control->ops->alloc(control->device, bytes, flags, memory);
}

/* One lane of host memory. */
typedef struct lane_memory {
    dlc_control_in in;
    float tail[DLC_ARENA_TAIL];
} lane_memory;

dlc_status dlc_control_open(dlc_control *control) {
    if (!control->queue)
        return DLC_OK;
    DLC_TRY(take_memory(control, sizeof *control->at, 0, &control->far));
    DLC_TRY(take_memory(control, DLC_CONTROL_LANES * sizeof(lane_memory),
                        DLC_MEM_STAGING, &control->host));
    control->at = control->far.base;
    lane_memory *memory = control->host.base;
    for (int i = 0; i < DLC_CONTROL_LANES; i++) {
        control->lane[i].in = &memory[i].in;
        control->lane[i].tail = memory[i].tail;
        DLC_TRY(control->ops->event_open(control->device, &control->lane[i].done));
    }
    return DLC_OK;
}

void dlc_control_close(dlc_control *control) {
    for (int i = 0; i < DLC_CONTROL_LANES; i++)
        if (control->lane[i].done)
            control->ops->event_close(control->device, control->lane[i].done);
    if (control->host.base)
        control->ops->free(control->device, &control->host);
    if (control->far.base)
        control->ops->free(control->device, &control->far);
    *control = (dlc_control){0};
}

static dlc_control_lane *lane_of(const dlc_control *control, int64_t iteration) {
    return (dlc_control_lane *)&control->lane[iteration % DLC_CONTROL_LANES];
}

dlc_status dlc_control_begin(dlc_control *control, const dlc_control_in *in) {
    dlc_control_lane *lane = lane_of(control, control->given);
    *lane->in = *in;
    return control->ops->copy(control->device, control->queue, control->at, lane->in,
                              sizeof *in);
}

dlc_status dlc_control_end(dlc_control *control, const float *tail) {
    dlc_control_lane *lane = lane_of(control, control->given);
    DLC_TRY(control->ops->copy(control->device, control->queue, lane->tail, tail,
                               DLC_ARENA_TAIL * sizeof *tail));
    DLC_TRY(control->ops->event_record(control->device, control->queue, lane->done));
    control->given++;
    return DLC_OK;
}

dlc_event *dlc_control_done(const dlc_control *control) {
    return lane_of(control, control->taken)->done;
}

const float *dlc_control_take(dlc_control *control) {
    return lane_of(control, control->taken++)->tail;
}
