/* See host.h. */
#include "host.h"

#include <dirent.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "plugin/host.h"

/* How far the table of version 1.0 reaches. */
#define HOST_1_0 (offsetof(dlc_host, now_ns) + sizeof(uint64_t(*)(void)))

/* Threads of the plugin may allocate, too. */
static atomic_llong pieces, until_refusal;
static atomic_int refused;

static int is_refused(void) {
    long long left = atomic_load(&until_refusal);
    while (left > 0)
        if (atomic_compare_exchange_weak(&until_refusal, &left, left - 1))
            return left == 1;
    return 0;
}

static void *counted_alloc(size_t bytes) {
    if (is_refused()) {
        atomic_store(&refused, 1);
        (void)dlc_fail(DLC_ERR_NOMEM, "out of memory (the conformance suite's doing)");
        return NULL;
    }
    void *memory = dlc_host_services()->alloc(bytes);
    if (memory)
        atomic_fetch_add(&pieces, 1);
    return memory;
}

static void counted_free(void *memory) {
    if (memory)
        atomic_fetch_sub(&pieces, 1);
    dlc_host_services()->free(memory);
}

int64_t suite_host_pieces(void) {
    return (int64_t)atomic_load(&pieces);
}

void suite_host_refuse(int64_t n) {
    atomic_store(&refused, 0);
    atomic_store(&until_refusal, n);
}

int suite_host_refused(void) {
    return atomic_load(&refused);
}

/* A page that is followed by one that nobody may touch. */
static char *page_before_nothing(suite_run *run, size_t page) {
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0)
        suite_skip(run, "no memory for the host table");
    return pages;
}

const dlc_host *suite_host(suite_run *run) {
    static char *end;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!end) {
        dlc_host host = *dlc_host_services();
        host.size = HOST_1_0;
        host.abi_minor = 0;
        host.alloc = counted_alloc;
        host.free = counted_free;
        char *pages = page_before_nothing(run, page);
        end = pages + page;
        memcpy(end - HOST_1_0, &host, HOST_1_0);
        (void)mprotect(pages, page, PROT_READ);
    }
    return (const void *)(end - HOST_1_0);
}

dlc_status suite_load(suite_run *run) {
    (void)dlc_fail(DLC_OK, "%s", "");
    return DLC_CAN(run->plugin, load) ? run->plugin->load(suite_host(run)) : DLC_OK;
}

int suite_count_entries(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}
