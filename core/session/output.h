/* An output of a layer that a test hands out, sample by sample, beside its metrics: the
 * scores of classes, or features. Its memory is a boundary tensor of the test net. Part
 * of the session; see test_output.h. */
#ifndef DLC_SESSION_OUTPUT_H
#define DLC_SESSION_OUTPUT_H

#include "net/net.h"

typedef struct dlc_session_output {
    /* What is asked for. */
    int is_wanted;
    dlc_graph_input from;
    int alone; /* the net ends there: it has no layers that the output does not need */

    /* Set by dlc_session_open_test. */
    dlc_net_boundary boundary; /* float32; its shape is that of a batch */
    size_t values;             /* of a sample */
    char *needed;              /* own; with `alone`, the layers */
    dlc_memory memory;         /* own; of a batch, on the device */
    float *host;               /* own if the CPU cannot read `memory`, else the same */
} dlc_session_output;

#endif
