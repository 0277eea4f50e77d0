/* Makes plans: takes a plan from the disk cache (plan_cache.h), or else the first
 * acceptable engine that cuDNN proposes for the graph, or the fastest of several. */
#include "autotune.h"
#include "graph.h"
#include "plan_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROPOSALS = 32, NOTES = CUDNN_NUMERICAL_NOTE_TYPE_COUNT };

static void drop(cudnnBackendDescriptor_t *descriptor) {
    if (*descriptor)
        (void)cudnn.BackendDestroyDescriptor(*descriptor);
    *descriptor = NULL;
}

static cudnnStatus_t set_descriptor(cudnnBackendDescriptor_t at,
                                    cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptor_t value) {
    return cudnn.BackendSetAttribute(at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                     (void *)&value);
}

/* Sets the device: the GPU that is here, or the described one. */
static cudnnStatus_t set_device(const context *net, cudnnBackendDescriptor_t at,
                                cudnnBackendAttributeName_t handle,
                                cudnnBackendAttributeName_t described) {
    if (net->described)
        return set_descriptor(at, described, net->described);
    return cudnn.BackendSetAttribute(at, handle, CUDNN_TYPE_HANDLE, 1, &net->cudnn);
}

/* ---- Proposals --------------------------------------------------------------- */

static cudnnStatus_t whole_graph(graph *g) {
    if (g->whole)
        return CUDNN_STATUS_SUCCESS;
    cudnnStatus_t st = cudnn.BackendCreateDescriptor(
        CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->whole);
    if (st == CUDNN_STATUS_SUCCESS && !g->net->described)
        st = cudnn.BackendSetAttribute(g->whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                       CUDNN_TYPE_HANDLE, 1, &g->net->cudnn);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendSetAttribute(g->whole, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops, g->op);
    return st == CUDNN_STATUS_SUCCESS ? cudnn.BackendFinalize(g->whole) : st;
}

typedef struct proposals {
    int count;
    cudnnBackendDescriptor_t config[PROPOSALS];
} proposals;

static void proposals_clear(proposals *list) {
    for (int i = 0; i < PROPOSALS; i++)
        drop(&list->config[i]);
}

static cudnnStatus_t results(cudnnBackendDescriptor_t heuristics, proposals *list) {
    int64_t got = 0;
    cudnnStatus_t st = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < PROPOSALS && st == CUDNN_STATUS_SUCCESS; i++)
        st = cudnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                           &list->config[i]);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, PROPOSALS, &got,
                                       list->config);
    list->count = st == CUDNN_STATUS_SUCCESS ? (int)got : 0;
    return st;
}

/* Asks for cuDNN's proposals, best first. */
static cudnnStatus_t query_proposals(graph *g, cudnnBackendHeurMode_t mode,
                                     proposals *list) {
    cudnnBackendDescriptor_t heuristics = NULL;
    cudnnStatus_t st = cudnn.BackendCreateDescriptor(
        CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);
    if (st == CUDNN_STATUS_SUCCESS)
        st = set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                            g->whole);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                                       CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (st == CUDNN_STATUS_SUCCESS && g->net->described)
        st = set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                            g->net->described);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendFinalize(heuristics);
    if (st == CUDNN_STATUS_SUCCESS)
        st = results(heuristics, list);
    drop(&heuristics);
    return st;
}

/* ---- Which of them will do --------------------------------------------------- */

typedef struct engine_facts {
    int64_t number;
    int notes[NOTES]; /* CUDNN_NUMERICAL_NOTE_... */
    int compiled;
} engine_facts;

static cudnnStatus_t read_engine(cudnnBackendDescriptor_t config, engine_facts *facts) {
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t numerical[NOTES];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t got = 0, notes = 0, kinds = 0;
    memset(facts, 0, sizeof *facts);
    cudnnStatus_t st = cudnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                                     &engine);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &engine);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                       CUDNN_TYPE_INT64, 1, &got, &facts->number);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &notes,
                                       numerical);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendGetAttribute(
            engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
            CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &kinds, behaviour);
    drop(&engine);
    if (st != CUDNN_STATUS_SUCCESS)
        return st;
    for (int64_t i = 0; i < notes && i < NOTES; i++)
        if ((int)numerical[i] < NOTES)
            facts->notes[numerical[i]] = 1;
    for (int64_t i = 0; i < kinds && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
        facts->compiled |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return st;
}

/* Deterministic, with float32 sums, and with float32 factors if exact float32 is asked
 * for. */
static int is_acceptable(const context *net, const plan_bounds *limit,
                         const engine_facts *facts) {
    const int *notes = facts->notes;
    int exact = net->precision == DLC_F32 && !(net->math & DLC_MATH_TF32);
    if (notes[CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC] ||
        notes[CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION])
        return 0;
    if (exact && (notes[CUDNN_NUMERICAL_NOTE_TENSOR_CORE] ||
                  notes[CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS]))
        return 0;
    return !limit->direct ||
           !(notes[CUDNN_NUMERICAL_NOTE_WINOGRAD] || notes[CUDNN_NUMERICAL_NOTE_FFT]);
}

