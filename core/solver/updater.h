/* The updater applies a solver's rule to arenas of parameters. Consistency models get
 * its table (dlc_updater); the core's own model, synchronous.h, and local_update.h know
 * the whole of it.
 *
 * Threads: dlc_updater's calls as the SDK says; everything else is the train thread's.
 */
#ifndef DLC_SOLVER_UPDATER_H
#define DLC_SOLVER_UPDATER_H

#include <dlcore/consistency.h>

#include "solver/ranges.h"
#include "solver/solver.h"

/* What is updated, and by what. */
typedef struct dlc_update_target {
    const dlc_solver *solver; /* with its schedule; must outlive the updater */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue; /* NULL: work is done on return */

    const dlc_segment *segment; /* ascending; must outlive the updater */
    int32_t segments;
    size_t count; /* elements of the arena without control words */

    /* Values in device memory, read when the queue gets there; NULL: none. */

    const dlc_rule_values *values_at; /* of the current iteration */
    dlc_loss_scale *loss_scale;       /* of the gradients */
} dlc_update_target;

typedef struct dlc_solver_updater dlc_solver_updater;

dlc_status dlc_solver_updater_open(const dlc_update_target *target,
                                   dlc_solver_updater **updater);
void dlc_solver_updater_close(dlc_solver_updater *updater); /* NULL allowed */

/* For consistency models; valid until close. */
const dlc_updater *dlc_solver_updater_table(const dlc_solver_updater *updater);

/* What the updater behind a table was opened with. */
const dlc_update_target *dlc_updater_target(const dlc_updater *table);

/* The update of an iteration, without the multipliers of a range. */
dlc_status dlc_update_make(const dlc_update_target *target, int64_t iteration,
                           dlc_update *update);

/* The same for one range of parameters. */
static inline dlc_update dlc_update_of_range(const dlc_update *update,
                                             const dlc_param_range *range) {
    dlc_update made = *update;
    made.lr_mult = range->lr_mult;
    made.decay_mult = range->decay_mult;
    return made;
}

#endif
