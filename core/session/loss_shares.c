/* Counts what counts for each loss, in batches ahead of the pass, and over the ranks.
 */
#include "session/loss_shares.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "net/graph.h"
#include "session/session.h"

/* A count is two control words, so that sums over the ranks are exact in float32: its
 * quotient by this number, and the rest. */
enum { REST = 4096, WORDS_BEFORE = 1 + DLC_CONTROL_VOTES };

/* The most losses of a graph whose parts are counted. */
enum { MOST_LOSSES = (DLC_CONTROL_WORDS - WORDS_BEFORE - DLC_CONTROL_TIMES) / 2 };

typedef struct counts {
    double of[MOST_LOSSES]; /* by the number of the loss */
} counts;

typedef struct dlc_loss_shares {
    int32_t losses, depth;
    dlc_net_loss loss[MOST_LOSSES];
    int64_t samples;  /* of a batch */
    int32_t kept;     /* batches whose counts are kept */
    double *counted;  /* own; of each of them, for each loss and sample */
    int64_t next;     /* batch that is counted next */
    int64_t received; /* iteration whose control words come next */
    /* Of the iterations that are in flight or come next, over all ranks. */
    counts whole[2 * DLC_CONTROL_SLOTS];
} dlc_loss_shares;

/* ---- Facts ------------------------------------------------------------------- */

/* Is a batch divided at all? */
static int is_divided(const dlc_session *session) {
    return session->ranks > 1 || session->accumulation_steps > 1 ||
           session->micro_batches > 1;
}

/* What counts must be known when this many iterations are in flight. */
static int32_t depth_of(const dlc_session *session) {
    return dlc_session_async_queue(session) ? DLC_CONTROL_SLOTS : 1;
}

/* With a queue a batch is taken from the feed an iteration before it is used. */
int32_t dlc_loss_shares_ahead(const dlc_session *session) {
    int32_t depth = depth_of(session), steps = (int32_t)session->accumulation_steps;
    if (!is_divided(session))
        return 0;
    return depth == 1 ? steps : (depth + 1) * steps - 1;
}

/* The field whose values are counted. Bytes all count. */
static int32_t field_of(const dlc_session *session, dlc_net_loss loss) {
    return loss.field >= 0 && session->feed &&
                   dlc_feed_field(session->feed, loss.field)->dtype != DLC_U8
               ? loss.field
               : -1;
}

static int32_t all_losses(const dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    return dlc_graph_losses(graph, graph->layers);
}

/* ---- Counting ---------------------------------------------------------------- */

static double *counted_at(const dlc_loss_shares *shares, int64_t batch, int32_t loss) {
    return shares->counted +
           (batch % shares->kept * shares->losses + loss) * shares->samples;
}

static dlc_status count_loss(const dlc_session *session, const dlc_batch *batch,
                             int32_t i) {
    const dlc_loss_shares *shares = session->loss_shares;
    double *counted = counted_at(shares, batch->iteration, i);
    int32_t field = field_of(session, shares->loss[i]);
    if (field >= 0)
        DLC_TRY(dlc_net_count(session->net, i, batch->field[field], shares->samples,
                              counted));
    for (int64_t n = 0; n < shares->samples; n++)
        counted[n] = !dlc_feed_is_counted(session->feed, (int32_t)n) ? 0
                     : field < 0                                     ? 1
                                                                     : counted[n];
    return DLC_OK;
}

static dlc_status count_batch(dlc_session *session) {
    dlc_loss_shares *shares = session->loss_shares;
    dlc_batch batch;
    DLC_TRY(dlc_feed_peek(session->feed, shares->next, &batch));
    if (!shares->counted) {
        shares->samples = batch.samples;
        shares->counted = dlc_alloc((size_t)shares->kept * (size_t)shares->losses *
                                        (size_t)shares->samples,
                                    sizeof *shares->counted);
        if (!shares->counted)
            return DLC_ERR_NOMEM;
    }
    for (int32_t i = 0; i < shares->losses; i++)
        DLC_TRY(count_loss(session, &batch, i));
    shares->next++;
    return DLC_OK;
}

static double sum_of(const dlc_loss_shares *shares, int32_t loss, int64_t batch,
                     int64_t first, int64_t samples) {
    const double *counted = counted_at(shares, batch, loss);
    double sum = 0;
    for (int64_t n = first; n < first + samples; n++)
        sum += counted[n];
    return sum;
}

/* Counts this rank's batches of an iteration; none that is never run is waited for. */
static dlc_status count_iteration(dlc_session *session, int64_t iteration,
                                  counts *counted) {
    dlc_loss_shares *shares = session->loss_shares;
    int64_t steps = session->accumulation_steps;
    *counted = (counts){.of = {0}};
    if (!shares->losses || !session->feed || iteration >= session->max_iterations)
        return DLC_OK;
    for (int64_t batch = iteration * steps; batch < (iteration + 1) * steps; batch++) {
        DLC_TRY(count_batch(session));
        for (int32_t i = 0; i < shares->losses; i++)
            counted->of[shares->loss[i].number] += sum_of(shares, i, batch, 0,
                                                          shares->samples);
    }
    return DLC_OK;
}

/* ---- Opening ----------------------------------------------------------------- */

static double *whole_of(dlc_loss_shares *shares, int64_t iteration) {
    return shares->whole[iteration % ((int64_t)2 * DLC_CONTROL_SLOTS)].of;
}

