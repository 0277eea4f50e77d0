/* The log: messages on stderr, results on stdout, everything as JSON lines in a file,
 * and a status line at the bottom of a terminal. Any thread. */
#ifndef DLC_BASE_LOG_H
#define DLC_BASE_LOG_H

#include <dlcore/plugin.h>

#include "base/json.h"

/* Messages above this level are not shown (the file gets them all). Default: INFO. */
void dlc_log_level_set(dlc_log_level level);

/* Sets the rank of this process, for events; only rank 0 (the default) shows the status
 * line. */
void dlc_log_rank_set(int rank);

/* Appends JSON lines to this file from now on. If a line cannot be written, all
 * processes together warn once, and continue; later lines are tried again. */
dlc_status dlc_log_file_open(const char *path);
/* Closes the file. DLC_ERR_IO if lines are missing, also those of processes forked
 * since it was opened. DLC_OK if no file is open. */
dlc_status dlc_log_file_close(void);

void dlc_log(dlc_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A message of several lines. In any other message, a newline must have come with a
 * name or a value and is shown as \n, like everything that could command a terminal
 * (base/escape.h). */
void dlc_log_lines(dlc_log_level level, const char *text);
#define dlc_error(...) dlc_log(DLC_LOG_ERROR, __VA_ARGS__)
#define dlc_warn(...) dlc_log(DLC_LOG_WARN, __VA_ARGS__)
#define dlc_info(...) dlc_log(DLC_LOG_INFO, __VA_ARGS__)
#define dlc_debug(...) dlc_log(DLC_LOG_DEBUG, __VA_ARGS__)

/* A result: a line for the user to keep, on stdout. Not shown at levels below INFO. If
 * it cannot be written, this warns once and continues. */
void dlc_log_result(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A result that was put together; if memory ran out for it, dlc_log_results_status says
 * that it is missing. */
void dlc_log_result_text(const dlc_text *text);
/* Sends results to stderr from now on: stdout is for one JSON document. */
void dlc_log_results_to_stderr(void);
/* DLC_ERR_IO if this process could not write a result. */
dlc_status dlc_log_results_status(void);

/* Writes an event to the log file only. begin opens an object with "time", "rank" and
 * "event"; the caller adds fields; end closes, writes and frees it. Cheap if no file is
 * open. */
dlc_json dlc_log_event_begin(const char *event);
void dlc_log_event_end(dlc_json *fields);

/* Whether stderr is a terminal that can redraw a line (TERM is set, and not to dumb),
 * and this is rank 0. */
int dlc_log_is_terminal(void);

/* Redraws the status line, cut to the width of the terminal; "" removes it. Does
 * nothing if stderr is not a terminal. */
void dlc_log_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
