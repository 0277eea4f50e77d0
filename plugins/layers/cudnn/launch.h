/* The one place where a kernel is launched. Tests define LAUNCH before they include
 * this, to run the same kernels on the CPU. `kernel` must not contain commas outside
 * parentheses. */
#ifndef DLCORE_CUDNN_LAUNCH_H
#define DLCORE_CUDNN_LAUNCH_H

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, stream, ...) \
    kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif

#endif
