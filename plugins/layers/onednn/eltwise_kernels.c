/* Kernels of eltwise, compiled once for each instruction set (vectors.h). */
#include "eltwise_kernels.h"
#include "per_isa.h"
#include "vectors.h"

/* Runs `call` for the vectors of `count` numbers from `i` on; the last may be partial.
 */
#define FOR_VECTORS(bf16_, count_, call) \
    do { \
        size_t i = 0; \
        for (; i + LANES <= (count_); i += LANES) { \
            const access v = {bf16_, 0, LANES}; \
            call; \
        } \
        if (i < (count_)) { \
            const access v = {bf16_, 1, (count_)-i}; \
            call; \
        } \
    } while (0)

/* Runs `call(bf16, limit, ...)` with constants. */
#define FOR_LIMIT(call, bf16_, limit_, ...) \
    switch (limit_kind_of(limit_)) { \
    case LIMIT_NONE: \
        call(bf16_, LIMIT_NONE, __VA_ARGS__); \
        break; \
    case LIMIT_RELU: \
        call(bf16_, LIMIT_RELU, __VA_ARGS__); \
        break; \
    default: \
        call(bf16_, LIMIT_ANY, __VA_ARGS__); \
    }

ALWAYS void add_of(int bf16, limit_kind kind, size_t count, const void *a,
                   const void *b, const limits *l, int stream, void *out) {
    FOR_VECTORS(
        bf16, count,
        put(v, stream, element_to(v, out, i),
            bounded(kind, l, load(v, element(v, a, i)) + load(v, element(v, b, i)))));
}

static void add(int bf16, size_t count, const void *a, const void *b,
                const bounds *limit, int stream, void *out) {
    const limits l = limits_of(limit);
    stream = stream && out != a && out != b; /* these are in the caches */
    if (bf16)
        FOR_LIMIT(add_of, 1, limit, count, a, b, &l, stream, out)
    else
        FOR_LIMIT(add_of, 0, limit, count, a, b, &l, stream, out)
    stream_end();
}

ALWAYS void gradient_one(access v, limit_kind kind, size_t i, const void *out,
                         const void *diff, const limits *l, int stream, void *first,
                         void *second) {
    enum { AHEAD = 4096 };
    vec d = load(v, element(v, diff, i));
    fetch_ahead((const char *)element(v, diff, i) + AHEAD, 1);
    if (kind != LIMIT_NONE) {
        fetch_ahead((const char *)element(v, out, i) + AHEAD, 1);
        d = bounded_gradient(kind, l, load(v, element(v, out, i)), d);
    }
    if (first)
        put(v, stream && first != diff, element_to(v, first, i), d);
    if (second)
        put(v, stream && second != diff, element_to(v, second, i), d);
}

ALWAYS void gradient_of(int bf16, limit_kind kind, size_t count, const void *out,
                        const void *diff, const limits *l, int stream, void *first,
                        void *second) {
    FOR_VECTORS(bf16, count,
                gradient_one(v, kind, i, out, diff, l, stream, first, second));
}

static void gradient(int bf16, size_t count, const void *out, const void *diff,
                     const bounds *limit, int stream, void *first, void *second) {
    const limits l = limits_of(limit);
    if (bf16)
        FOR_LIMIT(gradient_of, 1, limit, count, out, diff, &l, stream, first, second)
    else
        FOR_LIMIT(gradient_of, 0, limit, count, out, diff, &l, stream, first, second)
    stream_end();
}

ALWAYS void widen_one(access v, size_t i, const void *from, float *to) {
    vec value = load(v, element(v, from, i));
    store((access){0, v.partial, v.lanes}, to + i, value);
}

static void widen(size_t count, const void *from, float *to) {
    FOR_VECTORS(1, count, widen_one(v, i, from, to));
}

ALWAYS void narrow_one(access v, size_t i, const float *from, void *to) {
    vec value = load((access){0, v.partial, v.lanes}, from + i);
    store(v, element_to(v, to, i), value);
}

static void narrow(size_t count, const float *from, void *to) {
    FOR_VECTORS(1, count, narrow_one(v, i, from, to));
}

const eltwise_kernels PER_ISA(eltwise_) = {
    .name = ISA_NAME,
    .add = add,
    .gradient = gradient,
    .widen = widen,
    .narrow = narrow,
};
