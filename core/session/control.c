/* Values that the CPU and a device with a queue exchange in each iteration, through two
 * slots of pinned host memory. */
#include "session/control.h"

#include "base/status.h"
#include "plugin/device_objects.h"

/* Layout of one slot in host memory. */
typedef struct slot_memory {
    dlc_control_input input;
    float control_words[DLC_CONTROL_WORDS];
} slot_memory;

dlc_status dlc_control_open(dlc_control *control) {
    if (!control->queue)
        return DLC_OK;
    DLC_TRY(dlc_device_alloc(control->ops, control->device, sizeof *control->on_device,
                             0, &control->device_memory));
    DLC_TRY(dlc_device_alloc(control->ops, control->device,
                             DLC_CONTROL_SLOTS * sizeof(slot_memory), DLC_MEM_STAGING,
                             &control->host));
    control->on_device = control->device_memory.base;
    slot_memory *memory = control->host.base;
    for (int i = 0; i < DLC_CONTROL_SLOTS; i++) {
        control->slot[i].input = &memory[i].input;
        control->slot[i].control_words = memory[i].control_words;
        DLC_TRY(dlc_device_open_event(control->ops, control->device,
                                      &control->slot[i].done));
    }
    return DLC_OK;
}

void dlc_control_close(dlc_control *control) {
    for (int i = 0; i < DLC_CONTROL_SLOTS; i++)
        if (control->slot[i].done)
            control->ops->queues->event_close(control->device, control->slot[i].done);
    dlc_device_free(control->ops, control->device, &control->host);
    dlc_device_free(control->ops, control->device, &control->device_memory);
    *control = (dlc_control){0};
}

static dlc_control_slot *control_slot(const dlc_control *control, int64_t iteration) {
    return (dlc_control_slot *)&control->slot[iteration % DLC_CONTROL_SLOTS];
}

dlc_status dlc_control_begin(dlc_control *control, const dlc_control_input *input) {
    dlc_control_slot *slot = control_slot(control, control->submitted);
    *slot->input = *input;
    return control->ops->copy(control->device, control->queue, control->on_device,
                              slot->input, sizeof *input);
}

dlc_status dlc_control_end(dlc_control *control, const float *control_words) {
    dlc_control_slot *slot = control_slot(control, control->submitted);
    DLC_TRY(control->ops->copy(control->device, control->queue, slot->control_words,
                               control_words,
                               DLC_CONTROL_WORDS * sizeof *control_words));
    DLC_TRY(control->ops->queues->event_record(control->device, control->queue,
                                               slot->done));
    control->submitted++;
    return DLC_OK;
}

dlc_event *dlc_control_done(const dlc_control *control) {
    return control_slot(control, control->collected)->done;
}

const float *dlc_control_collect(dlc_control *control) {
    return control_slot(control, control->collected++)->control_words;
}
