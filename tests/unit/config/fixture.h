/* What the tests of core/config share: a folder with a net.ini, option tables with
 * every type, and the lines that a report logs. */
#ifndef TESTS_CONFIG_FIXTURE_H
#define TESTS_CONFIG_FIXTURE_H

#include <check.h>
#include <stddef.h>

#include "config/config.h"

/* A fresh current folder, removed at the end. */
void folder_setup(void);
void folder_teardown(void);

void write_bytes(const char *name, const void *bytes, size_t length);
void write_text(const char *name, const char *text);

/* [net] [data] [data.test] [solver] [train] */
extern const char *const standing[];
/* `type` and `input`, for layers. */
extern const dlc_option core_table[];
/* One option of each type, none required. */
extern const dlc_option layer_table[];
/* base_lr is required. */
extern const dlc_option solver_table[];

/* Loads net.ini, makes (and frees) the settings of all its sections: [solver] with
 * solver_table, others with the core's and the layers'. */
dlc_status check_net(const char *const *sets, size_t nsets, dlc_problems *problems);

/* dlc_problems_report, with what it logs in `lines`, cut to `room`. */
dlc_status report(dlc_problems *problems, char *lines, size_t room);

/* The report of one mistake: exactly one line, at its place ("net.ini:2", "--set"),
 * with its phrase. `what` is for the reader of a failed test. */
void check_report(dlc_problems *problems, const char *what, const char *place,
                  const char *phrase);

/* Runs suite "config.<name>" of one case: number of failures. */
int run_case(const char *name, TCase *tcase);

#endif
