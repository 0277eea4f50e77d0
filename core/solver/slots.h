/* The arenas of a solver's state, the slots above all. Allocated by the session, for
 * all parameters and again for those of tensor-parallel layers.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_SLOTS_H
#define DLC_SOLVER_SLOTS_H

#include <dlcore/device.h>

#include "solver/solver.h"

/* Allocates the dlc_solver_states arenas, of `count` elements each; slots have their
 * initial values. On failure the caller still closes them. */
dlc_status dlc_slots_open(const dlc_solver *solver, const dlc_device_ops *ops,
                          dlc_device *device, size_t count,
                          dlc_memory slot[DLC_MAX_STATES]);
void dlc_slots_close(const dlc_device_ops *ops, dlc_device *device,
                     dlc_memory slot[DLC_MAX_STATES]); /* zeroed ones are allowed */

#endif
