/* Allocates aligned, zeroed memory; large blocks in huge pages; can fail on request for
 * tests. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/escape.h"
#include "base/read.h"
#include "base/status.h"

#define ALIGNMENT 64
/* From this size on, huge pages: first touch is expensive otherwise. */
#define HUGE_FROM ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

static _Atomic size_t allocations;
static _Atomic size_t fail_at;
static _Atomic int fails_once;

static int must_fail(void) {
    size_t n = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    size_t limit = atomic_load_explicit(&fail_at, memory_order_relaxed);
    return limit && (n == limit || (n > limit && !atomic_load(&fails_once)));
}

static size_t set_failure(size_t n, int once) {
    atomic_store(&fails_once, once);
    atomic_store(&fail_at, n);
    return atomic_exchange(&allocations, 0);
}

size_t dlc_memory_fail_at(size_t n) {
    return set_failure(n, 0);
}

size_t dlc_memory_fail_once(size_t n) {
    return set_failure(n, 1);
}

void *dlc_alloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        bytes > PTRDIFF_MAX - ALIGNMENT || must_fail()) {
        dlc_fail(DLC_ERR_NOMEM, "out of memory: %zu x %zu bytes", count, size);
        return NULL;
    }
    bytes = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    void *memory = NULL;
    if (posix_memalign(&memory, bytes < HUGE_FROM ? ALIGNMENT : HUGE_PAGE, bytes)) {
        dlc_fail(DLC_ERR_NOMEM, "out of memory: %zu x %zu bytes", count, size);
        return NULL;
    }
    if (bytes >= HUGE_FROM)
        madvise(memory, bytes, MADV_HUGEPAGE); /* a hint, which may fail */
    memset(memory, 0, bytes);
    return memory;
}

void *dlc_grow(void *memory, size_t old_count, size_t count, size_t size) {
    void *grown = dlc_alloc(count, size);
    if (!grown)
        return NULL;
    size_t kept = old_count < count ? old_count : count;
    if (memory && kept)
        memcpy(grown, memory, kept * size);
    dlc_free(memory);
    return grown;
}

void *dlc_grow_by_one(void *array, size_t count, size_t size) {
    enum { FIRST = 8 };
    if (count == 0)
        return dlc_grow(array, 0, FIRST, size);
    int is_full = count >= FIRST && (count & (count - 1)) == 0;
    return is_full ? dlc_grow(array, count, 2 * count, size) : array;
}

/* Texts are many and short: aligned, each would take more room and much more time. */
static char *alloc_text(size_t bytes) {
    char *text = must_fail() ? NULL : malloc(bytes);
    if (!text) {
        dlc_fail(DLC_ERR_NOMEM, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    text[0] = '\0';
    return text;
}

char *dlc_strndup(const char *text, size_t bytes) {
    size_t length = strnlen(text, bytes);
    char *copy = alloc_text(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *dlc_strdup(const char *text) {
    return dlc_strndup(text, strlen(text));
}

char *dlc_format(const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : alloc_text((size_t)length + 1);
    if (text)
        dlc_print(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void dlc_free(void *memory) {
    free(memory);
}

uint64_t dlc_memory_resident(void) {
    return dlc_read_kilobytes("/proc/self/smaps_rollup", "Rss");
}
