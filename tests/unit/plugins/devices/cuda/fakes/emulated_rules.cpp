/* Compiles the kernels of the tests' update rules into functions that run on the CPU,
 * and launches them in place of the CUDA runtime. */
#include "unit/plugins/layers/cudnn/emulate.h"

/* The headers of CUDA are included already: this only selects the kernels. */
#define __CUDACC__ 1
#include "support/update_rules.h"
#undef __CUDACC__

typedef void update_kernel(const dlc_update update, const dlc_rule_operands operands);

static const struct {
    const char *name;
    update_kernel *kernel;
} kernels[] = {{"test_plain", test_plain},
               {"test_momentum", test_momentum},
               {"test_moments", test_moments},
               {"test_four", test_four}};

extern "C" cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t,
                                            const char *name) {
    for (const auto &row : kernels)
        if (strcmp(row.name, name) == 0) {
            *kernel = (cudaKernel_t)(void *)row.kernel;
            return cudaSuccess;
        }
    return cudaErrorSymbolNotFound;
}

extern "C" cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 threads,
                                        void **arguments, size_t, cudaStream_t) {
    const dlc_update &update = *(const dlc_update *)arguments[0];
    const dlc_rule_operands &operands = *(const dlc_rule_operands *)arguments[1];
    emulate::run(grid, threads,
                 [&] { ((update_kernel *)(void *)kernel)(update, operands); });
    return cudaSuccess;
}
