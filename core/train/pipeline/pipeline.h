/* A pipeline: the net cut into stages, sub-batches passed from one to the next.
 *
 * A stage's ranks build the stage's layers alone, and a solver of their own for them. A
 * rank's share of the batch is cut into sub-batches of equal size, which carry their
 * number; each rank works on whichever is ready (turns.h). Their gradients are added up
 * in the order of their numbers, so a run repeats to the bit; with those of the whole
 * net they agree but for the order of float32 sums. Random numbers are drawn by the
 * position of a sample, as ever. What a layer computes over its batch (the statistics
 * of batch norm) it computes over a sub-batch.
 *
 * Gradients are summed over a stage's replicas by a communicator of theirs, which takes
 * the place of the session's, as in a job without stages. What all ranks must know of
 * an iteration (its loss, a wish to stop) is summed over all of them at its end.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_PIPELINE_H
#define DLC_TRAIN_PIPELINE_H

#include "base/json.h"
#include "comm/mail.h"
#include "train/evaluate.h"
#include "train/memory.h"
#include "train/pipeline/circle.h"
#include "train/pipeline/stages.h"
#include "train/pipeline/turns.h"
#include "train/pipeline/wires.h"

/* Of all passes but the first few, which compile and touch what later ones find ready:
 * seconds at work, and from the first forward to the last backward; and bytes that were
 * sent to other stages. */
typedef struct dlc_pipeline_times {
    double busy, all, sent;
} dlc_pipeline_times;

enum { DLC_PIPELINE_WARM_UP = 2 };

typedef struct dlc_pipeline {
    dlc_session *session;
    dlc_stages stages;
    int32_t sub_batches; /* of a pass */
    int64_t sub_batch;   /* samples in one */
    int64_t sample;      /* numbers in one */
    dlc_crossings train, test;
    double *work;     /* own; guessed, of each stage */
    uint64_t *memory; /* own; bytes of each stage for what is under way in it */

    dlc_circle circle;
    dlc_comm *all; /* the communicator of all ranks; the session has the circle's */
    dlc_mailbox *mail;
    dlc_wires *wires, *test_wires;
    dlc_memory sum;   /* where all sub-batches but the first write their gradients */
    dlc_memory words; /* of the tail */

    /* Of the pass under way. */
    dlc_turns turns;
    int32_t at;        /* the sub-batch at work */
    size_t added;      /* elements of its gradients */
    dlc_status status; /* of messages moved on between layers */
    int64_t passes;
    dlc_pipeline_times times;
} dlc_pipeline;

/* Does the job have stages? Then session->pipeline is set, and this rank's share of the
 * batch is its replica's. After the device was opened and shares were dealt; all ranks
 * together. An error where the job has something that stages don't go with. */
dlc_status dlc_pipeline_plan(dlc_session *session);
/* Does that depend on what joins the ranks? Then they must be joined before. */
int dlc_pipeline_is_open(const dlc_session *session);
/* While all that was opened is open: gives up messages and communicators, the session's
 * is then that of all ranks. When nets have been freed: the rest. */
void dlc_pipeline_leave(dlc_session *session);
void dlc_pipeline_free(dlc_session *session);

/* The calls below do nothing, or answer as for the whole net, without a pipeline. */

/* What the stage's net is built with; and does it read the batch at all? */
void dlc_pipeline_shape_net(const dlc_session *session, dlc_net_args *args);
int dlc_pipeline_reads_batch(const dlc_session *session, dlc_phase phase);
void dlc_pipeline_shape_feed(const dlc_session *session, dlc_feed_args *args);

/* When all ranks are connected: the stage's communicator, and messages between stages.
 */
dlc_status dlc_pipeline_connect(dlc_session *session);
/* From then on: between iterations others may use it, too. */
const dlc_mail *dlc_pipeline_mail(const dlc_session *session);
/* When nets and exchange are there. */
dlc_status dlc_pipeline_open(dlc_session *session);

/* One pass of a batch through all stages and back, which adds up the gradients: `batch`
 * is NULL where this stage reads none. `ready(context, elements)`: the gradient arena
 * is final up to there. *loss += this rank's share of the mean loss. */
typedef struct dlc_pipeline_batch {
    const float *data;
    const int32_t *labels;
    int64_t iteration;
    double loss_share; /* of a sub-batch in the mean that is shown, */
    double share;      /* and in the one that is minimised */
    dlc_status (*ready)(void *context, size_t elements);
    void *context;
    double *loss;
} dlc_pipeline_batch;

dlc_status dlc_pipeline_pass(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch);

/* Every rank's words, summed over all ranks. */
dlc_status dlc_pipeline_agree(dlc_pipeline *pipeline, float words[DLC_ARENA_TAIL]);

/* The metrics of the whole net, all sums zero; then this rank's sums over its part of
 * the test set. */
void dlc_pipeline_list_metrics(const dlc_session *session, dlc_evaluation *evaluation);
dlc_status dlc_pipeline_test(dlc_session *session, dlc_evaluation *evaluation);

/* After it was planned: adds what sub-batches under way and their sums take. */
void dlc_pipeline_add_memory(const dlc_session *session, dlc_session_memory *memory);

/* What is about to happen; and at the end, all ranks together, what it came to. */
void dlc_pipeline_announce(const dlc_session *session);
dlc_status dlc_pipeline_report(dlc_session *session, double *bubble);
/* "stages", "sub_batches", "stage_bytes" (memory for what is under way), "bubble". */
void dlc_pipeline_json(const dlc_session *session, double bubble, dlc_json *json);

#endif
