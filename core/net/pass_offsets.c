/* The pass `offsets`: the last one. It places the planned buffers in one block. */
#include "net/passes.h"

dlc_status dlc_net_pass_offsets(dlc_net *net) {
    return dlc_buffers_place(net->buffer, (size_t)net->buffers_planned,
                             &net->activation_bytes);
}
