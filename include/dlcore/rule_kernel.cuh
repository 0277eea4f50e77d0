/* Update rules as CUDA kernels. <dlcore/rule.h> includes this file where nvcc compiles
 * a rule; the build embeds the kernels in the plugin as dlc_rule_image.
 *
 * The kernel of a rule is extern "C" and has the rule's name. Devices launch it with
 * blocks of up to 256 threads, in one dimension, as many as they like, and two
 * arguments: the dlc_update, and the dlc_rule_operands. */
#ifndef DLCORE_RULE_KERNEL_CUH
#define DLCORE_RULE_KERNEL_CUH

#include <dlcore/rule.h>

template <int width> struct alignas(width * sizeof(float)) dlc_rule_elements {
    float at[width];
};

/* Updates width elements from index i on. All loads come before the first use. */
template <int width, int slot_count,
          void body(const dlc_rule_step *, float, float *, float *)>
static __device__ __forceinline__ void
dlc_rule_update(const dlc_rule_step &step, const dlc_rule_operands &o, size_t i) {
    typedef dlc_rule_elements<width> elements;
    elements g = *reinterpret_cast<const elements *>(o.gradient + i);
    elements w = *reinterpret_cast<const elements *>(o.weight + i);
    elements s[slot_count > 0 ? slot_count : 1];
#pragma unroll
    for (int k = 0; k < slot_count; k++)
        s[k] = *reinterpret_cast<const elements *>(o.slots[k] + i);
#pragma unroll
    for (int j = 0; j < width; j++) {
        float slot[DLC_MAX_SLOTS];
#pragma unroll
        for (int k = 0; k < slot_count; k++)
            slot[k] = s[k].at[j];
        body(&step, dlc_rule_gradient(&step, g.at[j], w.at[j]), slot, &w.at[j]);
#pragma unroll
        for (int k = 0; k < slot_count; k++)
            s[k].at[j] = slot[k];
    }
#pragma unroll
    for (int k = 0; k < slot_count; k++)
        *reinterpret_cast<elements *>(o.slots[k] + i) = s[k];
    *reinterpret_cast<elements *>(o.weight + i) = w;
}

template <int slot_count, void body(const dlc_rule_step *, float, float *, float *)>
static __device__ __forceinline__ void dlc_rule_update_all(const dlc_update &update,
                                                           const dlc_rule_operands &o) {
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const size_t threads = (size_t)gridDim.x * blockDim.x;
    const size_t packed = o.packs * DLC_RULE_PACK;
    dlc_rule_step step;
    if (!dlc_rule_step_make(&update, &step))
        return;
    for (size_t p = first; p < o.packs; p += threads)
        dlc_rule_update<DLC_RULE_PACK, slot_count, body>(step, o,
                                                         o.head + p * DLC_RULE_PACK);
    for (size_t i = first; i < o.n - packed; i += threads)
        dlc_rule_update<1, slot_count, body>(step, o, i < o.head ? i : i + packed);
}

#define DLC_RULE(NAME, SLOTS) \
    DLC_RULE_INLINE void NAME##_body(const dlc_rule_step *step, float gradient, \
                                     float *slot, float *weight); \
    extern "C" __global__ void __launch_bounds__(256) \
        NAME(const __grid_constant__ dlc_update update, \
             const __grid_constant__ dlc_rule_operands operands) { \
        dlc_rule_update_all<SLOTS, NAME##_body>(update, operands); \
    } \
    DLC_RULE_INLINE void NAME##_body(const dlc_rule_step *step, float gradient, \
                                     float *slot, float *weight)

#endif
