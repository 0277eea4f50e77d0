/* What the subcommands that take a net.ini have in common: the options that are
 * another way to write --set, and how they end. */
#ifndef DLC_TOOLS_OPTIONS_H
#define DLC_TOOLS_OPTIONS_H

#include <argp.h>

#include "base/json.h"
#include "job/job.h"
#include "train/setup.h"

/* "section.key=value", in the order given; what --set and its shorthands add up to.
 * Start with {0}. */
typedef struct dlc_tool_sets {
    char **list;
    size_t count;
    int failed; /* memory ran out */
} dlc_tool_sets;

/* Takes `text` over; NULL is one that there was no memory for. */
void dlc_tool_sets_add(dlc_tool_sets *sets, char *text);
void dlc_tool_sets_free(dlc_tool_sets *sets);

typedef struct dlc_tool_options {
    const char *path; /* net.ini */
    dlc_tool_sets sets;
    const char *log_file;
    int json;
    /* Optional, set by the command itself: told each mistake, besides the log. */
    void (*tell)(void *context, const dlc_mistake *mistake);
    void *tell_context;
} dlc_tool_options;

/* The parsers of what they have in common, for argp.children: net.ini, --set, --json,
 * --log-file, -v and -q; and the options of a job (--ranks, --transport, --seed, ...).
 * The command's own parser hands them the input at ARGP_KEY_INIT. */
extern const struct argp_child dlc_tool_children[];
void dlc_tool_share_input(struct argp_state *state, dlc_tool_options *options);

/* Parses a command line; what is wrong with it ends the process with exit code 2,
 * --help with 0, and a lack of memory with 1. */
void dlc_tool_parse(const struct argp *argp, int argc, char **argv, void *input);

/* The value of --name, 1 to `most`; else the end, as above. */
int dlc_tool_parse_count(const char *name, const char *argument, int most,
                         struct argp_state *state);

/* The value of --plot, whose name must be that of an SVG; else the end, as above. */
const char *dlc_tool_parse_plot(const char *argument, struct argp_state *state);

/* Opens the log file and the setup, with the data of `phases` (DLC_PHASE_ bits). */
dlc_status dlc_tool_setup(const dlc_tool_options *options, unsigned phases,
                          dlc_setup **setup);

/* Runs `main` as every rank that the setup asks for. */
dlc_status dlc_tool_run(const dlc_setup *setup, dlc_job_main main, void *argument,
                        int *exit_code);

/* Logs the detail sentence of a failure and gives the exit code. */
int dlc_tool_end(dlc_status status);

/* Closes and frees all that a command opened; the exit code to end it with: the job's,
 * or that of a failure, which is logged. */
int dlc_tool_close(dlc_tool_options *options, dlc_setup *setup, dlc_status status,
                   int exit_code);

/* The same as dlc_tool_end for a rank; what several ranks fail for is said once
 * (dlc_job_fails). */
int dlc_tool_end_rank(dlc_job *job, dlc_status status);

/* Prints a finished text, or document, on stdout; frees it. */
dlc_status dlc_tool_print_text(dlc_text *text);
dlc_status dlc_tool_print_json(dlc_json *json);

#endif
