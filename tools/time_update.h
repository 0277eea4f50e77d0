/* The solver's update, measured layer by layer.
 *
 * In training one solver updates the weights bucket by bucket, whatever layer they are
 * of. Here each layer with parameters gets a solver of its own, of the same settings,
 * that sees the layer's slice of the session's weights, gradients and slots as the
 * whole and its one bucket as exchanged at once. It does the work of training on the
 * memory of training; only what joins layers is lost: a call of the device may span
 * several in training, and clipping sees the gradients of one layer alone.
 */
#ifndef DLC_TOOLS_TIME_UPDATE_H
#define DLC_TOOLS_TIME_UPDATE_H

#include "time_table.h"
#include "train/session.h"

typedef struct dlc_time_update dlc_time_update;

/* For `count` rows of the session's net. */
dlc_status dlc_time_update_open(const dlc_session *session, const dlc_net_row *rows,
                                size_t count, dlc_time_update **update);
void dlc_time_update_close(dlc_time_update *update); /* NULL allowed */

/* Bytes that row i's update moves at the least: gradients and saved slots read, weights
 * read, weights and slots written. 0 where batches are gathered (accumulate). */
dlc_net_work dlc_time_update_work(const dlc_time_update *update, size_t i);

/* Updates all weights once, in the order in which backward finishes them; part
 * TIME_UPDATE of each row in `seconds` (rows * TIME_PARTS) is what a pass costs. */
dlc_status dlc_time_update_run(dlc_time_update *update, int64_t iteration,
                               double *seconds);

#endif