/* ---- One plan ------------------------------------------------------------------- */

static cudnnStatus_t new_plan(const context *net, cudnnBackendDescriptor_t *made) {
    cudnnStatus_t st = cudnn.BackendCreateDescriptor(
        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, made);
    return st == CUDNN_STATUS_SUCCESS
               ? set_device(net, *made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                            CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
               : st;
}

static cudnnStatus_t finish_plan(cudnnBackendDescriptor_t made, size_t *scratch) {
    int64_t bytes = 0, got = 0;
    cudnnStatus_t st = cudnn.BackendFinalize(made);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendGetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &got, &bytes);
    *scratch = (size_t)bytes;
    return st;
}

static cudnnStatus_t plan_of(const context *net, cudnnBackendDescriptor_t config,
                             cudnnBackendDescriptor_t *made, size_t *scratch) {
    cudnnStatus_t st = new_plan(net, made);
    if (st == CUDNN_STATUS_SUCCESS)
        st = set_descriptor(*made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    return st == CUDNN_STATUS_SUCCESS ? finish_plan(*made, scratch) : st;
}

static void set_plan(const graph *g, cudnn_plan *p, cudnnBackendDescriptor_t made,
                     size_t scratch) {
    p->net = g->net;
    p->layer = g->layer;
    p->what = g->what;
    p->plan = made;
    p->scratch_bytes = scratch;
    p->tensors = 0;
    for (int i = 1; i <= g->tensors; i++)
        if (g->is_bound[i])
            p->uid[p->tensors++] = i;
}

/* Returns 1 if the engine was accepted. */
static int try_one(graph *g, const plan_bounds *limit, cudnnBackendDescriptor_t config,
                   cudnn_plan *p) {
    engine_facts facts;
    cudnnBackendDescriptor_t made = NULL;
    size_t scratch = 0;
    if (read_engine(config, &facts) != CUDNN_STATUS_SUCCESS ||
        !is_acceptable(g->net, limit, &facts))
        return 0;
    if (plan_of(g->net, config, &made, &scratch) != CUDNN_STATUS_SUCCESS ||
        scratch > limit->scratch_bytes) {
        drop(&made);
        return 0;
    }
    set_plan(g, p, made, scratch);
    p->engine = facts.number;
    p->compiled = facts.compiled;
    return 1;
}

/* Only a GPU that is here can be timed. */
static int is_timed(const context *net) {
    return net->autotune && !net->described;
}

/* The search for the fastest of the acceptable engines, or for the first. */
typedef struct choice {
    cudnn_plan *best;
    autotune timer;
    float least; /* milliseconds */
    int tried, most;
} choice;

static void consider(graph *g, const plan_bounds *limit,
                     cudnnBackendDescriptor_t config, choice *c) {
    cudnn_plan p = {0};
    float took = INFINITY;
    if (!try_one(g, limit, config, &p))
        return;
    c->tried++;
    if (c->most > 1 && autotune_time(&c->timer, g, &p, c->least, &took) != DLC_OK)
        took = INFINITY;
    int better = !c->best->plan || took < c->least;
    if (better)
        c->least = took;
    cudnn_plan lost = better ? *c->best : p;
    if (better)
        *c->best = p;
    plan_clear(&lost);
}

static dlc_status choose(graph *g, const plan_bounds *limit, cudnn_plan *p) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    choice c = {.best = p, .least = INFINITY, .most = is_timed(g->net) ? PROPOSALS : 1};
    int seen = 0;
    for (size_t m = 0; m < sizeof modes / sizeof *modes && !c.tried; m++) {
        proposals list = {0};
        (void)query_proposals(g, modes[m],
                              &list); /* an unsupported graph has no proposals */
        for (int i = 0; i < list.count && c.tried < c.most; i++)
            consider(g, limit, list.config[i], &c);
        seen += list.count;
        proposals_clear(&list);
    }
    autotune_close(&c.timer);
    if (c.tried)
        return DLC_OK;
    return host->fail(DLC_ERR_UNSUPPORTED,
                      "layer '%s': cuDNN cannot %s: none of its %d engines offers "
                      "deterministic sums in %s with at most %zu MiB of scratch memory",
                      g->layer, g->what, seen,
                      g->net->precision == DLC_F32 ? "float32" : "16 bits",
                      limit->scratch_bytes >> 20);
}

/* ---- Plans from the disk cache -------------------------------------------------- */

