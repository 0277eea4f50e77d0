/* Update rules: the arithmetic by which a solver changes one weight.
 *
 * A rule is written once, for one element, as the body of DLC_RULE:
 *
 *     DLC_RULE(momentum, 1) {                       // one slot: the velocity
 *         slot[0] = step->own[0] * slot[0] + step->learning_rate * gradient;
 *         *weight -= slot[0];
 *     }
 *
 * It is compiled for the CPU as a loop, and by nvcc as a kernel, and gives bitwise
 * identical results on both (no operation is contracted into FMA). Everything around it
 * is the core's: sharding, fused reductions, capture, accumulation, clipping, loss
 * scaling, bounded staleness, checkpoints.
 *
 * In the body `step` is a const dlc_rule_step *, `gradient` a float (reduced over all
 * ranks, scaled and clipped, with the weight decay of L2 and L1 added), `weight` a
 * float * and `slot` an array with this element of every slot. The body may call
 * sqrtf and fabsf, and nothing with side effects. A weight of 0 whose gradient is
 * always 0 must stay 0: the padding between parameters is updated like the rest.
 *
 * Devices run a rule by dlc_device_ops.update. */
#ifndef DLCORE_RULE_H
#define DLCORE_RULE_H

#include <math.h>

#include <dlcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most arenas of state that a rule may have: with the weights, the gradients and
 * the copies of several ranks, as many streams as one pass over memory bears. */
#define DLC_MAX_SLOTS 4

/* Number of hyperparameters that a rule may have of its own. */
#define DLC_RULE_VALUES 12

/* The state of dynamic loss scaling, which keeps gradients from vanishing in 16-bit
 * floats (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2). It is in
 * device memory, and only dlc_device_ops.update_loss_scale writes it. It has no `size`
 * and does not change within a major version. */
typedef struct dlc_loss_scale {
    float scale; /* factor of the loss in the next pass */

    /* 1 / scale at the time when the current gradients were computed. */
    float inverse;

    /* 1: the current gradients contain infinity or NaN, and no weight is updated
     * from them. */
    int32_t overflow;

    int32_t good_iterations; /* without overflow since `scale` last changed */
    int64_t skipped;         /* iterations with overflow so far */
} dlc_loss_scale;

/* The hyperparameters of one iteration, the same for all parameters. They may be in
 * device memory, so that an iteration can be captured. No `size`; does not change
 * within a major version. */
typedef struct dlc_rule_values {
    float learning_rate;
    float weight_decay; /* L2: weight_decay * weight is added to the gradient */
    float l1_decay;     /* L1: l1_decay * sign(weight) is added to the gradient */

    /* Gradients are cut to [-clip_value, clip_value] before weight decay is added;
     * INFINITY: they are not. */
    float clip_value;

    float own[DLC_RULE_VALUES]; /* the rule's, from dlc_solver_ops.values */
} dlc_rule_values;

/* What the body of a rule reads: the hyperparameters of one iteration for one range of
 * weights. */
typedef struct dlc_rule_step {
    float learning_rate;          /* with the lr_mult of the parameter */
    float weight_decay, l1_decay; /* with its decay_mult; the gradient has them added */
    float clip_value, grad_scale; /* the gradient is scaled and clipped */
    float decay_mult;             /* for decay that a rule applies itself (decoupled) */
    /* L2 norms of the whole tensor, if dlc_solver_needs.norms asks for them: of its
     * weights, and of its gradient or slot. */
    float weight_norm, norm;
    float own[DLC_RULE_VALUES];
} dlc_rule_step;

/* A rule as devices run it. Constant data; DLC_RULE defines one. */
typedef struct dlc_rule {
    uint32_t size;
    int32_t slots; /* 0 .. DLC_MAX_SLOTS */

    /* Updates n elements on the calling thread. No two arrays overlap. */
    void (*run)(const dlc_rule_step *step, size_t n, const float *gradient,
                float *const *slots, float *weight);

    /* The same as a CUDA kernel (see <dlcore/rule_kernel.cuh>): its name in `image`, a
     * fat binary or cubin. NULL: the rule was built without CUDA. */
    const char *kernel;
    const void *image;
} dlc_rule;

