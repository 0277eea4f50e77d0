/* Hides what the exiting thread of a process holds only by thread-local pointers from
 * the leak checker, which does not follow these (use_tls=0, see lsan.supp): it would
 * report some bytes of glibc and libgomp in nearly every process, and suppressing them
 * by function names makes it read the debug information of all libraries, which takes
 * longer than the check itself. So they are registered just before it runs. */
#include "support/leaks.h"

#include <link.h>
#include <sanitizer/lsan_interface.h>
#include <stdlib.h>

/* Thread-local data of libraries present at start is beside the thread pointer, on
 * either side; of this range, mapped pages are scanned. */
enum { SIDE_BYTES = 8192 };

/* Thread-local data of a library that was loaded later is a heap block. */
static int register_library(struct dl_phdr_info *library, size_t bytes, void *context) {
    (void)bytes;
    (void)context;
    if (library->dlpi_tls_data)
        __lsan_ignore_object(library->dlpi_tls_data);
    return 0;
}

static void register_thread(void) {
    char *thread = __builtin_thread_pointer();
    __lsan_register_root_region(thread - SIDE_BYTES, 2 * (size_t)SIDE_BYTES);
    (void)dl_iterate_phdr(register_library, NULL);
}

int leaks_found(void) {
    register_thread();
    return __lsan_do_recoverable_leak_check();
}

/* The checker's own atexit handler was registered earlier, so it runs after this one.
 */
__attribute__((constructor)) static void register_at_exit(void) {
    (void)atexit(register_thread);
}
