/* Threads that do the pieces of one task side by side, and the caller with them. */
#ifndef DLC_TRAIN_FEED_HANDS_H
#define DLC_TRAIN_FEED_HANDS_H

#include <stdint.h>

#include "base/status.h"

typedef struct dlc_hands dlc_hands;

/* Starts `threads` - 1 threads, which sleep until there is something to do. NULL: there
 * are none. DLC_ERR_NOMEM. */
dlc_status dlc_hands_open(int32_t threads, dlc_hands **hands);
void dlc_hands_close(dlc_hands *hands); /* NULL allowed; joins the threads */

/* Calls piece(context, i) once for each i in 0 .. count - 1, in any order and several
 * at a time; returns when all have returned. By one thread at a time. NULL: the caller
 * does them all. */
void dlc_hands_do(dlc_hands *hands, int32_t count, void (*piece)(void *, int32_t),
                  void *context);

#endif
