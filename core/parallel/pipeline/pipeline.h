/* Pipeline parallelism: the net is cut into stages, and micro-batches are passed from
 * one stage to the next.
 *
 * The ranks of a stage build only the stage's layers, with a solver of their own for
 * them. The batch is divided into numbered micro-batches of consecutive samples, of
 * which each rank of a stage has a part; it works on whichever is ready
 * (schedule_1f1b.h). Their gradients are accumulated
 * in the order of the numbers, so runs are bitwise repeatable; they equal those of the
 * whole net up to the order of float32 sums. Random numbers follow the position of a
 * sample, as always. What a layer computes over its batch (the statistics of batch
 * norm) it computes over a micro-batch.
 *
 * Gradients are reduced over a stage's replicas by a communicator of the stage, which
 * takes the place of the session's. Control words, such as the loss or a request to
 * stop, are reduced over all stages at the end of an iteration; where replicas may be
 * in different iterations, those that the last stage has agreed on count.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_PIPELINE_PIPELINE_H
#define DLC_PARALLEL_PIPELINE_PIPELINE_H

#include "parallel/pipeline/schedule_1f1b.h"
#include "parallel/pipeline/stage_p2p.h"
#include "parallel/pipeline/stages.h"
#include "parallel/process_group.h"
#include "session/session.h"

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
    int32_t micro_batches;        /* of a pass */
    int64_t micro_batch_size;     /* samples of one that this rank has */
    int64_t first_sample;         /* position of the first of them in the first one */
    void *labels[DLC_NET_FIELDS]; /* own; of the last micro-batch, if it is smaller */
    dlc_boundary_tensors train, test;
    double *proportion; /* own; of each rank, once the batch was split anew */
    double *work;       /* own; estimated, of each stage */
    uint64_t *memory;   /* own; bytes of each stage for micro-batches in flight */

    dlc_process_group group;
    dlc_comm *world; /* communicator of all ranks; the session has the stage's */
    dlc_process_group column; /* of ranks with the same replica's samples; */
    dlc_comm *column_comm;    /* NULL: all replicas are in the same iteration */
    dlc_progress_engine *engine;
    dlc_stage_p2p *stage_p2p, *test_stage_p2p;
    dlc_memory control_words; /* for control words */

    /* State of the current pass. */
    dlc_schedule_1f1b schedule;
    int32_t current;      /* the micro-batch being computed */
    dlc_status status;    /* of messages that were polled between layers */
    uint64_t began, sent; /* when the pass began; bytes sent until then */
    double waited;        /* seconds, for the control words of other stages */
    int64_t passes;
    dlc_pipeline_times times;
    double
        bubble; /* fraction of the time in which stages were idle; set by the report */
} dlc_pipeline;

/* The axis; its state is a dlc_pipeline. */
extern const dlc_axis_ops dlc_pipeline_axis;

/* ---- Its calls, each in the file that is named (session/axis.h) ---- */

/* plan.c. If the job has stages, this rank's samples become those of its part of the
 * micro-batches. */
dlc_status dlc_pipeline_plan(dlc_axis *axis);
dlc_status dlc_pipeline_divide(dlc_axis *axis);
int dlc_pipeline_needs_connection(const dlc_axis *axis);

/* run.c */
extern const dlc_schedule_ops dlc_pipeline_schedule;
dlc_status dlc_pipeline_reduce_control(dlc_axis *axis, float words[DLC_CONTROL_WORDS]);
dlc_status dlc_pipeline_test(dlc_axis *axis, dlc_evaluation *evaluation);
double dlc_pipeline_waited(const dlc_axis *axis);

/* report.c */
void dlc_pipeline_announce(const dlc_axis *axis);
dlc_status dlc_pipeline_report(dlc_axis *axis, double *images_per_s);
/* "micro_batches", "stage_bytes" (memory for micro-batches in flight) and
 * "bubble". */
void dlc_pipeline_json(const dlc_axis *axis, dlc_json *json);
void dlc_pipeline_part(const dlc_axis *axis, dlc_rank_part *part);

#endif
