/* What the files of the plugin share. */
#ifndef ACCELERATOR_H
#define ACCELERATOR_H

#include <dlcore/layer.h>

extern const dlc_host *host; /* set by load */

enum { DEVICES = 2 };

struct dlc_device {
    int32_t index;
    size_t capacity; /* bytes of memory */
};

/* accelerator.c */
dlc_status device_count(int32_t *count);
dlc_status device_describe(int32_t index, dlc_device_info *info);
dlc_status device_links(int32_t index, dlc_link *links, int32_t capacity,
                        int32_t *count);
dlc_status device_open(const dlc_device_args *args, dlc_device **device);
void device_close(dlc_device *device);
dlc_status device_can_access_peer(dlc_device *device, int32_t from, int32_t to,
                                  int *can_access);

/* memory.c: what the CPU must not touch has addresses at which nothing is mapped.
 * `view` is where the kernels, threads of this process, see it. */
void *view(const void *address);
int is_device_memory(const void *address);
dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory);
void device_free(dlc_device *device, dlc_memory *memory);
dlc_status device_export(dlc_device *device, const dlc_memory *memory,
                         dlc_ipc_handle *handle);
dlc_status device_import(dlc_device *device, const dlc_ipc_handle *handle,
                         dlc_memory *memory);

/* queue.c: runs `run` with a copy of the arguments when the queue gets there, or at
 * once if `queue` is NULL. An error of work on a queue is that of the next queue_sync,
 * so `run` reports it by `work_fail` and not by host->fail, which is for the calling
 * thread. */
typedef dlc_status work_run(const void *args);
dlc_status submit(dlc_queue *queue, work_run *run, const void *args, size_t bytes);
dlc_status work_fail(dlc_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
extern const dlc_device_queue_ops queue_ops;

/* kernels.c */
extern const dlc_device_ops device_ops;

/* layers.c */
extern const dlc_layer_ops inner_product_ops, softmax_loss_ops;
extern const dlc_option inner_product_options[];

#endif
