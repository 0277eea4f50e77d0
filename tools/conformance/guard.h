/* Guard bytes before and behind memory that a plugin is given. They are NaN in every
 * floating-point type, and no label, so that reading them shows in the results;
 * suite_must checks after every call that they are as they were. */
#ifndef DLC_TOOLS_CONFORMANCE_GUARD_H
#define DLC_TOOLS_CONFORMANCE_GUARD_H

#include "suite.h"

enum { GUARD_BYTES = 64 }; /* on each side, which keeps the alignment */

/* Returns the memory between the guards. `base` has room for `bytes` and both guards,
 * and is the caller's, who says by guard_drop when memory of this owner is gone. `what`
 * is a constant: "output". */
void *guard_place(suite_run *run, const void *owner, void *base, size_t bytes,
                  const char *what);
void guard_drop(const void *owner);

/* Fails the check if a guard has changed. */
void guard_check(suite_run *run, const char *call);

/* Fills the guard that ends or begins at a byte, and 1 if it is still so. Those of
 * memory with other `id`s are others, so that a copy of one shows. */
void guard_fill(unsigned char *guard, size_t id);
int guard_is_whole(const unsigned char *guard, size_t id);

#endif
