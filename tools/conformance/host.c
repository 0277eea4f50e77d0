/* Implements the host table for plugins under test. */
#include "host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "guard.h"
#include "plugin/object.h"
#include "process.h"

/* The size of the table. */
#define HOST_BYTES (offsetof(dlc_host, now_ns) + sizeof(uint64_t(*)(void)))

/* Atomic, because threads of the plugin may allocate too. */
static atomic_llong allocations, until_failure; /* until_failure 0: no failure is due */
static atomic_int has_failed;

static int must_fail(void) {
    long long left = atomic_load(&until_failure);
    while (left > 0)
        if (atomic_compare_exchange_weak(&until_failure, &left, left - 1))
            return left == 1;
    return 0;
}

/* Memory of the plugin, with a guard on both sides. */
typedef struct block {
    struct block *next;
    unsigned char *base; /* of the guard in front */
    size_t bytes, id;
} block;

static block *blocks;
static size_t ids;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static suite_run *running;

static void *counted_alloc(size_t bytes) {
    size_t room;
    if (must_fail()) {
        atomic_store(&has_failed, 1);
        (void)dlc_fail(DLC_ERR_NOMEM,
                       "out of memory (simulated by the conformance suite)");
        return NULL;
    }
    block *made = malloc(sizeof *made);
    if (__builtin_add_overflow(bytes, 2 * (size_t)GUARD_BYTES, &room))
        room = SIZE_MAX;
    unsigned char *base = made ? dlc_host_services()->alloc(room) : NULL;
    if (!base) {
        free(made);
        return NULL;
    }
    atomic_fetch_add(&allocations, 1);
    (void)pthread_mutex_lock(&blocks_lock);
    *made = (block){blocks, base, bytes, ids++};
    blocks = made;
    (void)pthread_mutex_unlock(&blocks_lock);
    guard_fill(base, made->id);
    guard_fill(base + GUARD_BYTES + bytes, made->id);
    return base + GUARD_BYTES;
}

static void must_be_whole(const block *one) {
    if (!guard_is_whole(one->base, one->id) ||
        !guard_is_whole(one->base + GUARD_BYTES + one->bytes, one->id))
        suite_fail(running,
                   "it writes beyond %zu bytes that dlc_host.alloc has given it",
                   one->bytes);
}

/* Takes a block from the list, or (keep) only finds it; NULL: it is none. */
static block *find_block(const void *memory, int keep) {
    (void)pthread_mutex_lock(&blocks_lock);
    block **at = &blocks;
    while (*at && (*at)->base + GUARD_BYTES != memory)
        at = &(*at)->next;
    block *found = *at;
    if (found && !keep)
        *at = found->next;
    (void)pthread_mutex_unlock(&blocks_lock);
    return found;
}

static void counted_free(void *memory) {
    if (!memory)
        return;
    block *of = find_block(memory, 0);
    atomic_fetch_sub(&allocations, 1);
    if (!of) {
        dlc_host_services()->free(memory);
        return;
    }
    must_be_whole(of);
    dlc_host_services()->free(of->base);
    free(of);
}

void suite_host_check(void) {
    for (const block *one = blocks; one; one = one->next)
        must_be_whole(one);
}

size_t suite_host_size(const void *memory) {
    const block *of = find_block(memory, 1);
    return of ? of->bytes : 0;
}

int64_t suite_host_allocations(void) {
    return (int64_t)atomic_load(&allocations);
}

void suite_host_free(void *memory) {
    counted_free(memory);
}

void suite_host_fail_allocation(int64_t n) {
    atomic_store(&has_failed, 0);
    atomic_store(&until_failure, n);
}

int suite_host_has_failed(void) {
    return atomic_load(&has_failed);
}

/* ---- Settings ---------------------------------------------------------------- */

/* The getters fail the check if the plugin reads an option in another way than its
 * table says: it would be given 0. */

#define TYPE(name) (1u << DLC_OPT_##name)
#define TEXT (TYPE(STRING) | TYPE(CHOICE) | TYPE(PATH) | TYPE(FILLER))

/* `types`: those that `call` gives, as bits; 0: all. Settings of other features are
 * left to the core. */
static void must_have(const dlc_settings *settings, const char *name, uint32_t types,
                      const char *call) {
    if (!running || settings != running->settings)
        return;
    const dlc_option *row = suite_option(running->feature, name);
    if (!row)
        suite_fail(running, "%s asks for \"%s\", which its option table does not have",
                   call, name);
    if (types && !(types >> row->type & 1))
        suite_fail(running,
                   "%s asks for option \"%s\", which has another type in its option "
                   "table, so it is given 0",
                   call, name);
}

#define GETTER(result, call, types) \
    static result call(const dlc_settings *settings, const char *name) { \
        must_have(settings, name, types, #call); \
        return dlc_host_services()->call(settings, name); \
    }
#define LIST_GETTER(element, call, types) \
    static size_t call(const dlc_settings *settings, const char *name, \
                       const element **values) { \
        must_have(settings, name, types, #call); \
        return dlc_host_services()->call(settings, name, values); \
    }

GETTER(int64_t, get_int, TYPE(INT) | TYPE(BYTES))
GETTER(double, get_float, TYPE(FLOAT))
GETTER(int, get_bool, TYPE(BOOL))
GETTER(const char *, get_string, TEXT)
GETTER(int, is_set, 0)
GETTER(const char *, where, 0)
LIST_GETTER(int64_t, get_ints, TYPE(INTS))
LIST_GETTER(double, get_floats, TYPE(FLOATS))

/* ---- The table --------------------------------------------------------------- */

/* Maps a page that is followed by an inaccessible one. */
static char *map_guarded_page(suite_run *run, size_t page) {
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0)
        suite_skip(run, "cannot map memory for the host table");
    return pages;
}

static const dlc_host *suite_host(suite_run *run) {
    static char *end;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!end) {
        dlc_host host = *dlc_host_services();
        host.size = HOST_BYTES;
        host.abi_minor = 0;
        host.alloc = counted_alloc;
        host.free = counted_free;
        host.get_int = get_int;
        host.get_float = get_float;
        host.get_bool = get_bool;
        host.get_string = get_string;
        host.get_ints = get_ints;
        host.get_floats = get_floats;
        host.is_set = is_set;
        host.where = where;
        char *pages = map_guarded_page(run, page);
        end = pages + page;
        memcpy(end - HOST_BYTES, &host, HOST_BYTES);
        (void)mprotect(pages, page, PROT_READ);
    }
    return (const void *)(end - HOST_BYTES);
}

dlc_status suite_load(suite_run *run) {
    running = run;
    (void)dlc_fail(DLC_OK, "%s", "");
    dlc_status status = DLC_CAN(run->plugin, load) ? run->plugin->load(suite_host(run))
                                                   : DLC_OK;
    suite_process_check(run, "load");
    return status;
}
