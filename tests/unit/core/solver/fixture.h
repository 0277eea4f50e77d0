/* Synchronous training with a solver: settings, a device, arenas, an exchange. */
#ifndef TEST_SOLVER_FIXTURE_H
#define TEST_SOLVER_FIXTURE_H

#include "config/config.h"
#include "solver/accumulate.h"
#include "solver/synchronous.h"
#include "solver/updater.h"

#define FIXTURE_SEGMENTS_MAX 8
#define FIXTURE_BUCKETS_MAX 8
#define FIXTURE_ELEMENTS_MAX 1100

typedef struct test_fixture {
    dlc_config *config;
    dlc_problems problems;
    dlc_settings *settings;
    const dlc_feature
        *feature; /* sgd, unless a test sets another before fixture_open */
    dlc_solver solver;
    dlc_accumulator accumulator;
    dlc_solver_updater *updater;
    dlc_consistency *model; /* NULL until fixture_create */

    dlc_device_ops device_ops; /* the CPU's, traced */
    dlc_device *device;

    size_t count, control_words;
    unsigned char
        used[FIXTURE_ELEMENTS_MAX]; /* 0 in gaps between segments, which stay zero */
    float weights[FIXTURE_ELEMENTS_MAX], gradients[FIXTURE_ELEMENTS_MAX];
    float slots[DLC_MAX_SLOTS][FIXTURE_ELEMENTS_MAX];
    dlc_loss_scale *loss_scale;       /* NULL: none */
    float peer[FIXTURE_ELEMENTS_MAX]; /* the other rank's gradients, sum over all
                                         micro-batches */
    dlc_segment segment[FIXTURE_SEGMENTS_MAX];
    int32_t segments;
    size_t bucket_begin[FIXTURE_BUCKETS_MAX + 1];
    dlc_exchange exchange;
    char trace[256]; /* "s0 s1 w0 u7 ...": starts and waits of buckets, updates of so
                        many elements */
} test_fixture;

/* Reads settings "solver.KEY=VALUE"; fails the test if the option table does not accept
 * them. `feature` NULL: solver sgd. *made is what dlc_solver_make returned. */
void fixture_open(test_fixture *fixture, const dlc_feature *feature,
                  const char *const *sets, size_t nsets, dlc_status *made);
/* Appends a segment after `gap` unused elements. */
void fixture_segment(test_fixture *fixture, size_t gap, size_t count, double rate,
                     double decay);
/* Appends the control words and sets the borders between buckets; the first and last
 * border are implicit. */
void fixture_buckets(test_fixture *fixture, size_t control_words, int32_t borders,
                     const size_t *border);
dlc_status fixture_create(test_fixture *fixture);
/* One bucket of a micro-batch is complete, as the session says it. */
dlc_status fixture_ready(test_fixture *fixture, int64_t iteration, int32_t micro,
                         int32_t bucket);
/* One iteration: ready for every bucket of every micro-batch, then finish. `gradient`
 * fills the arena before each micro-batch. */
typedef float fixture_gradient(size_t element, int32_t micro);
dlc_status fixture_iterate(test_fixture *fixture, int64_t iteration,
                           fixture_gradient *gradient);
void fixture_close(test_fixture *fixture);

#define FIXTURE_OPEN_WITH(fixture_, feature_, ...) \
    do { \
        const char *const sets_[] = {__VA_ARGS__}; \
        dlc_status made_; \
        fixture_open((fixture_), (feature_), sets_, sizeof sets_ / sizeof *sets_, \
                     &made_); \
        ck_assert_msg(made_ == DLC_OK, "%s", dlc_detail()); \
    } while (0)
#define FIXTURE_OPEN(fixture_, ...) FIXTURE_OPEN_WITH(fixture_, NULL, __VA_ARGS__)

#endif
