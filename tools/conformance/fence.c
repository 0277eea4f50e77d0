/* Maps memory before a page that nobody may touch. */
#include "fence.h"

#include <sys/mman.h>
#include <unistd.h>

fenced fence(suite_run *run, size_t most) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (most + page - 1) / page * page;
    void *map = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect((char *)map + room, page, PROT_NONE) != 0)
        suite_skip(run, "out of memory");
    return (fenced){map, room, (unsigned char *)map + room};
}

void fence_lock(suite_run *run, const fenced *memory) {
    if (mprotect(memory->map, memory->bytes, PROT_READ) != 0)
        suite_skip(run, "cannot protect memory");
}