/* Sums the iterations that begin before control words arrive. */
static dlc_status count_first(dlc_session *session) {
    dlc_loss_shares *shares = session->loss_shares;
    counts mine[DLC_CONTROL_SLOTS] = {{{0}}};
    counts *all = dlc_alloc((size_t)session->ranks, sizeof mine);
    dlc_status status = all ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t k = 0; status == DLC_OK && k < shares->depth; k++)
        status = count_iteration(session, session->iteration + k, &mine[k]);
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, sizeof mine, all);
    for (int32_t k = 0; status == DLC_OK && k < shares->depth; k++) {
        double *whole = whole_of(shares, session->iteration + k);
        for (int32_t r = 0; r < session->ranks; r++)
            for (int32_t l = 0; l < MOST_LOSSES; l++)
                whole[l] += all[r * DLC_CONTROL_SLOTS + k].of[l];
    }
    dlc_free(all);
    return status;
}

dlc_status dlc_loss_shares_open(dlc_session *session) {
    if (!is_divided(session))
        return DLC_OK;
    if (all_losses(session) > MOST_LOSSES)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the net has %d losses; several ranks, micro-batches or "
                        "accumulation steps can share at most %d",
                        (int)all_losses(session), MOST_LOSSES);
    dlc_loss_shares *shares = dlc_alloc(1, sizeof *shares);
    if (!shares)
        return DLC_ERR_NOMEM;
    session->loss_shares = shares;
    *shares = (dlc_loss_shares){.depth = depth_of(session),
                                .next = session->iteration *
                                        session->accumulation_steps,
                                .received = session->iteration};
    shares->kept = (shares->depth + 1) * (int32_t)session->accumulation_steps;
    if (session->local_batch > 0)
        shares->losses = dlc_net_losses(session->net);
    if (session->feed) /* a measurement may have read batches already */
        DLC_TRY(dlc_feed_seek(session->feed, shares->next));
    for (int32_t i = 0; i < shares->losses; i++)
        shares->loss[i] = dlc_net_loss_at(session->net, i);
    return count_first(session);
}

void dlc_loss_shares_close(dlc_session *session) {
    if (session->loss_shares)
        dlc_free(session->loss_shares->counted);
    dlc_free(session->loss_shares);
    session->loss_shares = NULL;
}

/* ---- Control words ----------------------------------------------------------- */

dlc_status dlc_loss_shares_write(dlc_session *session, float words[DLC_CONTROL_WORDS]) {
    const dlc_loss_shares *shares = session->loss_shares;
    counts counted;
    if (!shares)
        return DLC_OK;
    DLC_TRY(count_iteration(session, session->iteration + shares->depth, &counted));
    for (int32_t l = 0; l < MOST_LOSSES; l++) {
        double quotient = floor(counted.of[l] / REST);
        words[WORDS_BEFORE + 2 * l] = (float)quotient;
        words[WORDS_BEFORE + 2 * l + 1] = (float)(counted.of[l] - quotient * REST);
    }
    return DLC_OK;
}

void dlc_loss_shares_read(dlc_session *session, const float words[DLC_CONTROL_WORDS]) {
    dlc_loss_shares *shares = session->loss_shares;
    if (!shares)
        return;
    double *whole = whole_of(shares, shares->received + shares->depth);
    for (int32_t l = 0; l < MOST_LOSSES; l++)
        whole[l] = rint((double)words[WORDS_BEFORE + 2 * l] * REST +
                        (double)words[WORDS_BEFORE + 2 * l + 1]);
    shares->received++;
}

/* ---- Shares ------------------------------------------------------------------ */

/* Of what counts in as many passes as there are accumulation steps. */
static double share_of(const dlc_session *session, int32_t i, int64_t batch,
                       int64_t first, int64_t samples, int64_t passes) {
    dlc_loss_shares *shares = session->loss_shares;
    int64_t steps = session->accumulation_steps;
    if (!shares)
        return (double)(samples * passes) / (double)dlc_session_samples(session);
    double whole = whole_of(shares, batch / steps)[shares->loss[i].number];
    double part = sum_of(shares, i, batch, first, samples);
    return whole > 0 ? part * (double)passes / whole : 0;
}

double dlc_loss_share(const dlc_session *session, int32_t i, int64_t batch,
                      int64_t first, int64_t samples) {
    return share_of(session, i, batch, first, samples, 1);
}

/* Updates divide the gradients by the accumulation steps. */
void dlc_loss_shares_set(dlc_session *session, int64_t batch, int64_t first,
                         int64_t samples) {
    const dlc_loss_shares *shares = session->loss_shares;
    for (int32_t i = 0; i < dlc_net_losses(session->net); i++)
        dlc_net_set_loss_share(session->net, i,
                               (float)share_of(session, i, batch, first, samples,
                                               session->accumulation_steps),
                               shares ? counted_at(shares, batch, i) + first : NULL);
}

int dlc_loss_shares_are_plain(const dlc_session *session, int64_t batch) {
    const dlc_loss_shares *shares = session->loss_shares;
    double plain = (double)session->local_batch / (double)dlc_session_samples(session);
    for (int32_t i = 0; shares && i < shares->losses; i++)
        if ((float)dlc_loss_share(session, i, batch, 0, session->local_batch) !=
            (float)plain)
            return 0;
    return 1;
}
