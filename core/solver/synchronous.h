/* Synchronous consistency, the core's own: after each iteration all ranks have the same
 * weights. It has the table of a plugin's model, and any rule, device and transport.
 *
 * The all-reduce of a bucket starts as soon as backward has filled it, and its weights
 * are updated as soon as it is complete, while later buckets are still in flight; or,
 * with sharded updates, each rank updates its shard and the weights are gathered.
 * Clipping by norm, loss scaling and rules that take norms must see whole tensors first
 * (norms.h). */
#ifndef DLC_SOLVER_SYNCHRONOUS_H
#define DLC_SOLVER_SYNCHRONOUS_H

#include <dlcore/consistency.h>

/* `ops` are dlc_consistency_ops. Its create takes only arguments whose `updater` is the
 * core's (updater.h), and needs no settings. */
extern const dlc_feature dlc_synchronous_feature;
extern const dlc_consistency_ops dlc_synchronous_ops;

#endif
