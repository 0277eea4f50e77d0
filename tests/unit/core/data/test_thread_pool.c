/* Tests the thread pool (core/data/thread_pool.c): all parts of all tasks run, each
 * once, and one at a time of each thread. */
#include <stdatomic.h>
#include <time.h>

#include "data/thread_pool.h"
#include "support/test.h"

enum { THREADS = 3, PARTS = 50, TASKS = 2 };

typedef struct counted {
    _Atomic int32_t times[PARTS], ended;
    _Atomic int32_t *busy; /* of each thread */
} counted;

static void count_part(void *context, int32_t i, int32_t thread) {
    counted *c = context;
    ck_assert_int_lt(thread, THREADS);
    ck_assert_int_eq(atomic_exchange(&c->busy[thread], 1), 0);
    if (i % 10 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    c->times[i]++;
    c->ended++;
    atomic_store(&c->busy[thread], 0);
}

static void check_counts(const counted *c) {
    ck_assert_int_eq(c->ended, PARTS);
    for (int i = 0; i < PARTS; i++)
        ck_assert_int_eq(c->times[i], 1);
}

static dlc_thread_pool *opened(int threads) {
    dlc_thread_pool *pool = NULL;
    ck_assert_int_eq(dlc_thread_pool_open(threads, &pool), DLC_OK);
    ck_assert_int_eq(pool != NULL, threads > 1);
    return pool;
}

/* Tasks overlap; each has ended when it has been waited for. */
TEST_EACH(two_tasks, THREADS + 1) {
    _Atomic int32_t busy[THREADS] = {0};
    dlc_thread_pool *pool = opened(_i);
    for (int round = 0; round < 20; round++) {
        counted c[TASKS] = {{.busy = busy}, {.busy = busy}};
        dlc_task task[TASKS];
        for (int t = 0; t < TASKS; t++) {
            task[t] = (dlc_task){.part = count_part, .context = &c[t], .count = PARTS};
            dlc_thread_pool_start(pool, &task[t]);
        }
        for (int t = 0; t < TASKS; t++) {
            dlc_thread_pool_wait(pool, &task[t]);
            check_counts(&c[t]);
        }
    }
    dlc_thread_pool_close(pool);
}

/* A task that is begun and waited for at once, while another one is in flight. */
TEST_EACH(one_between, THREADS + 1) {
    _Atomic int32_t busy[THREADS] = {0};
    dlc_thread_pool *pool = opened(_i);
    counted first = {.busy = busy}, between = {.busy = busy};
    dlc_task task = {.part = count_part, .context = &first, .count = PARTS};
    dlc_thread_pool_start(pool, &task);
    dlc_thread_pool_run(pool, PARTS, count_part, &between);
    check_counts(&between);
    dlc_thread_pool_wait(pool, &task);
    check_counts(&first);
    dlc_thread_pool_close(pool);
}
