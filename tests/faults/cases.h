/* The table of bad inputs that test_bad_input.c runs. */
#ifndef TEST_FAULTS_CASES_H
#define TEST_FAULTS_CASES_H

#include <stddef.h>

typedef struct fault_case {
    const char *what;         /* for the report of a failed check */
    const char *net;          /* text of net.ini; NULL: the good one */
    const char *arguments[8]; /* "@" is replaced by the path of net.ini */
    int exit_code;
    const char *message; /* stderr contains it */
} fault_case;

extern const fault_case faults[];
extern const size_t fault_count;

/* The text of the good net.ini. Its data files are written by files_write. */
extern const char good_net[];

#endif
