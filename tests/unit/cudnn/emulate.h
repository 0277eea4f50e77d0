/* CUDA's kernels on the processor, for tests: each thread of a block is a fiber, and a
 * barrier goes on to the next. The blocks come one after the other. A barrier that some
 * threads of a block reach and others leave out ends the test, and so does a shuffle
 * that some lanes of a warp leave out. */
#ifndef TEST_CUDNN_EMULATE_H
#define TEST_CUDNN_EMULATE_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <functional>

#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __shared__ static
#define __launch_bounds__(threads)
#define __grid_constant__
#define __syncthreads() emulate::wait_at(emulate::AT_BLOCK)
#define __shfl_xor_sync(mask, value, step) emulate::shuffle(mask, value, step)
#define threadIdx emulate::thread
#define blockIdx emulate::block
#define blockDim emulate::block_dim
#define gridDim emulate::grid_dim
#define cudaPeekAtLastError() cudaSuccess
#define cudaMemcpyAsync(to, from, bytes, kind, stream) \
    ((void)(kind), (void)(stream), memcpy(to, from, bytes), cudaSuccess)
#define cudaHostAlloc(memory, bytes, flags) \
    ((void)(flags), *(memory) = calloc(1, bytes), \
     *(memory) ? cudaSuccess : cudaErrorMemoryAllocation)
#define cudaFreeHost(memory) (free(memory), cudaSuccess)
#define LAUNCH(kernel, grid, block, stream, ...) \
    emulate::run(grid, block, [&] { \
        (void)(stream); \
        kernel(__VA_ARGS__); \
    })

namespace emulate {

enum { STACK = 32 * 1024, FIBERS = 1024, WARP = 32 };

static uint3 thread, block;
static dim3 block_dim, grid_dim;
static const std::function<void()> *work;

/* What a fiber that gave way waits for. */
enum waiting { FOR_ITS_TURN, AT_WARP, AT_BLOCK, DONE };
static waiting state[FIBERS];
static uint64_t slot[FIBERS]; /* of shuffles */

/* Fibers live as long as the program; changing from one to another is a long jump, for
 * swapcontext asks the kernel about signals each time. */
static ucontext_t home;
static jmp_buf back, place[FIBERS];
static char *stack[FIBERS];
static unsigned current;

static void wait_at(waiting what) {
    state[current] = what;
    if (_setjmp(place[current]) == 0)
        _longjmp(back, 1);
}

template <typename T> T shuffle(unsigned mask, T value, int step) {
    T other;
    if (mask != 0xffffffffu || sizeof value > sizeof slot[0])
        abort(); /* nobody needs more */
    memcpy(&slot[current], &value, sizeof value);
    wait_at(AT_WARP);
    memcpy(&other, &slot[current ^ (unsigned)step], sizeof other);
    wait_at(AT_WARP); /* until all have read */
    return other;
}

static void live() {
    for (;;) {
        wait_at(DONE);
        (*work)();
    }
}

static void begin(unsigned i) {
    ucontext_t context;
    if (stack[i])
        return;
    stack[i] = (char *)malloc(STACK);
    if (!stack[i] || getcontext(&context) != 0)
        abort();
    context.uc_stack.ss_sp = stack[i];
    context.uc_stack.ss_size = STACK;
    context.uc_link = NULL;
    makecontext(&context, live, 0);
    current = i;
    if (_setjmp(back) == 0)
        (void)swapcontext(&home, &context);
}

/* Goes on with a fiber up to where it waits again. */
static void go_on(unsigned i) {
    current = i;
    thread = make_uint3(i % block_dim.x, i / block_dim.x % block_dim.y,
                        i / block_dim.x / block_dim.y);
    if (_setjmp(back) == 0)
        _longjmp(place[i], 1);
}

/* If all of them, or none, wait there: are there any? Then it is their turn. */
static bool release(unsigned first, unsigned end, waiting where) {
    unsigned waits = 0;
    for (unsigned i = first; i < end; i++)
        waits += state[i] == where;
    if (waits && waits < end - first) {
        fprintf(stderr, "%u of %u threads leave out a %s\n", end - first - waits,
                end - first, where == AT_WARP ? "shuffle" : "barrier");
        abort();
    }
    for (unsigned i = first; i < end && waits; i++)
        state[i] = FOR_ITS_TURN;
    return waits != 0;
}

/* Up to the block's next barrier. */
static void run_warp(unsigned first, unsigned end) {
    do
        for (unsigned i = first; i < end; i++)
            if (state[i] == FOR_ITS_TURN)
                go_on(i);
    while (release(first, end, AT_WARP));
}

static void run_block(unsigned threads) {
    for (unsigned i = 0; i < threads; i++)
        state[i] = FOR_ITS_TURN;
    do
        for (unsigned i = 0; i < threads; i += WARP)
            run_warp(i, i + WARP < threads ? i + WARP : threads);
    while (release(0, threads, AT_BLOCK));
}

static void run(dim3 grid, dim3 threads, const std::function<void()> &kernel) {
    const unsigned count = threads.x * threads.y * threads.z;
    if (count > FIBERS)
        abort();
    for (unsigned i = 0; i < count; i++)
        begin(i);
    grid_dim = grid;
    block_dim = threads;
    work = &kernel;
    for (unsigned i = 0; i < grid.x * grid.y * grid.z; i++) {
        block = make_uint3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y);
        run_block(count);
    }
}

} // namespace emulate

#endif
