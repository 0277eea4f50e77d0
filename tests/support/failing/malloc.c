/* For LD_PRELOAD: makes one allocation of the process fail, number FAIL_AT, counted
 * from 1 over those of the command and its library, direct or through the C library.
 * Other libraries have bugs of their own (CUDA's runtime and UCX crash). No allocation
 * of a child process fails. At the end the number of allocations is written to the file
 * FAIL_COUNT. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Atomic long count;
static long fail_at = -1; /* none */
static int is_wanted;
static pid_t mine;

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAIL_COUNT");
    long all = atomic_load(&count);
    is_wanted = 0;
    FILE *file = path && getpid() == mine ? fopen(path, "we") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", all);
    fclose(file);
}

/* ---- Who allocates -----------------------------------------------------------------
 */

/* Where code is: of the C library, and of the command and its library. */
typedef struct span {
    uintptr_t begin, end;
} span;

enum { LIBC, COMMAND, LIBRARY, SPANS };
static span spans[SPANS];

static int find_span(struct dl_phdr_info *info, size_t size, void *context) {
    static const char *const names[SPANS] = {"libc.so", "dlcore", "libdlcore.so"};
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (!*name) /* the program itself */
        name = program_invocation_short_name;
    for (int i = 0; i < SPANS; i++)
        for (int k = 0;
             strncmp(name, names[i], strlen(names[i])) == 0 && k < info->dlpi_phnum;
             k++) {
            const ElfW(Phdr) *part = &info->dlpi_phdr[k];
            uintptr_t begin = info->dlpi_addr + part->p_vaddr;
            if (part->p_type == PT_LOAD && part->p_flags & PF_X)
                spans[i] = (span){begin, begin + part->p_memsz};
        }
    (void)context;
    return 0;
}

static int is_in(const void *caller, int of) {
    return (uintptr_t)caller >= spans[of].begin && (uintptr_t)caller < spans[of].end;
}

/* Does the command or its library allocate? For calls from the C library, its caller
 * counts. */
static int is_watched(const void *caller) {
    enum { DEPTH = 16 };
    void *frame[DEPTH];
    int at = 0, depth = 0;
    if (is_in(caller, LIBC)) {
        depth = backtrace(frame, DEPTH);
        while (at < depth && frame[at] != caller)
            at++;
        while (at < depth && is_in(frame[at], LIBC))
            at++;
        if (at == depth)
            return 0;
        caller = frame[at];
    }
    return is_in(caller, COMMAND) || is_in(caller, LIBRARY);
}

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("FAIL_AT");
    mine = getpid();
    is_wanted = at || getenv("FAIL_COUNT");
    fail_at = at ? strtol(at, NULL, 10) : -1;
    (void)dl_iterate_phdr(find_span, NULL);
}

static int fails(const void *caller) {
    static __thread int inside;
    if (!is_wanted || inside || getpid() != mine)
        return 0;
    inside = 1;
    int counts = is_watched(caller);
    inside = 0;
    if (!counts || atomic_fetch_add(&count, 1) + 1 != fail_at)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    if (fails(__builtin_return_address(0)))
        return ENOMEM;
    void *made = __libc_memalign(alignment, size);
    if (!made)
        return ENOMEM;
    *memory = made;
    return 0;
}
