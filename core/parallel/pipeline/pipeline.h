/* Pipeline parallelism: the net is cut into stages, and micro-batches are passed from
 * one stage to the next.
 *
 * The ranks of a stage build only the stage's layers, with a solver of their own for
 * them. A rank's samples are divided into numbered micro-batches of equal size; each
 * rank works on whichever is ready (schedule_1f1b.h). Their gradients are accumulated
 * in the order of the numbers, so runs are bitwise repeatable; they equal those of the
 * whole net up to the order of float32 sums. Random numbers follow the position of a
 * sample, as always. What a layer computes over its batch (the statistics of batch
 * norm) it computes over a micro-batch.
 *
 * Gradients are reduced over a stage's replicas by a communicator of the stage, which
 * takes the place of the session's. Control words, such as the loss or a request to
 * stop, are reduced over all ranks at the end of an iteration.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_PIPELINE_PIPELINE_H
#define DLC_PARALLEL_PIPELINE_PIPELINE_H

#include "base/json.h"
#include "parallel/pipeline/process_group.h"
#include "parallel/pipeline/schedule_1f1b.h"
#include "parallel/pipeline/stage_p2p.h"
#include "parallel/pipeline/stages.h"
#include "session/evaluation.h"
#include "session/memory.h"

/* Totals over all passes but the first few, which set up what later ones find ready:
 * seconds at work, seconds from the first forward to the last backward, and bytes sent
 * to other stages. */
typedef struct dlc_pipeline_times {
    double busy, elapsed, sent;
} dlc_pipeline_times;

enum { DLC_PIPELINE_WARM_UP = 2 };

typedef struct dlc_pipeline {
    dlc_session *session;
    dlc_stages stages;
    int32_t micro_batches;    /* of a pass */
    int64_t micro_batch_size; /* samples in one */
    int64_t sample;           /* elements of one sample */
    dlc_boundary_tensors train, test;
    double *work;     /* own; estimated, of each stage */
    uint64_t *memory; /* own; bytes of each stage for micro-batches in flight */

    dlc_process_group group;
    dlc_comm *world; /* communicator of all ranks; the session has the stage's */
    dlc_progress_engine *engine;
    dlc_stage_p2p *stage_p2p, *test_stage_p2p;
    dlc_memory sum;           /* gradients of all micro-batches but the first */
    dlc_memory control_words; /* for control words */

    /* State of the current pass. */
    dlc_schedule_1f1b schedule;
    int32_t current;   /* the micro-batch being computed */
    size_t added;      /* elements of its gradients that are added */
    dlc_status status; /* of messages that were polled between layers */
    int64_t passes;
    dlc_pipeline_times times;
} dlc_pipeline;

/* Collective, after the device was opened and the batch split assigned. If the job has
 * stages, sets session->pipeline and makes this rank's samples those of its replica.
 * DLC_ERR_CONFIG if the job has something that a pipeline does not support. */
dlc_status dlc_pipeline_plan(dlc_session *session);
/* Does the plan depend on the interconnect? Then the ranks must be connected before it.
 */
int dlc_pipeline_is_open(const dlc_session *session);
/* Closes progress engine and communicators while what uses them is still open; the
 * session's communicator is that of all ranks again. dlc_pipeline_free frees the rest
 * after the nets. */
void dlc_pipeline_disconnect(dlc_session *session);
void dlc_pipeline_free(dlc_session *session);

/* Without a pipeline the functions below do nothing, or answer as for the whole net. */

/* What the stage's net and feed are opened with; does the stage read the batch at all?
 */
void dlc_pipeline_shape_net(const dlc_session *session, dlc_net_args *args);
int dlc_pipeline_reads_batch(const dlc_session *session, dlc_phase phase);
void dlc_pipeline_shape_feed(const dlc_session *session, dlc_feed_args *args);

/* Collective, once all ranks are connected: opens the stage's communicator and the
 * progress engine between stages. */
dlc_status dlc_pipeline_connect(dlc_session *session);
/* Once nets and exchange exist. */
dlc_status dlc_pipeline_open(dlc_session *session);

/* One forward and backward pass of a batch through all stages, which accumulates the
 * gradients. `data` and `labels` are NULL where this stage reads no batch. Calls
 * ready(context, elements) when the gradient arena is final up to there. Adds this
 * rank's part of the mean loss to *loss. */
typedef struct dlc_pipeline_batch {
    const float *data;
    const int32_t *labels;
    int64_t iteration;
    double loss_share; /* weight of a micro-batch in the mean loss that is reported */
    double share;      /* weight of a micro-batch in the loss that is minimised */
    dlc_status (*ready)(void *context, size_t elements);
    void *context;
    double *loss;
} dlc_pipeline_batch;

dlc_status dlc_pipeline_pass(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch);

/* Collective. Reduces the control words over all ranks. */
dlc_status dlc_pipeline_reduce_control_words(dlc_pipeline *pipeline,
                                             float words[DLC_CONTROL_WORDS]);

/* Lists the metrics of the whole net with sums of zero; then runs this rank's part of
 * the test set and adds its sums. */
void dlc_pipeline_list_metrics(const dlc_session *session, dlc_evaluation *evaluation);
dlc_status dlc_pipeline_test(dlc_session *session, dlc_evaluation *evaluation);

/* Adds the memory of micro-batches in flight and of their accumulated gradients to a
 * plan. */
void dlc_pipeline_add_memory(const dlc_session *session, dlc_session_memory *memory);

/* Logs the plan; at the end, collective, logs how much of the time was spent in
 * bubbles. */
void dlc_pipeline_announce(const dlc_session *session);
dlc_status dlc_pipeline_report(dlc_session *session, double *bubble);
/* Adds "stages", "micro_batches", "stage_bytes" (memory for micro-batches in flight)
 * and "bubble". */
void dlc_pipeline_json(const dlc_session *session, double bubble, dlc_json *json);

#endif
