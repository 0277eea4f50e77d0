/* Semaphores shared by processes: queues wait for them without the lock. */
#include <time.h>

#include "async.h"

typedef struct semaphore_args {
    int32_t count;
    dlc_semaphore_op step[];
} semaphore_args;

static int is_reached(const dlc_semaphore_op *s) {
    return (int32_t)(__atomic_load_n(s->semaphore, __ATOMIC_SEQ_CST) - s->value) >= 0;
}

static dlc_status run_semaphores(const void *args) {
    const struct timespec nap = {.tv_nsec = 20000};
    const semaphore_args *w = args;
    for (int32_t i = 0; i < w->count; i++) {
        const dlc_semaphore_op *s = &w->step[i];
        if (s->kind == DLC_SEMAPHORE_WRITE)
            __atomic_store_n(s->semaphore, s->value, __ATOMIC_SEQ_CST);
        while (s->kind == DLC_SEMAPHORE_WAIT && !is_reached(s))
            (void)nanosleep(&nap, NULL);
    }
    return DLC_OK;
}

dlc_status device_semaphores(dlc_device *device, dlc_queue *queue,
                             const dlc_semaphore_op *steps, int32_t count) {
    if (!device->semaphores)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "semaphores are disabled (async_semaphores)");
    if (count < 1)
        return DLC_OK;
    size_t bytes = sizeof(semaphore_args) + (size_t)count * sizeof *steps;
    semaphore_args *w = host->alloc(bytes);
    if (!w)
        return DLC_ERR_NOMEM;
    w->count = count;
    for (int32_t i = 0; i < count; i++) {
        w->step[i] = steps[i];
        w->step[i].semaphore = to_host_address(steps[i].semaphore);
    }
    dlc_status status = work_submit(queue, run_semaphores, w, bytes);
    host->free(w);
    return status;
}
