/* The kernels of layers/cudnn on the host, for builds that cannot emulate CUDA: the
 * same bodies that the GPU runs, in loops over the grid and with arrays for the lanes
 * of a warp. Everything else about a launch is left out. */
#include <stdlib.h>

#include "kernels/kernels.h"
#include "reorder.h"

/* ---- Lanes ------------------------------------------------------------------- */

/* As in warp_max and warp_sum: a butterfly over all lanes. */
static float lanes_max(float lane[WARP_SIZE], int lanes) {
    for (int step = lanes / 2; step; step /= 2) {
        float next[WARP_SIZE];
        for (int i = 0; i < lanes; i++)
            next[i] = max_or_nan(lane[i], lane[i ^ step]);
        memcpy(lane, next, sizeof next);
    }
    return lane[0];
}

static pair lanes_sum(pair lane[WARP_SIZE], int lanes) {
    for (int step = lanes / 2; step; step /= 2) {
        pair next[WARP_SIZE];
        for (int i = 0; i < lanes; i++)
            next[i] = pair_sum(lane[i], lane[i ^ step]);
        memcpy(lane, next, sizeof next);
    }
    return lane[0];
}

static float max_of(const row_view *r, int lanes) {
    float lane[WARP_SIZE] = {0};
    for (int i = 0; i < lanes; i++)
        lane[i] = row_max(r, r->type, i, lanes);
    return lanes_max(lane, lanes);
}

static pair sums_of(const row_view *r, int lanes, float max) {
    pair lane[WARP_SIZE] = {{0, 0}};
    for (int i = 0; i < lanes; i++)
        lane[i] = row_sums(r, r->type, i, lanes, max);
    return lanes_sum(lane, lanes);
}

/* ---- Pointwise --------------------------------------------------------------- */

cudaError_t activation_forward_run(const activation_args *a, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < vector_range_of(a->type, a->count).items + 3; i++)
        activation_forward_at(a, a->type, i);
    return cudaSuccess;
}

cudaError_t activation_backward_run(const activation_args *a, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < vector_range_of(a->type, a->count).items + 3; i++)
        activation_backward_at(a, a->type, i);
    return cudaSuccess;
}

cudaError_t eltwise_forward_run(const eltwise_args *a, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < vector_range_of(a->type, a->count).items + 3; i++)
        eltwise_forward_at(a, a->type, i);
    return cudaSuccess;
}

cudaError_t eltwise_backward_run(const eltwise_args *a, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < vector_range_of(a->type, a->count).items + 3; i++)
        eltwise_backward_at(a, a->type, i);
    return cudaSuccess;
}

/* ---- Images ------------------------------------------------------------------ */

cudaError_t pooling_forward_run(const pooling_args *p, cudaStream_t stream) {
    int64_t items = p->images * pooling_items(p, 0);
    (void)stream;
    for (int64_t i = 0; i < items; i++)
        pooling_forward_at(p, p->type, width_of(p->type, p->wide), (uint32_t)i);
    return cudaSuccess;
}

cudaError_t pooling_backward_run(const pooling_args *p, cudaStream_t stream) {
    int64_t items = p->images * pooling_items(p, 1);
    (void)stream;
    for (int64_t i = 0; i < items; i++)
        pooling_backward_at(p, p->type, width_of(p->type, p->wide), (uint32_t)i);
    return cudaSuccess;
}

cudaError_t upsample_forward_run(const upsample_args *u, cudaStream_t stream) {
    int64_t items = u->images * upsample_items(u, 0);
    (void)stream;
    for (int64_t i = 0; i < items; i++)
        upsample_forward_at(u, u->type, width_of(u->type, u->wide), (uint32_t)i);
    return cudaSuccess;
}

cudaError_t upsample_backward_run(const upsample_args *u, cudaStream_t stream) {
    int64_t items = u->images * upsample_items(u, 1);
    (void)stream;
    for (int64_t i = 0; i < items; i++)
        upsample_backward_at(u, u->type, width_of(u->type, u->wide), (uint32_t)i);
    return cudaSuccess;
}

cudaError_t lrn_forward_run(const lrn_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < l->images * lrn_items(l); i++)
        lrn_forward_at(l, l->type, (uint32_t)i);
    return cudaSuccess;
}

cudaError_t lrn_backward_run(const lrn_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < l->images * lrn_items(l); i++)
        lrn_backward_at(l, l->type, (uint32_t)i);
    return cudaSuccess;
}

/* ---- Rows of scores ---------------------------------------------------------- */

cudaError_t softmax_forward_run(const softmax_args *s, cudaStream_t stream) {
    int lanes = softmax_lanes(s);
    (void)stream;
    for (int64_t i = 0; i < softmax_rows(s); i++) {
        const row_view r = softmax_row(s, s->in, i);
        float max = max_of(&r, lanes);
        pair sums = sums_of(&r, lanes, max);
        for (int lane = 0; lane < lanes; lane++)
            softmax_write(s, &r, lane, lanes, max, sums.a);
    }
    return cudaSuccess;
}

