/* The progress bar on a terminal's status line. */
#ifndef DLC_BASE_BAR_H
#define DLC_BASE_BAR_H

/* Draws "[====....]  45 %  MIDDLE  left 1:07". `done`: 0 .. 1. Does nothing if stderr
 * is not a terminal; dlc_log_status("%s", "") removes the bar. */
void dlc_bar_draw(double done, double seconds_left, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