/* One update of a range of weights that share lr_mult and decay_mult. */
typedef struct dlc_update {
    uint32_t size;
    const dlc_rule *rule;
    float lr_mult, decay_mult;
    float grad_scale; /* factor of the gradients */
    float clip_norm;  /* see gradient_square */
    dlc_rule_values values;

    /* Values in device memory, read when the work is done; each pointer may be NULL. */

    const dlc_rule_values *values_at; /* instead of `values` */

    /* Its `inverse` multiplies grad_scale; if it has `overflow`, nothing is changed. */
    const dlc_loss_scale *loss_scale;

    /* The squared norm of all gradients: if, multiplied by grad_scale, the norm is more
     * than clip_norm, grad_scale becomes less. */
    const double *gradient_square;

    /* Squared norms of a tensor, for dlc_rule_step.weight_norm and .norm;
     * `norm_of_gradient`: the latter is multiplied by grad_scale. */
    const double *weight_square, *norm_square;
    int32_t norm_of_gradient;
} dlc_update;

/* Norms are made of sums over pieces of so many elements (dlc_device_ops.square_sums).
 * Every parameter begins on a piece of its arena. */
#define DLC_SQUARE_PIECE 256

/* Elements that a thread of a kernel loads and stores at once. */
#define DLC_RULE_PACK 4

/* The arrays of an update, as kernels get them: `head` single elements, packs that
 * begin at multiples of 16 bytes in all arrays, and single elements up to n. No `size`;
 * does not change within a major version. */
typedef struct dlc_rule_operands {
    size_t n, head, packs;
    const float *gradient;
    float *slots[DLC_MAX_SLOTS];
    float *weight;
} dlc_rule_operands;

#ifdef __CUDACC__
#define DLC_RULE_INLINE static __host__ __device__ inline
#else
#define DLC_RULE_INLINE static inline
#endif

/* Clips by norm (Pascanu et al., "On the difficulty of training recurrent neural
 * networks", 2013, algorithm 1), and takes the norms of a tensor. */
DLC_RULE_INLINE void dlc_rule_step_take_norms(const dlc_update *update,
                                              dlc_rule_step *step) {
    double scale = (double)step->grad_scale, most = (double)update->clip_norm;
    step->weight_norm = step->norm = 0;
    if (update->gradient_square) {
        double norm = sqrt(*update->gradient_square) * scale;
        scale = norm > most ? scale * most / norm : scale;
        step->grad_scale = (float)scale;
    }
    if (update->weight_square)
        step->weight_norm = (float)sqrt(*update->weight_square);
    if (update->norm_square)
        step->norm = (float)(sqrt(*update->norm_square) *
                             (update->norm_of_gradient ? scale : 1));
}

/* For devices. Fills in the step of an update from the values where they are; reads
 * device memory if there are pointers to it. Returns 0 if nothing is to be changed. */
DLC_RULE_INLINE int dlc_rule_step_make(const dlc_update *update, dlc_rule_step *step) {
    const dlc_rule_values *values = update->values_at ? update->values_at
                                                      : &update->values;
    step->learning_rate = values->learning_rate * update->lr_mult;
    step->weight_decay = values->weight_decay * update->decay_mult;
    step->l1_decay = values->l1_decay * update->decay_mult;
    step->clip_value = values->clip_value;
    step->grad_scale = update->grad_scale;
    step->decay_mult = update->decay_mult;
    for (int i = 0; i < DLC_RULE_VALUES; i++)
        step->own[i] = values->own[i];
    if (update->loss_scale)
        step->grad_scale *= update->loss_scale->inverse;
    dlc_rule_step_take_norms(update, step);
    return !update->loss_scale || update->loss_scale->overflow == 0;
}

