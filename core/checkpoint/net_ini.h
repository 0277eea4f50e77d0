/* Prints the settings of a run as one net.ini without blocks and without --set:
 * settings that were given as `key = value`, defaults as `; key = value`. A checkpoint
 * stores this text, so that it can be understood years later, and a run that resumes
 * compares its own settings with it. */
#ifndef DLC_CHECKPOINT_NET_INI_H
#define DLC_CHECKPOINT_NET_INI_H

#include "base/text.h"
#include "setup/setup.h"

/* Appends the settings to `text`; dlc_text_status reports a failed allocation. */
void dlc_net_ini_print(const dlc_setup *setup, dlc_text *text);

/* A difference between two such texts. `before` or `now` is NULL if that side has no
 * such key or section; `key` is NULL if the difference is the whole section. */
typedef struct dlc_net_ini_difference {
    const char *section, *key, *before, *now;
} dlc_net_ini_difference;

typedef void (*dlc_net_ini_visit)(void *context,
                                  const dlc_net_ini_difference *difference);

/* Calls `visit` for each difference of two such texts, in the order of `before` and
 * then of `now`. Overwrites the line ends of both texts. */
dlc_status dlc_net_ini_compare(char *before, char *now, dlc_net_ini_visit visit,
                               void *context);

#endif
