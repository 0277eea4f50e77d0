/* Where the net is cut into stages: [parallel] pipeline.
 *
 *     3             three, balanced by work and by what is sent between them
 *     auto          as many as the other axes leave ranks for, balanced likewise
 *     conv2, ip1    a stage begins with each of these layers, after the first stage */
#ifndef DLC_SETUP_STAGE_CUT_H
#define DLC_SETUP_STAGE_CUT_H

#include "setup/setup.h"

/* The parsed setting. Initialize with {0}. */
typedef struct dlc_stage_cut {
    int32_t stages; /* 0: auto */
    int32_t *first; /* own; if layers are named: the first layer of each stage, then the
                       number of layers; NULL: to be balanced */
} dlc_stage_cut;

void dlc_stage_cut_free(dlc_stage_cut *cut); /* a zeroed one is allowed */

/* Parses the setting. DLC_ERR_CONFIG with a sentence. */
dlc_status dlc_stage_cut_parse(const dlc_setup *setup, dlc_stage_cut *cut);

#endif
