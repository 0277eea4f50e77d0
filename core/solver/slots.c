/* Allocates slots and writes their initial values. */
#include "solver/slots.h"

#include "base/memory.h"
#include "base/status.h"
#include "plugin/device_objects.h"

enum { PIECE = 1 << 16 }; /* elements that are copied to the device at a time */

static dlc_status write_value(const dlc_device_ops *ops, dlc_device *device,
                              float *slot, size_t count, float value) {
    size_t piece = count < PIECE ? count : PIECE;
    float *values = dlc_alloc(piece, sizeof *values);
    if (!values)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < piece; i++)
        values[i] = value;
    dlc_status status = DLC_OK;
    for (size_t at = 0; status == DLC_OK && at < count; at += PIECE) {
        size_t n = count - at < piece ? count - at : piece;
        status = ops->copy(device, NULL, slot + at, values, n * sizeof *values);
    }
    dlc_free(values);
    return status;
}

dlc_status dlc_slots_open(const dlc_solver *solver, const dlc_device_ops *ops,
                          dlc_device *device, size_t count,
                          dlc_memory slot[DLC_MAX_STATES]) {
    for (int32_t i = 0; count > 0 && i < dlc_solver_states(solver); i++) {
        DLC_TRY(dlc_device_alloc(ops, device, count * sizeof(float), 0, &slot[i]));
        if (i < solver->slots && solver->needs.slot_initial[i] != 0)
            DLC_TRY(write_value(ops, device, slot[i].base, count,
                                solver->needs.slot_initial[i]));
    }
    return DLC_OK;
}

void dlc_slots_close(const dlc_device_ops *ops, dlc_device *device,
                     dlc_memory slot[DLC_MAX_STATES]) {
    for (int32_t i = 0; i < DLC_MAX_STATES; i++)
        dlc_device_free(ops, device, &slot[i]);
}