cudaError_t softmax_backward_run(const softmax_args *s, cudaStream_t stream) {
    int lanes = softmax_lanes(s);
    (void)stream;
    for (int64_t i = 0; i < softmax_rows(s); i++) {
        const row_view r = softmax_row(s, s->out, i);
        pair dot[WARP_SIZE] = {{0, 0}};
        for (int lane = 0; lane < lanes; lane++)
            dot[lane].a = softmax_dot(s, &r, lane, lanes);
        float all = lanes_sum(dot, lanes).a;
        for (int lane = 0; lane < lanes; lane++)
            softmax_gradient(s, &r, lane, lanes, all);
    }
    return cudaSuccess;
}

static void sum_rows(const labels_args *l) {
    static label_sums all[BLOCK];
    for (int thread = 0; thread < BLOCK; thread++)
        all[thread] = labels_partial(l, thread);
    for (int step = BLOCK / 2; step; step /= 2)
        for (int thread = 0; thread < step; thread++)
            label_sums_add(&all[thread], &all[thread + step]);
    labels_done(l, &all[0]);
}

cudaError_t loss_forward_run(const labels_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < l->rows; i++) {
        const row_view r = labels_row(l, i);
        float max = max_of(&r, WARP_SIZE);
        loss_row_done(l, l->type, i, max, sums_of(&r, WARP_SIZE, max));
    }
    sum_rows(l);
    return cudaSuccess;
}

cudaError_t loss_backward_run(const labels_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < l->rows; i++)
        for (int lane = 0; lane < WARP_SIZE; lane++)
            loss_gradient(l, l->type, i, lane, WARP_SIZE, loss_factor(l));
    return cudaSuccess;
}

cudaError_t pair_loss_forward_run(const pair_loss_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t n = 0; n < l->samples; n++) {
        pair_loss_sum all = {0, 0};
        for (int thread = 0; thread < BLOCK; thread++) {
            pair_loss_sum part = pair_loss_part(l, n, thread, BLOCK);
            all.sum += part.sum;
            all.count += part.count;
        }
        pair_loss_sample_done(l, n, all);
    }
    pair_loss_total(l);
    return cudaSuccess;
}

cudaError_t pair_loss_backward_run(const pair_loss_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < l->samples * l->each; i++)
        pair_loss_gradient(l, i);
    return cudaSuccess;
}

cudaError_t accuracy_run(const labels_args *l, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < l->rows; i++) {
        int32_t better = 0;
        for (int lane = 0; lane < WARP_SIZE; lane++)
            better += accuracy_better(l, l->type, i, lane, WARP_SIZE);
        accuracy_row_done(l, l->type, i, better);
    }
    sum_rows(l);
    return cudaSuccess;
}

cudaError_t report_open(label_report **report) {
    *report = calloc(1, sizeof **report);
    return *report ? cudaSuccess : cudaErrorMemoryAllocation;
}

void report_close(label_report *report) {
    free(report);
}

/* ---- The rest ---------------------------------------------------------------- */

cudaError_t dropout_run(const dropout_args *d, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < dropout_items(d) + 3; i++)
        dropout_at(d, d->type, i);
    return cudaSuccess;
}

cudaError_t scale_run(const scale_args *s, cudaStream_t stream) {
    int width = scale_width(s);
    (void)stream;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t vector = 0; vector < s->channels / width; vector++)
            scale_at(s, s->type, width, r, vector);
    return cudaSuccess;
}

static void scale_chunk(const scale_args *s, int64_t channel, int64_t chunk) {
    pair all[SCALE_ROW_THREADS];
    for (int lane = 0; lane < SCALE_ROW_THREADS; lane++)
        all[lane] = scale_partial(s, s->type, channel, chunk, lane);
    for (int step = SCALE_ROW_THREADS / 2; step; step /= 2)
        for (int lane = 0; lane < step; lane++)
            all[lane] = pair_sum(all[lane], all[lane + step]);
    scale_partial_done(s, channel, chunk, all[0]);
}

cudaError_t scale_sums_run(const scale_args *s, cudaStream_t stream) {
    (void)stream;
    for (int64_t channel = 0; channel < s->channels; channel++) {
        for (int64_t chunk = 0; chunk < scale_chunks(s->rows); chunk++)
            scale_chunk(s, channel, chunk);
        scale_sum_at(s, channel);
    }
    return cudaSuccess;
}

cudaError_t concat_run(const concat_args *c, int backward, cudaStream_t stream) {
    (void)stream;
    for (int64_t i = 0; i < concat_items(c); i++)
        concat_at(c, backward, c->piece, 0, (uint32_t)i);
    return cudaSuccess;
}

cudaError_t copy_run(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memcpy(to, from, bytes);
    return cudaSuccess;
}
