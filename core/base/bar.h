/* The progress bar on a terminal's status line. */
#ifndef DLC_BASE_BAR_H
#define DLC_BASE_BAR_H

/* Draws "[====......]  45 %  left 1:07  REST": a narrow terminal cuts the least
 * important off. `done`: 0 .. 1; `seconds_left`: negative if unknown. Does nothing if
 * stderr is not a terminal; dlc_log_status("%s", "") removes the bar. */
void dlc_bar_draw(double done, double seconds_left, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
