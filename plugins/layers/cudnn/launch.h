/* Launching a kernel, in one place: tests run the very same kernels on the processor,
 * and define LAUNCH before this. `kernel` is a name without commas, or in parentheses.
 */
#ifndef DLCORE_CUDNN_LAUNCH_H
#define DLCORE_CUDNN_LAUNCH_H

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, stream, ...) \
    kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif

#endif
