/* Compiles the kernels of the cuda device into a program that runs on the CPU. */
#include "unit/plugins/layers/cudnn/emulate.h"

/* cudaLaunchConfig_t has fields with these names. */
#undef gridDim
#undef blockDim
static const dim3 &gridDim = emulate::grid_dim;
#undef __launch_bounds__
#define __launch_bounds__(...)

template <typename... Wants, typename... Has>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                      void (*kernel)(Wants...), Has... arguments) {
    emulate::run(config->gridDim, config->blockDim, [&] { kernel(arguments...); });
    return cudaSuccess;
}

/* after it */
#include EMULATED
