/* Compares the settings of all ranks when a job starts. Called by rank.c. */
#ifndef DLC_JOB_SETTINGS_CHECK_H
#define DLC_JOB_SETTINGS_CHECK_H

#include "job/rank_info.h"

/* Collective. DLC_ERR_CONFIG on all ranks, with the first difference, if one of them
 * has others than rank 0. `settings` are this rank's, as in dlc_job_options. */
dlc_status dlc_settings_check(dlc_job *job, const char *settings,
                              const dlc_rank_details *details);

#endif
