/* A solver with all that it needs: settings, a device, arenas, an exchange. */
#ifndef TEST_SGD_RIG_H
#define TEST_SGD_RIG_H

#include <dlcore/solver.h>

#include "config/config.h"
#include "plugin/registry.h"

#define RIG_SEGMENTS_MAX 8
#define RIG_BUCKETS_MAX 8
#define RIG_ELEMENTS_MAX 128

typedef struct test_rig {
    dlc_registry *registry;
    dlc_config *config;
    dlc_problems problems;
    dlc_settings *settings;
    const dlc_solver_ops *ops;
    dlc_solver_needs needs;
    dlc_solver *solver; /* NULL until rig_create */

    dlc_device_ops device_ops; /* the processor's, counted */
    dlc_device *device;

    size_t count, tail;
    unsigned char used[RIG_ELEMENTS_MAX]; /* 0 in the gaps, where all is zero */
    float weights[RIG_ELEMENTS_MAX], gradients[RIG_ELEMENTS_MAX];
    float slots[2][RIG_ELEMENTS_MAX];
    float peer[RIG_ELEMENTS_MAX]; /* the other rank's gradients, all micro-batches */
    dlc_segment segment[RIG_SEGMENTS_MAX];
    int32_t segments;
    size_t bucket_begin[RIG_BUCKETS_MAX + 1];
    dlc_exchange exchange;
    int64_t max_iterations, epoch_iterations;
    const dlc_rate_schedule *schedule; /* of a run that is resumed */
    char trace[256];                   /* s0 s1 w0 u w1 u u: starts, waits, updates */
} test_rig;

/* The settings "key=value" of [solver]; stops the test if they are not accepted by
 * the option table. `needs` is what the solver's needs() made of them. */
void rig_open(test_rig *rig, const char *const *sets, size_t nsets, dlc_status *needs);
/* Adds a segment behind the last one, after `gap` unused elements. */
void rig_segment(test_rig *rig, size_t gap, size_t count, double rate, double decay);
/* Borders between buckets; the first and the last are put in. */
void rig_buckets(test_rig *rig, size_t tail, int32_t borders, const size_t *border);
dlc_status rig_create(test_rig *rig);
/* Every micro-batch's buckets, then finish. gradients(element, micro) fills the
 * arena before each micro-batch. */
typedef float rig_gradient(size_t element, int32_t micro);
dlc_status rig_iterate(test_rig *rig, int64_t iteration, rig_gradient *gradient);
void rig_close(test_rig *rig);

#define RIG_OPEN(rig_, ...) \
    do { \
        const char *const sets_[] = {__VA_ARGS__}; \
        dlc_status needs_; \
        rig_open((rig_), sets_, sizeof sets_ / sizeof *sets_, &needs_); \
        ck_assert_msg(needs_ == DLC_OK, "%s", dlc_detail()); \
    } while (0)

#endif
