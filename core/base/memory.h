/* Host memory for the core's own data structures. Tensors are in device memory. */
#ifndef DLC_BASE_MEMORY_H
#define DLC_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Allocates `count` zeroed elements of `size` bytes, aligned to 64 bytes. NULL, with
 * the detail sentence set, if memory runs out (or the size overflows). A count of 0
 * gives a valid pointer. Release with dlc_free. */
void *dlc_alloc(size_t count, size_t size);

/* Resizes memory of dlc_alloc (or NULL) from `old_count` to `count` elements; new ones
 * are zeroed. Returns NULL on failure, and `memory` stays valid. */
void *dlc_grow(void *memory, size_t old_count, size_t count, size_t size);

/* Makes room for an element after the `count` of an array of dlc_alloc (NULL if there
 * are none yet) that grows by this function alone: its capacities are powers of two.
 * Returns the array, or NULL on failure, and `array` stays valid. */
void *dlc_grow_by_one(void *array, size_t count, size_t size);

char *dlc_strdup(const char *text);
char *dlc_strndup(const char *text, size_t bytes);
char *dlc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

void dlc_free(void *memory); /* NULL allowed */

/* The resident memory of this process in bytes. */
uint64_t dlc_memory_resident(void);

/* For tests: makes the n-th allocation from now on (1: the next one) and all after it
 * fail; 0 stops that. Returns the number of allocations since the last call. */
size_t dlc_memory_fail_at(size_t n);
/* The same, but only the n-th fails: whoever then makes do without it is found out. */
size_t dlc_memory_fail_once(size_t n);

#endif
