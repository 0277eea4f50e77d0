/* Pipeline parallelism: the net is cut into stages, and micro-batches are passed from
 * one stage to the next.
 *
 * The ranks of a stage build only the stage's layers, with a solver of their own for
 * them. The batch is divided into numbered micro-batches of consecutive samples, of
 * which each rank of a stage has a part; it works on whichever is ready
 * (plan/work_order.h). Their gradients are accumulated
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

#include "base/json.h"
#include "base/text.h"
#include "parallel/pipeline/stage_p2p.h"
#include "parallel/pipeline/stages.h"
#include "parallel/process_group.h"
#include "plan/work_order.h"
#include "session/evaluation.h"
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
    dlc_work_order order;
    int32_t current;      /* the micro-batch being computed */
    dlc_status status;    /* of messages that were polled between layers */
    uint64_t began, sent; /* when the pass began; bytes sent until then */
    double waited;        /* seconds, for the control words of other stages */
    int64_t passes;
    dlc_pipeline_times times;
    double
        bubble; /* fraction of the time in which stages were idle; set by the report */
} dlc_pipeline;

/* A pass of the net, forward and backward. */
typedef struct dlc_pass {
    const struct dlc_batch *batch; /* NULL: none is read, or the net has it already */
    int64_t iteration;             /* the feed's number of the batch */
    double *loss; /* to which this rank's part of the mean loss is added, or NULL */
    dlc_status (*ready)(void *context, int32_t set, size_t elements); /* dlc_net_done */
    void *context;
} dlc_pass;

/* ---- Opening and closing, in this order; plan.c and pipeline.c ------------------ */

/* Must the interconnect be measured before stages can be cut? */
int dlc_pipeline_needs_connection(const dlc_session *session);
/* If the job has stages: opens session->pipeline. This rank's samples become those of
 * its part of the micro-batches. */
dlc_status dlc_pipeline_plan(dlc_session *session);
/* After the batch was split anew: this rank has other samples. */
dlc_status dlc_pipeline_divide(dlc_pipeline *pipeline);
/* Collective, once the ranks are connected and the nets allocated, before the exchange.
 */
dlc_status dlc_pipeline_connect(dlc_pipeline *pipeline);
/* Collective, once nets, exchange and slots are open. */
dlc_status dlc_pipeline_open(dlc_pipeline *pipeline);
void dlc_pipeline_disconnect(dlc_pipeline *pipeline); /* what these two have opened */
void dlc_pipeline_close(dlc_pipeline *pipeline);      /* NULL is allowed */

/* What nets, feeds and the group of collective layers are to be in this stage. */
void dlc_pipeline_shape_net(dlc_pipeline *pipeline, dlc_net_args *args);
void dlc_pipeline_shape_feed(const dlc_pipeline *pipeline, dlc_feed_args *args);
void dlc_pipeline_shape_group(const dlc_pipeline *pipeline,
                              dlc_session_layer_group *group);
/* Does this stage read the batch? */
int dlc_pipeline_reads_batch(const dlc_pipeline *pipeline, dlc_phase phase);
/* The bytes of messages to other stages. */
uint64_t dlc_pipeline_bytes(const dlc_pipeline *pipeline);
void dlc_pipeline_find_part(const dlc_pipeline *pipeline, dlc_rank_part *part);

/* ---- Running; run.c ------------------------------------------------------------- */

dlc_status dlc_pipeline_begin_pass(dlc_pipeline *pipeline);
/* Waits until forward or backward of a micro-batch is ready: DLC_WORK_FORWARD or
 * DLC_WORK_BACKWARD, or DLC_WORK_DONE at the end of the pass. */
dlc_status dlc_pipeline_next(dlc_pipeline *pipeline, dlc_work *work,
                             int32_t *micro_batch);
dlc_status dlc_pipeline_forward(dlc_pipeline *pipeline, const dlc_pass *pass,
                                int32_t micro_batch);
dlc_status dlc_pipeline_backward(dlc_pipeline *pipeline, const dlc_pass *pass,
                                 int32_t micro_batch);
/* Collective over ranks in the same iteration. In: the words that the replicas of a
 * stage have agreed on; out: those of the whole job. */
dlc_status dlc_pipeline_reduce_control(dlc_pipeline *pipeline,
                                       float words[DLC_CONTROL_WORDS]);
/* Collective. Runs this rank's part of a test: lists the metrics, adds the sums. */
dlc_status dlc_pipeline_test(dlc_pipeline *pipeline, dlc_evaluation *evaluation);
/* Seconds that this rank has waited for other stages. */
double dlc_pipeline_waited(const dlc_pipeline *pipeline);

/* ---- Reporting; report.c -------------------------------------------------------- */

/* Logs who is where in the mesh, unless all ranks have the whole net; on rank 0. */
void dlc_mesh_announce(const dlc_session *session);
/* "mesh", the lengths of the axes, and "pipeline_ranks", those of each stage. */
void dlc_mesh_json(const dlc_mesh *mesh, dlc_json *json);
void dlc_pipeline_announce(const dlc_pipeline *pipeline);
/* Collective, at the end of training: gathers and logs the times of all stages. */
dlc_status dlc_pipeline_report(dlc_pipeline *pipeline);
/* "micro_batches", "stage_bytes" (memory for micro-batches in flight) and "bubble";
 * also without a pipeline (NULL). */
void dlc_pipeline_json(const dlc_pipeline *pipeline, dlc_json *json);
/* Says which stage this rank has; text and json may be NULL. */
void dlc_pipeline_describe(const dlc_pipeline *pipeline, dlc_text *text,
                           dlc_json *json);

#endif
