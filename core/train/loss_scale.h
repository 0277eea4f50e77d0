/* The factor in device memory that keeps gradients in half precision from vanishing
 * (dlc_loss_scale). A checkpoint has it as text, so that a resumed run goes on with it.
 */
#ifndef DLC_TRAIN_LOSS_SCALE_H
#define DLC_TRAIN_LOSS_SCALE_H

#include <dlcore/device.h>

/* Takes memory for it and gives it its first value. */
dlc_status dlc_loss_scale_open(const dlc_device_ops *ops, dlc_device *device,
                               dlc_memory *memory);

dlc_status dlc_loss_scale_read(const dlc_device_ops *ops, dlc_device *device,
                               const dlc_memory *memory, dlc_loss_scale *value);
dlc_status dlc_loss_scale_write(const dlc_device_ops *ops, dlc_device *device,
                                const dlc_memory *memory, const dlc_loss_scale *value);

enum { DLC_LOSS_SCALE_TEXT = 96 };
void dlc_loss_scale_print(const dlc_loss_scale *value, char text[DLC_LOSS_SCALE_TEXT]);
/* DLC_ERR_DATA where it is no such text. */
dlc_status dlc_loss_scale_parse(const char *text, dlc_loss_scale *value);

#endif
