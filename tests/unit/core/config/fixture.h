/* Fixture of the tests of core/config: a folder with a net.ini, option tables of every
 * type, and a way to capture what a report logs. */
#ifndef TESTS_CONFIG_FIXTURE_H
#define TESTS_CONFIG_FIXTURE_H

#include <check.h>
#include <stddef.h>

#include "config/config.h"

/* Check fixture: makes a temporary folder the current one; teardown removes it. */
void folder_setup(void);
void folder_teardown(void);

void write_bytes(const char *name, const void *bytes, size_t length);
void write_text(const char *name, const char *text);

/* [net] [data] [data.test] [solver] [train] */
extern const char *const reserved[];
/* `type` and `input`, for layers. */
extern const dlc_option core_table[];
/* One option of each type, none required. */
extern const dlc_option layer_table[];
/* base_lr is required. */
extern const dlc_option solver_table[];

/* Loads net.ini, and makes and frees the settings of all sections: [solver] with
 * solver_table, the others with core_table and layer_table. */
dlc_status check_net(const char *const *sets, size_t nsets, dlc_problems *problems);

/* Calls dlc_problems_report and captures what it logs in `lines`, cut to `room`. */
dlc_status report(dlc_problems *problems, char *lines, size_t room);

/* Expects a report of exactly one mistake, on one line, at `place` ("net.ini:2",
 * "--set") and with `phrase`. `what` is for failure messages. */
void check_report(dlc_problems *problems, const char *what, const char *place,
                  const char *phrase);

#endif
