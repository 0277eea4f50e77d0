/* A thread pool that runs the parts of one task in parallel, together with the calling
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

/* Calls part(context, i, thread) once for each i in 0 .. count - 1, in any order and
 * several at a time, but one at a time of each thread; blocks until all have returned.
 * One thread at a time may call it. With a NULL pool the caller runs all parts itself.
 */
void dlc_thread_pool_run(dlc_thread_pool *pool, int32_t count,
                         dlc_thread_pool_part *part, void *context);

#endif
