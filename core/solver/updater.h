/* The updater applies a solver's rule to arenas of parameters. Consistency models get
 * its table (dlc_updater); the core's own model, synchronous.h, and `dlcore time` know
 * the whole of it.
 *
 * Threads: dlc_updater's calls as the SDK says; everything else is the train thread's.
 */
#ifndef DLC_SOLVER_UPDATER_H
#define DLC_SOLVER_UPDATER_H

#include <dlcore/consistency.h>

#include "solver/update.h"

typedef struct dlc_solver_updater dlc_solver_updater;

dlc_status dlc_solver_updater_open(const dlc_update_target *target,
                                   dlc_solver_updater **updater);
void dlc_solver_updater_close(dlc_solver_updater *updater); /* NULL allowed */

/* For consistency models; valid until close. */
const dlc_updater *dlc_solver_updater_table(const dlc_solver_updater *updater);

/* *square: the squared norm of these gradients, of the whole arena, in device memory;
 * `exchange` gathers it if it shards updates. Only where updates need norms. */
dlc_status dlc_solver_updater_gradient_square(dlc_solver_updater *updater,
                                              const dlc_exchange *exchange,
                                              const float *gradients,
                                              const double **square);

/* What the updater behind a table was opened with. */
const dlc_update_target *dlc_updater_target(const dlc_updater *table);

/* The update of an iteration, without the multipliers of a range (update.h). */
dlc_status dlc_update_make(const dlc_update_target *target, int64_t iteration,
                           dlc_update *update);

#endif
