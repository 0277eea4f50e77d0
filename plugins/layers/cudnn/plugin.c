/* Plugin layers-cudnn: a net's layers on an NVIDIA GPU, with cuDNN, cuBLASLt and
 * kernels of our own. This file is the descriptor. */
#include <dlcore/plugin.h>

#include "cudnn.h"
#include "library.h"

const dlc_host *host;

static dlc_status load(const dlc_host *given) {
    host = given;
    return library_find();
}

#define LAYER_DEVICE DLC_CUDA_DEVICE
#define SIXTEEN (DLC_LAYER_BF16 | DLC_LAYER_F16)
#define SIXTEEN_MORE SIXTEEN
#include "../shared/features.h"

DLC_PLUGIN("cudnn", DLC_VERSION, "BSD-2-Clause", features, load);
