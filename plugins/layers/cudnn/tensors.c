/* Helpers for layers with kernels of our own. */
#include "tensors.h"

dlc_status need_countable(const dlc_layer *layer, const char *thing, int64_t elements) {
    enum { MOST = 0x7fffff00 };
    if (elements <= MOST)
        return DLC_OK;
    return host->fail(DLC_ERR_UNSUPPORTED,
                      "layer '%s': one %s has %lld elements; the limit on a GPU is %d",
                      layer->name, thing, (long long)elements, (int)MOST);
}

dlc_dtype common_type(const dlc_tensor *in, int32_t inputs) {
    for (int32_t i = 1; i < inputs; i++)
        if (in[i].dtype != in[0].dtype)
            return DLC_F32;
    return in[0].dtype;
}

void order_dims(int rank, int last, int order[DLC_MAX_DIMS]) {
    int n = 0;
    order[n++] = 0;
    for (int d = last ? 2 : 1; d < rank; d++)
        order[n++] = d;
    if (last && rank > 1)
        order[n] = 1;
}
