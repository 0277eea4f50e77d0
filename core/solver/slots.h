/* The arenas of a rule's slots. Allocated by the session, for all parameters and again
 * for those of tensor-parallel layers.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_SLOTS_H
#define DLC_SOLVER_SLOTS_H

#include <dlcore/device.h>

#include "solver/solver.h"

/* Allocates slot[0] .. slot[solver->slots - 1], of `count` elements each, with their
 * initial values. On failure the caller still closes them. */
dlc_status dlc_slots_open(const dlc_solver *solver, const dlc_device_ops *ops,
                          dlc_device *device, size_t count,
                          dlc_memory slot[DLC_MAX_SLOTS]);
void dlc_slots_close(const dlc_device_ops *ops, dlc_device *device,
                     dlc_memory slot[DLC_MAX_SLOTS]); /* zeroed ones are allowed */

#endif
