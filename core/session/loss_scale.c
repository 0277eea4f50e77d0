/* Loss scaling: device memory of the scale, and its text form in checkpoints. */
#include "session/loss_scale.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"
#include "plugin/device_objects.h"

/* Starts high; a few skipped iterations bring it down to the right value. */
static const dlc_loss_scale first = {.scale = 65536, .inverse = 1.0f / 65536};

dlc_status dlc_loss_scale_write(const dlc_device_ops *ops, dlc_device *device,
                                const dlc_memory *memory, const dlc_loss_scale *value) {
    return ops->copy(device, NULL, memory->base, value, sizeof *value);
}

dlc_status dlc_loss_scale_read(const dlc_device_ops *ops, dlc_device *device,
                               const dlc_memory *memory, dlc_loss_scale *value) {
    return ops->copy(device, NULL, value, memory->base, sizeof *value);
}

dlc_status dlc_loss_scale_open(const dlc_device_ops *ops, dlc_device *device,
                               dlc_memory *memory) {
    DLC_TRY(dlc_device_alloc(ops, device, sizeof first, 0, memory));
    return dlc_loss_scale_write(ops, device, memory, &first);
}

void dlc_loss_scale_print(const dlc_loss_scale *value, char text[DLC_LOSS_SCALE_TEXT]) {
    (void)snprintf(text, DLC_LOSS_SCALE_TEXT, "%.9g %" PRId32 " %" PRId64,
                   (double)value->scale, value->good_iterations, value->skipped);
}

dlc_status dlc_loss_scale_parse(const char *text, dlc_loss_scale *value) {
    dlc_loss_scale parsed = {0};
    char rest = 0;
    int found = sscanf(text, "%f %" SCNd32 " %" SCNd64 "%c", &parsed.scale,
                       &parsed.good_iterations, &parsed.skipped, &rest);
    if (found != 3 || !(parsed.scale >= 1 && parsed.scale <= 0x1p24f) ||
        parsed.good_iterations < 0 || parsed.skipped < 0)
        return dlc_fail(DLC_ERR_DATA, "'%s' is not a loss scale", text);
    parsed.inverse = 1.0f / parsed.scale;
    *value = parsed;
    return DLC_OK;
}
