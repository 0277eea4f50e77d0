/* Training without a net, for the checks of solvers and consistency models: they
 * minimize a quadratic function, half the squared distance of the weights to a goal,
 * with an exchange of one rank that counts its calls. A solver under test gets the
 * core's synchronous model; a model under test gets a solver of this file's. */
#ifndef DLC_TOOLS_CONFORMANCE_TRAINING_FIXTURE_H
#define DLC_TOOLS_CONFORMANCE_TRAINING_FIXTURE_H

#include "device_fixture.h"
#include "solver/accumulate.h"
#include "solver/updater.h"

enum {
    TRAINING_SEGMENTS = 6,
    TRAINING_BUCKETS = 3,
    TRAINING_CONTROL_WORDS = 16,
    TRAINING_COUNT = 67616,
    TRAINING_STEPS = 40
};

/* Segments begin at multiples of DLC_SQUARE_PIECE elements, as in a net; one has more
 * than 65,536 elements, and the last one has lr_mult 0. One border is in the middle of
 * a segment; the last bucket has the control words. */
extern const size_t training_offsets[TRAINING_SEGMENTS];
extern const size_t training_borders[TRAINING_BUCKETS + 1];

typedef struct training_fixture {
    suite_run *run;
    device_fixture device;
    dlc_solver solver;
    const dlc_consistency_ops *ops;
    const dlc_settings *settings; /* of the model */
    dlc_consistency_needs needs;
    dlc_segment segment[TRAINING_SEGMENTS];
    float *weights, *gradients, *slots[DLC_MAX_SLOTS], *goal;
    dlc_accumulator accumulator;
    dlc_exchange exchange;
    dlc_solver_updater *updater;
    dlc_consistency *model;
    int64_t done; /* iterations of a check that repeats them */
    float loss;   /* the first control word; 0.5 unless a check changes it */
    float vote;   /* the others; 0.5 unless a check changes it */

    /* Numbers of calls of the exchange in the last step. */
    int started[TRAINING_BUCKETS], waited[TRAINING_BUCKETS];

    int pending[TRAINING_BUCKETS]; /* started and not waited for */
    int early; /* 1: it has waited for a bucket that it had not started */
    int again; /* 1: it has started one twice without waiting in between */
} training_fixture;

/* Opens the device, makes the solver, and fills weights, goal and slots. */
void training_fixture_open(suite_run *run, training_fixture *fixture);

/* Creates the model, which begins with iteration `iteration`; then destroys it. */
dlc_status training_fixture_create(training_fixture *fixture, int64_t iteration);
void training_fixture_destroy(training_fixture *fixture);

/* Opens and creates for the first iteration. */
void training_fixture_begin(suite_run *run, training_fixture *fixture);

/* Between open and create: the core's synchronous model takes the place of that under
 * test, so that both can be compared. */
void training_fixture_use_synchronous(training_fixture *fixture);

/* Both halves of an iteration, and an iteration. */
void training_fixture_backward(training_fixture *fixture, int64_t iteration);
void training_fixture_finish(training_fixture *fixture, int64_t iteration);
void training_fixture_step(training_fixture *fixture, int64_t iteration);
/* Iterations begin .. end - 1. */
void training_fixture_run(training_fixture *fixture, int64_t begin, int64_t end);

/* The distance of all weights that are updated to the goal. */
double training_fixture_distance(const training_fixture *fixture);

/* Is it an element of a segment, and of one whose lr_mult is not 0? */
int training_fixture_is_parameter(size_t element);
int training_fixture_is_trained(size_t element);

/* Checks of solvers and of consistency models alike: two runs give the same weights,
 * and so does one that is saved and resumed. */
void training_repeats(suite_run *run);
void training_resumes(suite_run *run);

/* The same for both: iterations use no more memory, files and threads each time. */
void training_keeps_nothing(suite_run *run);

/* A check of consistency models: with two ranks. */
void training_with_two_ranks(suite_run *run);

#endif
