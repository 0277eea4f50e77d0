/* The settings of a run as one net.ini without blocks and without --set: what is given
 * as `key = value`, defaults as `; key = value`. A checkpoint keeps it, to be
 * understood years later, and a run that resumes compares its own with it. */
#ifndef DLC_TRAIN_NET_INI_H
#define DLC_TRAIN_NET_INI_H

#include "base/text.h"
#include "train/setup.h"

/* Appends it; a failed allocation is told by dlc_text_status. */
void dlc_net_ini_print(const dlc_setup *setup, dlc_text *text);

/* Where two of them differ; a side that has no such key or section is NULL. `key` is
 * NULL where it is the section as a whole. */
typedef struct dlc_net_ini_difference {
    const char *section, *key, *before, *now;
} dlc_net_ini_difference;

typedef void (*dlc_net_ini_visit)(void *context,
                                  const dlc_net_ini_difference *difference);

/* Calls `visit` for each difference of two such texts, in the order of `before` and
 * then of `now`. Changes the texts' line ends while it works. */
dlc_status dlc_net_ini_compare(char *before, char *now, dlc_net_ini_visit visit,
                               void *context);

#endif
