/* Measures the solver's update layer by layer. Called by time_measure.c.
 *
 * In training the weights are updated bucket by bucket, across layers. Here each layer
 * with parameters has an update of its own with the same settings, which sees the
 * layer's slice of the session's weights, gradients and slots as the whole arena, with
 * one bucket that needs no exchange. So it does the work of training on the memory of
 * training. Only what spans layers differs: a device call may cover several layers in
 * training, and here clipping sees the gradients of one layer.
 */
#ifndef DLC_TOOLS_TIME_UPDATE_H
#define DLC_TOOLS_TIME_UPDATE_H

#include "session/session.h"
#include "time_table.h"

typedef struct dlc_time_update dlc_time_update;

/* Opens updates for `count` rows of the session's net. */
dlc_status dlc_time_update_open(const dlc_session *session, const dlc_net_row *rows,
                                size_t count, dlc_time_update **update);
void dlc_time_update_close(dlc_time_update *update); /* NULL is allowed */

/* The minimum of bytes that row i's update moves: gradients, weights and slots
 * are read, weights and slots written. 0 if gradients are accumulated over batches. */
dlc_net_work dlc_time_update_work(const dlc_time_update *update, size_t i);

/* Updates all weights once, in the order in which backward finishes them, and sets part
 * TIME_UPDATE of each row in `seconds` (rows * TIME_PARTS). */
dlc_status dlc_time_update_run(dlc_time_update *update, int64_t iteration,
                               double *seconds);

#endif