/* Everything that the choice depends on. */
static void key_of(const graph *g, const plan_bounds *limit, char *key, size_t bytes) {
    (void)snprintf(key, bytes,
                   "%s, cuDNN %zu, precision %d, math %u, direct %d, tuned %d, %zu: %s",
                   g->net->gpu, cudnn.GetVersion(), (int)g->net->precision,
                   (unsigned)g->net->math, limit->direct, is_timed(g->net),
                   limit->scratch_bytes, g->key);
}

/* In the text, the engine's number and whether it was compiled precede cuDNN's
 * serialized plan. */
static int load_cached(const graph *g, const plan_bounds *limit, const char *key,
                       cudnn_plan *p) {
    size_t bytes = 0, scratch = 0;
    char *text = plan_cache_load(key, &bytes), *plan_text = NULL;
    cudnnBackendDescriptor_t made = NULL;
    if (!text)
        return 0;
    long long engine = strtoll(text, &plan_text, 10);
    int compiled = *plan_text == 'c', done = 0;
    if (*plan_text == 'c' || *plan_text == 'p') {
        plan_text++;
        cudnnStatus_t st = new_plan(g->net, &made);
        if (st == CUDNN_STATUS_SUCCESS)
            st = cudnn.BackendSetAttribute(
                made, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                (int64_t)(bytes - (size_t)(plan_text - text)), plan_text);
        if (st == CUDNN_STATUS_SUCCESS)
            st = finish_plan(made, &scratch);
        done = st == CUDNN_STATUS_SUCCESS && scratch <= limit->scratch_bytes;
    }
    host->free(text);
    if (!done) {
        drop(&made);
        return 0;
    }
    set_plan(g, p, made, scratch);
    p->engine = engine;
    p->compiled = compiled;
    return 1;
}

static void store_cached(const char *key, const cudnn_plan *p) {
    int64_t bytes = 0, got = 0;
    if (cudnn.BackendGetAttribute(
            p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
            &bytes, NULL) != CUDNN_STATUS_SUCCESS ||
        bytes <= 0)
        return;
    enum { NUMBER = 32 };
    char *text = host->alloc((size_t)bytes + NUMBER);
    if (!text)
        return;
    int n = snprintf(text, NUMBER, "%lld%c", (long long)p->engine,
                     p->compiled ? 'c' : 'p');
    if (cudnn.BackendGetAttribute(
            p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            bytes, &got, text + n) == CUDNN_STATUS_SUCCESS)
        plan_cache_store(key, text, (size_t)n + (size_t)got);
    host->free(text);
}

dlc_status graph_plan(graph *g, const plan_bounds *limit, cudnn_plan *p) {
    enum { LONG = GRAPH_KEY + 1024 };
    char key[LONG];
    struct cudnnContext *handle = NULL;
    plan_clear(p);
    if (g->status != DLC_OK)
        return g->status;
    dlc_status status = context_cudnn(g->net, &handle);
    if (status != DLC_OK)
        return status;
    key_of(g, limit, key, sizeof key);
    if (load_cached(g, limit, key, p))
        return DLC_OK;
    status = check_cudnn(whole_graph(g), g->layer, g->what);
    if (status == DLC_OK && (status = choose(g, limit, p)) == DLC_OK)
        store_cached(key, p);
    return status;
}

/* ---- Running ----------------------------------------------------------------- */

void plan_clear(cudnn_plan *p) {
    drop(&p->pack);
    drop(&p->plan);
    memset(p, 0, sizeof *p);
}

/* Makes a variant pack of new addresses, which seldom change. */
static cudnnStatus_t make_pack(cudnn_plan *p) {
    drop(&p->pack);
    cudnnStatus_t st = cudnn.BackendCreateDescriptor(
        CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                       CUDNN_TYPE_INT64, p->tensors, p->uid);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                       CUDNN_TYPE_VOID_PTR, p->tensors, p->at);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnn.BackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                       CUDNN_TYPE_VOID_PTR, 1, &p->scratch_at);
    return st == CUDNN_STATUS_SUCCESS ? cudnn.BackendFinalize(p->pack) : st;
}

dlc_status plan_run_all(cudnn_plan *p, void *scratch, const plan_bind *binds,
                        int count) {
    int changed = !p->pack || p->scratch_at != scratch;
    p->scratch_at = scratch;
    for (int i = 0; i < count; i++)
        for (int t = 0; t < p->tensors; t++)
            if (p->uid[t] == binds[i].tensor && p->at[t] != binds[i].at) {
                p->at[t] = (void *)(uintptr_t)binds[i].at;
                changed = 1;
            }
    cudnnStatus_t st = changed ? make_pack(p) : CUDNN_STATUS_SUCCESS;
    if (st != CUDNN_STATUS_SUCCESS)
        drop(&p->pack); /* made again by the next run */
    else
        st = cudnn.BackendExecute(p->net->cudnn, p->plan, p->pack);
    return check_cudnn(st, p->layer, p->what);
}
