/* Host memory for the core's own bookkeeping. Tensors live in device memory. */
#ifndef DLC_BASE_MEMORY_H
#define DLC_BASE_MEMORY_H

#include <stddef.h>

/* `count` zeroed elements of `size` bytes, aligned to 64 bytes; NULL with the
 * detail sentence set when memory ran out (overflow included). A count of 0 gives
 * a valid pointer. Release with dlc_free. */
void *dlc_alloc(size_t count, size_t size);

/* Resizes what dlc_alloc gave (or NULL) from `old_count` to `count` elements; what
 * is new is zeroed. On failure NULL, and `memory` is still there. */
void *dlc_grow(void *memory, size_t old_count, size_t count, size_t size);

char *dlc_strdup(const char *text);
char *dlc_strndup(const char *text, size_t bytes);
char *dlc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

void dlc_free(void *memory); /* NULL allowed */

/* For tests: the n-th allocation from now on (1: the next one) and all after it
 * fail; 0 ends that. Returns how many were made since the last call. */
size_t dlc_memory_fail_at(size_t n);

#endif
