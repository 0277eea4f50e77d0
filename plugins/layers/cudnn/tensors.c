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
