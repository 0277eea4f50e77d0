/* What test programs run in, for those that do less where all takes longer.
 * SANITIZED: whether this is a build with a sanitizer. There a process takes a second
 * to start and to exit, and it matters that all code runs, not how often: loops over
 * numbers of ranks, machines and random moments are shortened. */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Whether this runs under valgrind, fifty times slower. */
static inline int under_valgrind(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload") != NULL;
}

#endif
