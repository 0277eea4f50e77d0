/* Emulates CUDA kernels on the CPU, for tests. Each thread of a block is a fiber, and a
 * barrier switches to the next fiber. Blocks run one after the other. A barrier that
 * only some threads of a block reach aborts the test, and so does a shuffle that only
 * some lanes of a warp reach. */
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
#define __launch_bounds__(...)
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
#define cudaMemsetAsync(to, value, bytes, stream) \
    ((void)(stream), memset(to, value, bytes), cudaSuccess)
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

/* What a suspended fiber waits for. */
enum waiting { RUNNABLE, AT_WARP, AT_BLOCK, DONE };
static waiting state[FIBERS];
static uint64_t slot[FIBERS]; /* values exchanged by shuffles */

/* Fibers are never freed. They are switched by longjmp, since swapcontext makes a
 * system call for the signal mask each time. */
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
        abort(); /* no kernel needs more */
    memcpy(&slot[current], &value, sizeof value);
    wait_at(AT_WARP);
    memcpy(&other, &slot[current ^ (unsigned)step], sizeof other);
    wait_at(AT_WARP); /* until all lanes have read */
    return other;
}

static void fiber_main() {
    for (;;) {
        wait_at(DONE);
        (*work)();
    }
}

static void start_fiber(unsigned i) {
    ucontext_t context;
    if (stack[i])
        return;
    stack[i] = (char *)malloc(STACK);
    if (!stack[i] || getcontext(&context) != 0)
        abort();
    context.uc_stack.ss_sp = stack[i];
    context.uc_stack.ss_size = STACK;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    current = i;
    if (_setjmp(back) == 0)
        (void)swapcontext(&home, &context);
}

/* Resumes a fiber until it waits again. */
static void resume(unsigned i) {
    current = i;
    thread = make_uint3(i % block_dim.x, i / block_dim.x % block_dim.y,
                        i / block_dim.x / block_dim.y);
    if (_setjmp(back) == 0)
        _longjmp(place[i], 1);
}

/* Releases the threads that wait at `where`, if all of them do; returns false if none
 * does, and aborts if only some do. */
static bool release(unsigned first, unsigned end, waiting where) {
    unsigned waits = 0;
    for (unsigned i = first; i < end; i++)
        waits += state[i] == where;
    if (waits && waits < end - first) {
        fprintf(stderr, "%u of %u threads do not reach a %s\n", end - first - waits,
                end - first, where == AT_WARP ? "shuffle" : "barrier");
        abort();
    }
    for (unsigned i = first; i < end && waits; i++)
        state[i] = RUNNABLE;
    return waits != 0;
}

/* Runs a warp until each thread waits at a barrier of the block or is done. */
static void run_warp(unsigned first, unsigned end) {
    do
        for (unsigned i = first; i < end; i++)
            if (state[i] == RUNNABLE)
                resume(i);
    while (release(first, end, AT_WARP));
}

static void run_block(unsigned threads) {
    for (unsigned i = 0; i < threads; i++)
        state[i] = RUNNABLE;
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
        start_fiber(i);
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
