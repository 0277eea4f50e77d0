/* The log: messages on stderr, results on stdout, both and more as JSON lines in a
 * file, and one status line at the bottom of a terminal. Any thread may call. */
#ifndef DLC_BASE_LOG_H
#define DLC_BASE_LOG_H

#include <dlcore/plugin.h>

#include "base/json.h"

/* Lines above this level are left out (the file gets them all). Default: INFO. */
void dlc_log_level_set(dlc_log_level level);

/* Which rank of a job this process is. Events say it, and only rank 0 (as at first)
 * draws the status line. */
void dlc_log_rank_set(int rank);

/* Also writes JSON lines to the end of this file. A line that cannot be written is
 * warned of once by all processes together, and the work goes on; the next line is
 * tried anew. */
dlc_status dlc_log_file_open(const char *path);
/* DLC_ERR_IO where lines are missing, also those of processes that were forked since it
 * was opened. Nothing where no file is open. */
dlc_status dlc_log_file_close(void);

void dlc_log(dlc_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A message of several lines. People see those of `text`; a newline in any other
 * message came with a name or a value and is shown as \n, like all that could command a
 * terminal (base/human.h). */
void dlc_log_lines(dlc_log_level level, const char *text);
#define dlc_error(...) dlc_log(DLC_LOG_ERROR, __VA_ARGS__)
#define dlc_warn(...) dlc_log(DLC_LOG_WARN, __VA_ARGS__)
#define dlc_info(...) dlc_log(DLC_LOG_INFO, __VA_ARGS__)
#define dlc_debug(...) dlc_log(DLC_LOG_DEBUG, __VA_ARGS__)

/* A result: a line that a user would keep, on stdout. Left out where the level is below
 * INFO. A line that cannot be written is warned of once; the work goes on. */
void dlc_log_result(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on results go to stderr: stdout is for one JSON document. */
void dlc_log_results_to_stderr(void);
/* DLC_ERR_IO where this process could not write a result. */
dlc_status dlc_log_results_status(void);

/* One event for the JSON lines file alone: `fields` holds an open object to which
 * "event" and "time" are added; it is closed, written and freed here. Begin with
 * dlc_log_event_begin. Does nothing costly where no file is open. */
dlc_json dlc_log_event_begin(const char *event);
void dlc_log_event_end(dlc_json *fields);

/* Is stderr a terminal that likes a line redrawn? (TERM=dumb and pipes say no.) */
int dlc_log_is_terminal(void);

/* Redraws the status line (cut to the terminal's width); "" removes it. Nothing
 * where stderr is no terminal. */
void dlc_log_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
