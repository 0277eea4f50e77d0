/* Threads: OpenMP's pool, which the layers' library uses as well, each thread bound to
 * a core of its own, and parallel loops over it.
 *
 * libgomp ends threads when a team is smaller than the previous one and starts new ones
 * when it grows; they inherit the affinity of the calling thread. With two threads that
 * cannot happen (a team of one is no team), so the caller is bound like the others.
 * With more, the caller keeps all of the rank's cores, and new threads are bound on
 * their first loop.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "cpu.h"

enum { CPUS_MAX = 8192, WORD_BITS = 8 * sizeof(unsigned long) }; /* Linux's maximum */

struct cpu_mask {
    unsigned long word[CPUS_MAX / WORD_BITS];
};

/* The number of this thread's binding. */
static _Thread_local uint64_t bound_by;
static _Atomic uint64_t bindings;

/* Has the user placed the threads? libgomp reads these variables, too. */
static int placed_by_user(void) {
    return getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") ||
           getenv("GOMP_CPU_AFFINITY");
}

static int set_mask(const cpu_mask *mask) {
    return sched_setaffinity(0, sizeof *mask, (const cpu_set_t *)(const void *)mask);
}

/* Best effort: a thread that cannot be bound runs anywhere. */
static void bind_self(const dlc_device *device, int me) {
    if (bound_by == device->binding || me >= device->threads)
        return;
    bound_by = device->binding;
    if (me == 0 && device->threads > 2)
        return;
    cpu_mask mask = {{0}};
    unsigned cpu = (unsigned)device->cpus[me];
    if (cpu < CPUS_MAX) {
        mask.word[cpu / WORD_BITS] |= 1ul << (cpu % WORD_BITS);
        (void)set_mask(&mask);
    }
}

void threads_parallel_for(const dlc_device *device, size_t n, size_t unit, range_fn *fn,
                          const void *job) {
    if (device->threads == 1 || omp_in_parallel()) {
        fn(job, 0, n);
        return;
    }
#pragma omp parallel num_threads(device->threads)
    {
        size_t threads = (size_t)omp_get_num_threads();
        size_t me = (size_t)omp_get_thread_num();
        if (device->cpus)
            bind_self(device, (int)me);
        size_t units = (n + unit - 1) / unit;
        size_t begin = units * me / threads * unit;
        size_t end = units * (me + 1) / threads * unit;
        end = end < n ? end : n;
        if (begin < end)
            fn(job, begin, end);
    }
}

static void nothing(const void *job, size_t begin, size_t end) {
    (void)job;
    (void)begin;
    (void)end;
}

/* As many as OpenMP's variables allow, which also limit the layers' library. */
static int allowed(int wanted) {
    int most = omp_get_max_active_levels() > 0 ? omp_get_thread_limit() : 1;
    if (wanted <= most)
        return wanted;
    host->log(DLC_LOG_WARN,
              "OMP_THREAD_LIMIT or OMP_MAX_ACTIVE_LEVELS allows %d of the %d threads "
              "requested; continuing with these",
              most, wanted);
    return most;
}

dlc_status threads_open(const dlc_device_args *args, dlc_device *device) {
    const int32_t *cpus = args->size >= sizeof *args ? args->cpus : NULL;
    device->threads = args->threads > 1 ? allowed(args->threads) : 1;
    if (!cpus || placed_by_user())
        return DLC_OK;
    size_t bytes = (size_t)device->threads * sizeof *device->cpus;
    device->cpus = host->alloc(bytes);
    device->before = host->alloc(sizeof *device->before);
    if (!device->cpus || !device->before)
        return DLC_ERR_NOMEM;
    memcpy(device->cpus, cpus, bytes);
    device->restore = sched_getaffinity(0, sizeof *device->before,
                                        (cpu_set_t *)(void *)device->before) >= 0;
    device->binding = ++bindings;
    if (device->threads == 1)
        bind_self(device, 0);
    else
        threads_parallel_for(device, 1, 1, nothing, NULL);
    return DLC_OK;
}

void threads_close(dlc_device *device) {
    if (device->restore && bound_by == device->binding)
        (void)set_mask(device->before);
    host->free(device->before);
    host->free(device->cpus);
}
