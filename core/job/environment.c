/* Reads variables of the environment. */
#include "job/environment.h"

#include <stdlib.h>

const char *dlc_environment_text(const char *name) {
    const char *text = getenv(name);
    return text && text[0] ? text : NULL;
}

dlc_status dlc_environment_number(const char *name, long most, long *number) {
    const char *text = dlc_environment_text(name);
    *number = -1;
    if (!text)
        return DLC_OK;
    char *end;
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || end - text > 10 || value > most)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=%s in the environment is not a number from 0 to %ld", name,
                        text, most);
    *number = value;
    return DLC_OK;
}

dlc_status dlc_environment_check_rank(const char *rank_name, long rank,
                                      const char *size_name, long size) {
    if (size == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=0 in the environment: a job has 1 or more "
                        "ranks",
                        size_name);
    if (rank >= 0 && size >= 0 && rank >= size)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=%ld and %s=%ld contradict each other: ranks count from 0, "
                        "so the last one is %ld",
                        rank_name, rank, size_name, size, size - 1);
    return DLC_OK;
}
