/* The table of bad inputs. */
#ifndef TEST_FAULTS_CASES_H
#define TEST_FAULTS_CASES_H

#include <stddef.h>

typedef struct fault_case {
    const char *what;         /* for the report */
    const char *net;          /* text of net.ini; NULL: the good one */
    const char *arguments[8]; /* "@" stands for net.ini's path */
    int exit_code;
    const char *message; /* stderr contains it */
} fault_case;

extern const fault_case faults[];
extern const size_t fault_count;

/* The net that the good net.ini has. Its data files are made by files_write. */
extern const char good_net[];

#endif
