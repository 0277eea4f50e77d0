/* The loss scale in device memory (dlc_loss_scale), which keeps half-precision
 * gradients from underflow. Checkpoints store it as text, so that a resumed run
 * continues with it. */
#ifndef DLC_SESSION_LOSS_SCALE_H
#define DLC_SESSION_LOSS_SCALE_H

#include <dlcore/device.h>

/* Allocates it and sets the initial value; the caller frees `memory`. */
dlc_status dlc_loss_scale_open(const dlc_device_ops *ops, dlc_device *device,
                               dlc_memory *memory);

dlc_status dlc_loss_scale_read(const dlc_device_ops *ops, dlc_device *device,
                               const dlc_memory *memory, dlc_loss_scale *value);
dlc_status dlc_loss_scale_write(const dlc_device_ops *ops, dlc_device *device,
                                const dlc_memory *memory, const dlc_loss_scale *value);

enum { DLC_LOSS_SCALE_TEXT = 96 };
void dlc_loss_scale_print(const dlc_loss_scale *value, char text[DLC_LOSS_SCALE_TEXT]);
/* DLC_ERR_DATA if the text is not a loss scale. */
dlc_status dlc_loss_scale_parse(const char *text, dlc_loss_scale *value);

#endif
