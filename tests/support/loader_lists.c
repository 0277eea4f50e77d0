/* For programs under the leak checker. glibc opens libgcc_s when a thread ends, and
 * only the loader's own memory points to the list that it makes then. Unless that
 * memory is read, each process finds a leak, and looking in debug information for its
 * name, which lsan.supp has, takes longer than most commands. */
#include <dlfcn.h>
#include <sanitizer/lsan_interface.h>

enum {
    LINK_MAP_BYTES = 2048
}; /* more than the loader has there; unmapped memory is not read */

__attribute__((constructor)) static void read_loader_lists(void) {
    void *library = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD); /* stays open */
    if (library)
        __lsan_register_root_region(library, LINK_MAP_BYTES);
}
