/* Samples that cannot be read and are skipped: which, and how many they may be.
 *
 * Threads: any. */
#ifndef DLC_DATA_SKIPS_H
#define DLC_DATA_SKIPS_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

/* Initialize with dlc_skips_open. */
typedef struct dlc_skips {
    pthread_mutex_t lock;
    int64_t *index; /* own; of the samples, in the order in which they were found */
    int64_t count, most;
    int is_open;
} dlc_skips;

/* At most `most` samples may be skipped; 0: none, unless the user allows it; -1: none,
 * whatever the user says. */
dlc_status dlc_skips_open(int64_t most, dlc_skips *skips);
void dlc_skips_close(dlc_skips *skips); /* a zeroed one is allowed */

/* Notes that a sample cannot be read; dlc_detail() says why. The first ten are warned
 * of. DLC_ERR_DATA, with that sentence, if it is one too many; a sample that was
 * skipped before never is. */
dlc_status dlc_skips_add(dlc_skips *skips, int64_t index);
/* Was the sample skipped? */
int dlc_skips_have(dlc_skips *skips, int64_t index);
/* DLC_ERR_DATA: dlc_detail(), and how to skip such samples. */
dlc_status dlc_skips_advise(void);

#endif