/* For DLC_RULE. What the body gets as its gradient; NaN stays NaN. Where nothing is cut
 * and there is no L1, it is bitwise that of dlc_rule_plain_gradient: adding -0 changes
 * nothing. */
DLC_RULE_INLINE float dlc_rule_gradient(const dlc_rule_step *step, float gradient,
                                        float weight) {
    float g = step->grad_scale * gradient, most = step->clip_value;
    float l1 = weight > 0 ? step->l1_decay : -0.0f;
    l1 = weight < 0 ? -step->l1_decay : l1;
    g = g > most ? most : g;
    g = g < -most ? -most : g;
    return g + step->weight_decay * weight + l1;
}

DLC_RULE_INLINE float dlc_rule_plain_gradient(const dlc_rule_step *step, float gradient,
                                              float weight) {
    return step->grad_scale * gradient + step->weight_decay * weight;
}

DLC_RULE_INLINE int dlc_rule_is_plain(const dlc_rule_step *step) {
    return step->clip_value >= INFINITY && step->l1_decay == 0;
}

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#include <dlcore/rule_kernel.cuh>
#else

/* The code of loops for several instruction sets, one of which is chosen when the
 * plugin is loaded. All give the same bits. Not with the thread sanitizer: the function
 * that chooses would run before the sanitizer is ready. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define DLC_RULE_CLONES \
    __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define DLC_RULE_CLONES
#endif
#if defined(__clang__)
#define DLC_RULE_EACH _Pragma("clang loop vectorize(enable)")
#else
#define DLC_RULE_EACH _Pragma("GCC ivdep")
#endif

/* The kernels of this plugin's rules, which the build embeds. */
#ifdef DLC_RULE_HAS_IMAGE
extern const unsigned char dlc_rule_image[];
#define DLC_RULE_IMAGE dlc_rule_image
#else
#define DLC_RULE_IMAGE NULL
#endif

#define DLC_RULE_LOOP(NAME, SLOTS, GRADIENT) \
    DLC_RULE_EACH for (size_t i = 0; i < n; i++) { \
        float slot[DLC_MAX_SLOTS], w = weight[i]; \
        for (int k = 0; k < (SLOTS); k++) \
            slot[k] = at[k][i]; \
        NAME##_body(&here, GRADIENT(&here, gradient[i], w), slot, &w); \
        for (int k = 0; k < (SLOTS); k++) \
            at[k][i] = slot[k]; \
        weight[i] = w; \
    }

/* Defines the rule NAME with SLOTS slots from the body that follows, and
 * `const dlc_rule NAME`. Compile with -O3 -ffp-contract=off -fno-math-errno
 * -fno-trapping-math, as dlcore_add_plugin does for solvers. */
#define DLC_RULE(NAME, SLOTS) \
    DLC_RULE_INLINE void NAME##_body(const dlc_rule_step *step, float gradient, \
                                     float *slot, float *weight); \
    DLC_RULE_CLONES static void NAME##_run(const dlc_rule_step *step, size_t n, \
                                           const float *gradient, float *const *slots, \
                                           float *weight) { \
        const dlc_rule_step here = *step; \
        float *at[DLC_MAX_SLOTS] = {0}; \
        for (int k = 0; k < (SLOTS); k++) \
            at[k] = slots[k]; \
        if (dlc_rule_is_plain(step)) \
            DLC_RULE_LOOP(NAME, SLOTS, dlc_rule_plain_gradient) \
        else \
            DLC_RULE_LOOP(NAME, SLOTS, dlc_rule_gradient) \
    } \
    static const dlc_rule NAME = {sizeof(dlc_rule), (SLOTS), NAME##_run, #NAME, \
                                  DLC_RULE_IMAGE}; \
    DLC_RULE_INLINE void NAME##_body(const dlc_rule_step *step, float gradient, \
                                     float *slot, float *weight)

#endif
#endif
