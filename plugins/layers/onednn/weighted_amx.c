/* Layers of weighted sums by AMX's tiles: when they are used, and how a layer's memory
 * and parameters reach the kernels. */
#include "weighted_amx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Linux gives a process the state of tiles when it first asks for it. */
static int tiles_permitted(void) {
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

const amx_kernels *amx_here(void) {
    const char *wanted = getenv("DLCORE_AMX");
    if (wanted && strcmp(wanted, "emulated") == 0)
        return &amx_emulated;
#ifdef __x86_64__
    unsigned can = dnnl_get_effective_cpu_isa();
    int tiles = (can & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    if (tiles && !(wanted && strcmp(wanted, "off") == 0) && tiles_permitted())
        return &amx_tiles;
#endif
    return NULL;
}

/* ---- Preparation ----------------------------------------------------------------- */

/* The layer's own weights have the order that the kernels read; in a test net that of
 * the train net's, and plain if ranks would choose different ones. */
static dlc_status choose_weights(weighted *w, weighted_amx *amx,
                                 const dlc_layout *order) {
    context *net = w->head.net;
    const char *name = w->head.name;
    const weighted *train = (const weighted *)w->head.train_layer;
    w->weights = w->head.plain_params ? w->plain_weights : order;
    if (train && train->weights)
        w->weights = layout_of_md(net, train->weights->md);
    if (!w->weights)
        return DLC_ERR_NOMEM;
    op_clear(&amx->from_plain);
    op_clear(&amx->to_plain);
    if (w->weights == order || (w->weights->plain && order->plain))
        return DLC_OK;
    amx->reordered_bytes = round64(order->bytes);
    dlc_status status = op_reorder(&amx->from_plain, net, name, w->weights, order);
    if (status == DLC_OK)
        status = op_reorder(&amx->to_plain, net, name, order, w->weights);
    return status;
}

dlc_status weighted_amx_prepare(weighted *w, weighted_amx *amx,
                                dlc_layer_memory *memory, const dlc_layout *src,
                                const dlc_layout *dst, const dlc_shape *shape,
                                const dlc_layout *order) {
    context *net = w->head.net;
    const dlc_shape bias = {.rank = 1, .dims = {w->linear.num_output}};
    const int training = w->head.phase == DLC_PHASE_TRAIN;
    w->src = src;
    w->dst = dst;
    w->weights_rank = shape->rank;
    w->bias = layout_plain(net, &bias, DLC_F32);
    w->plain_weights = layout_plain(net, shape, DLC_F32);
    if (!src || !dst || !order || !w->bias || !w->plain_weights)
        return DLC_ERR_NOMEM;
    amx->reordered_bytes = 0;
    dlc_status status = choose_weights(w, amx, order);
    if (status == DLC_OK)
        status = weighted_prepare_params(w, memory);
    if (status != DLC_OK)
        return status;
    layout_set(&memory->in[0], src);
    layout_set(&memory->out[0], dst);
    memory->scratch_bytes = amx->reordered_bytes +
                            max_size(amx->kernels->space_bytes(&amx->conv, training),
                                     max_size(amx->from_plain.scratch_bytes,
                                              amx->to_plain.scratch_bytes));
    memory->reads_in = has_weight_gradient(&w->head);
    memory->reads_out = training && w->relu.on;
    memory->accumulates_gradient = memory->shared_gradient & 1;
    return DLC_OK;
}

/* ---- Forward and backward -------------------------------------------------------- */

/* Sets *weights to those in the kernels' order. */
static dlc_status ordered_weights(weighted_amx *amx, const dlc_layer_run *run,
                                  void *space, const float **weights) {
    *weights = run->param[0];
    if (!amx->from_plain.pd)
        return DLC_OK;
    *weights = run->scratch;
    return OP_RUN(&amx->from_plain, {DNNL_ARG_FROM, run->param[0]},
                  {DNNL_ARG_TO, run->scratch}, {DNNL_ARG_SCRATCHPAD, space});
}

dlc_status weighted_amx_forward(weighted *w, weighted_amx *amx,
                                const dlc_layer_run *run) {
    const bounds limit = relu_bounds(&w->relu);
    void *space = at_offset(run->scratch, amx->reordered_bytes);
    const float *weights = NULL;
    dlc_status status = ordered_weights(amx, run, space, &weights);
    if (status == DLC_OK)
        amx->kernels->forward(&amx->conv, run->in[0], weights,
                              w->linear.has_bias ? run->param[1] : NULL, &limit,
                              run->out[0], space);
    return status;
}

static dlc_status backward_weights(const weighted *w, weighted_amx *amx,
                                   const dlc_layer_run *run, void *space) {
    void *gradient = amx->to_plain.pd ? run->scratch : run->param_diff[0];
    amx->kernels->backward_weights(&amx->conv, run->in[0], run->out_diff[0], gradient,
                                   w->linear.has_bias ? run->param_diff[1] : NULL,
                                   space);
    if (!amx->to_plain.pd)
        return DLC_OK;
    return OP_RUN(&amx->to_plain, {DNNL_ARG_FROM, gradient},
                  {DNNL_ARG_TO, run->param_diff[0]}, {DNNL_ARG_SCRATCHPAD, space});
}

dlc_status weighted_amx_backward(weighted *w, weighted_amx *amx,
                                 const dlc_layer_run *run) {
    void *space = at_offset(run->scratch, amx->reordered_bytes);
    dlc_status status = DLC_OK;
    if (w->relu.on && begins_backward(&w->head, run))
        relu_mask(&w->relu, w->dst->dtype, layout_count(w->dst), run->out[0],
                  run->out_diff[0]);
    if (wants_backward(run, DLC_BACKWARD_WEIGHTS))
        status = backward_weights(w, amx, run, space);
    if (status != DLC_OK || !wants_backward(run, DLC_BACKWARD_DATA) || !run->in_diff[0])
        return status;
    const float *weights = NULL;
    status = ordered_weights(amx, run, space, &weights);
    if (status == DLC_OK)
        amx->kernels->backward_data(&amx->conv, run->out_diff[0], weights,
                                    (run->accumulate & 1) != 0, run->in_diff[0], space);
    return status;
}

void weighted_amx_describe(const weighted *w, const weighted_amx *amx, char *text,
                           size_t bytes) {
    (void)snprintf(text, bytes, "own:amx_%s %s%s", amx->kernels->name,
                   layout_name(w->src), w->relu.on ? " +relu" : "");
}

void weighted_amx_clear(weighted_amx *amx) {
    op_clear(&amx->from_plain);
    op_clear(&amx->to_plain);
}
