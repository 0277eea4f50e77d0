/* The layer family: one oneDNN engine and stream per net, and reorders between layouts.
 */
#include "weighted_amx.h"

#include <omp.h>

static void family_close(void *opaque) {
    context *net = opaque;
    if (!net)
        return;
    layouts_free(net);
    if (net->attr)
        (void)dnnl_primitive_attr_destroy(net->attr);
    if (net->stream)
        (void)dnnl_stream_destroy(net->stream);
    if (net->engine)
        (void)dnnl_engine_destroy(net->engine);
    host->free(net);
}

/* According to oneDNN, ONEDNN_MAX_CPU_ISA included. Without the instructions it would
 * compute in float32 and convert, which is slower than float32 alone. */
static int bf16_is_fast(void) {
    if (amx_here())
        return 1;
#ifdef __x86_64__
    unsigned isa = dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
#else
    return 0;
#endif
}

/* OpenMP gives fewer threads than requested if the environment limits them, but parts
 * of oneDNN wait for as many as they requested, for ever. */
static void set_threads(int wanted) {
    int most = omp_get_max_active_levels() > 0 ? omp_get_thread_limit() : 1;
    omp_set_dynamic(0);
    omp_set_num_threads(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

static dlc_status family_open(const dlc_family_args *args, void **opaque) {
    if (args->precision == DLC_F16)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "layers on the CPU compute in float32 and bfloat16; "
                          "take [train] precision = bf16 or float32");
    context *net = host->alloc(sizeof *net);
    if (!net)
        return DLC_ERR_NOMEM;
    net->phase = args->phase;
    net->precision = args->precision == DLC_BF16 ? DLC_BF16 : DLC_F32;
    if (net->precision == DLC_BF16 && !bf16_is_fast()) {
        family_close(net);
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "this CPU has no bfloat16 arithmetic (AVX-512 BF16 or "
                          "AMX); take [train] precision = float32");
    }
    /* oneDNN and our own loops use OpenMP's thread pool; both read the number of
     * threads from here, when a primitive is created and when it runs. */
    set_threads((int)args->threads);
    dnnl_status_t st = dnnl_engine_create(&net->engine, dnnl_cpu, 0);
    if (st == dnnl_success)
        st = dnnl_stream_create(&net->stream, net->engine, dnnl_stream_default_flags);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_create(&net->attr);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(net->attr,
                                                     dnnl_scratchpad_mode_user);
    if (st != dnnl_success) {
        family_close(net);
        return dnnl_failed(st, NULL, "start");
    }
    *opaque = net;
    return DLC_OK;
}

static int family_same_layout(const dlc_tensor *a, const dlc_tensor *b) {
    if (a->layout == b->layout)
        return 1;
    if (!a->layout)
        return b->layout->plain;
    if (!b->layout)
        return a->layout->plain;
    return (a->layout->last && b->layout->last) ||
           dnnl_memory_desc_equal(a->layout->md, b->layout->md);
}

static int is_float(dlc_dtype dtype) {
    return dtype == DLC_F32 || dtype == DLC_BF16;
}

struct dlc_reorder {
    op op;
    void *scratch;
};

static void reorder_destroy(dlc_reorder *reorder) {
    if (!reorder)
        return;
    op_clear(&reorder->op);
    host->free(reorder->scratch);
    host->free(reorder);
}

static dlc_status reorder_create(void *opaque, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **out) {
    context *net = opaque;
    if (!is_float(from->dtype) || !is_float(to->dtype))
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "oneDNN's layouts are for float32 and bfloat16 only; these "
                          "tensors are neither");
    const dlc_layout *source = layout_of(net, from), *target = layout_of(net, to);
    if (!source || !target)
        return DLC_ERR_NOMEM;
    dlc_reorder *reorder = host->alloc(sizeof *reorder);
    if (!reorder)
        return DLC_ERR_NOMEM;
    dlc_status status = op_reorder(&reorder->op, net, NULL, source, target);
    if (status == DLC_OK && reorder->op.scratch_bytes) {
        reorder->scratch = host->alloc(reorder->op.scratch_bytes);
        status = reorder->scratch ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (status != DLC_OK) {
        reorder_destroy(reorder);
        return status;
    }
    *out = reorder;
    return DLC_OK;
}

static dlc_status reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    return OP_RUN(&reorder->op, {DNNL_ARG_FROM, src}, {DNNL_ARG_TO, dst},
                  {DNNL_ARG_SCRATCHPAD, reorder->scratch});
}

const dlc_family onednn_family = {
    .size = sizeof(dlc_family),
    .name = "onednn",
    .open = family_open,
    .close = family_close,
    .same_layout = family_same_layout,
    .reorder_create = reorder_create,
    .reorder_run = reorder_run,
    .reorder_destroy = reorder_destroy,
    .infers_without_device = 1,
};
