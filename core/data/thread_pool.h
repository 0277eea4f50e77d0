/* A thread pool that runs the parts of tasks in parallel, together with the calling
 * thread. Used by the feed. */
#ifndef DLC_DATA_THREAD_POOL_H
#define DLC_DATA_THREAD_POOL_H

#include <stdint.h>

#include "base/status.h"

typedef struct dlc_thread_pool dlc_thread_pool;

/* Starts `threads` - 1 threads, which sleep until there is work. *pool is NULL if
 * `threads` is below 2. DLC_ERR_NOMEM. */
dlc_status dlc_thread_pool_open(int32_t threads, dlc_thread_pool **pool);
void dlc_thread_pool_close(dlc_thread_pool *pool); /* NULL allowed; joins the threads */

/* A part of a task: number `i`, run by thread 0 .. threads - 1. */
typedef void dlc_thread_pool_part(void *context, int32_t i, int32_t thread);

/* A task: part(context, i, thread) is called once for each i in 0 .. count - 1, in any
 * order and several at a time, but one at a time of each thread. */
typedef struct dlc_task {
    dlc_thread_pool_part *part;
    void *context;
    int32_t count;
    int32_t next, running; /* the pool's, as is what follows; begin with 0 */
    struct dlc_task *after;
} dlc_task;

/* Lets the threads run the parts of a task once those of the tasks before are taken.
 * The task is the pool's until dlc_thread_pool_wait has returned. */
void dlc_thread_pool_start(dlc_thread_pool *pool, dlc_task *task);
/* Blocks until all parts of a task that was started have returned; meanwhile the
 * calling thread, which is thread 0, runs parts, too. */
void dlc_thread_pool_wait(dlc_thread_pool *pool, dlc_task *task);
/* Both at once. One thread at a time may call these. With a NULL pool the caller runs
 * all parts itself, when it waits. */
void dlc_thread_pool_run(dlc_thread_pool *pool, int32_t count,
                         dlc_thread_pool_part *part, void *context);

#endif
