/* What the thread that ends a process holds by thread-local pointers alone is no leak.
 * The leak checker doesn't follow these (use_tls=0, see lsan.supp), and would find
 * glibc's and libgomp's few bytes in nearly every process; to tell them by the names of
 * functions it reads the debug information of all libraries, which takes longer than
 * its search. So it is told of them just before it looks. */
#include "support/leaks.h"

#include <link.h>
#include <sanitizer/lsan_interface.h>
#include <stdlib.h>

/* Those of libraries that were there at the start lie beside the thread pointer, on one
 * side or the other: more than glibc keeps room for, of which what is mapped is read.
 */
enum { SIDE_BYTES = 8192 };

/* Those of a library that was opened later are a block of the heap. */
static int know_library(struct dl_phdr_info *library, size_t bytes, void *context) {
    (void)bytes;
    (void)context;
    if (library->dlpi_tls_data)
        __lsan_ignore_object(library->dlpi_tls_data);
    return 0;
}

static void know_thread(void) {
    char *thread = __builtin_thread_pointer();
    __lsan_register_root_region(thread - SIDE_BYTES, 2 * (size_t)SIDE_BYTES);
    (void)dl_iterate_phdr(know_library, NULL);
}

int leaks_found(void) {
    know_thread();
    return __lsan_do_recoverable_leak_check();
}

/* The checker's own handler, which is older, comes after it. */
__attribute__((constructor)) static void know_at_exit(void) {
    (void)atexit(know_thread);
}
