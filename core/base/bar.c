/* Draws progress bars. */
#include "base/bar.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "base/log.h"

#define BAR_WIDTH 10 /* so that 80 columns show all of a training's line */

static void format_duration(double seconds, char *text, size_t bytes) {
    int64_t whole = (int64_t)(seconds + 0.5);
    if (seconds < 0)
        snprintf(text, bytes, "-:--");
    else if (whole >= 3600)
        snprintf(text, bytes, "%" PRId64 ":%02d:%02d", whole / 3600,
                 (int)(whole / 60 % 60), (int)(whole % 60));
    else
        snprintf(text, bytes, "%d:%02d", (int)(whole / 60), (int)(whole % 60));
}

void dlc_bar_draw(double done, double seconds_left, const char *format, ...) {
    char bar[BAR_WIDTH + 1], left[32], rest[160];
    va_list arguments;
    va_start(arguments, format);
    (void)dlc_print(rest, sizeof rest, format, arguments);
    va_end(arguments);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '=', (size_t)(done * BAR_WIDTH));
    bar[BAR_WIDTH] = '\0';
    format_duration(seconds_left, left, sizeof left);
    dlc_log_status("[%s] %3.0f %%  left %s  %s", bar, 100 * done, left, rest);
}
