/* Variables of the environment. Called by external*.c and secret.c. */
#ifndef DLC_JOB_ENVIRONMENT_H
#define DLC_JOB_ENVIRONMENT_H

#include "base/status.h"

/* The value of a variable; NULL if it is not set or empty. */
const char *dlc_environment_text(const char *name);
/* A number from 0 to `most`; *number is -1 if the variable is not set. DLC_ERR_CONFIG
 * if it is something else. */
dlc_status dlc_environment_number(const char *name, long most, long *number);
/* Whether a rank and a number of ranks that were read, -1 where unknown, can both be
 * true. */
dlc_status dlc_environment_check_rank(const char *rank_name, long rank,
                                      const char *size_name, long size);

#endif
