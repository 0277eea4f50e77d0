/* Compares the time of iterations with what they usually take. */
#include "train/slowdown.h"

#include <math.h>

/* Slow is an iteration that takes this many times as long; half of that is usual. */
static const double slow_factor = 3, usual_factor = 1.5;
/* Seconds that slow iterations in a row have to cost before there is a warning. */
static const double worth_a_warning = 5;
/* Iterations in a row that there must be for any news. */
enum { LEAST_SLOW = 2, LEAST_USUAL = 3, POWER = 8 };

float dlc_slowdown_power(double seconds) {
    double most = 1e4; /* whose power a float can hold */
    return (float)pow(fmin(fmax(seconds, 0), most), POWER);
}

double dlc_slowdown_root(float sum) {
    return pow((double)sum, 1.0 / POWER);
}

static void add_iteration_time(const dlc_iteration_time *time,
                               dlc_iteration_time *sum) {
    sum->seconds += time->seconds;
    sum->computed += time->computed;
    sum->data += time->data;
}

static dlc_iteration_time mean_of(const dlc_iteration_time *sum, int32_t count) {
    return (dlc_iteration_time){.seconds = sum->seconds / count,
                                .computed = sum->computed / count,
                                .data = sum->data / count};
}

/* The usual time can only fall, so that a link which becomes slower step by step is
 * noticed, too. */
static void learn(dlc_slowdown *slowdown, const dlc_iteration_time *time) {
    add_iteration_time(time, &slowdown->sum);
    if (++slowdown->count < DLC_SLOWDOWN_WINDOW)
        return;
    dlc_iteration_time mean = mean_of(&slowdown->sum, slowdown->count);
    if (slowdown->usual.seconds <= 0 || mean.seconds < slowdown->usual.seconds)
        slowdown->usual = mean;
    slowdown->sum = (dlc_iteration_time){0};
    slowdown->count = 0;
}

static void begin_row(dlc_slowdown *slowdown) {
    slowdown->row = 0;
    slowdown->slow = (dlc_iteration_time){0};
}

static void say_slow(const dlc_slowdown *slowdown, const char *transport,
                     dlc_text *text) {
    const dlc_iteration_time *usual = &slowdown->usual;
    dlc_iteration_time now = mean_of(&slowdown->slow, slowdown->row);
    double more = now.seconds - usual->seconds, half = more / 2;
    dlc_text_add(text,
                 "iterations take %.3g s, %.3g times as long as before (%.3g s): ",
                 now.seconds, now.seconds / usual->seconds, usual->seconds);
    if (now.data - usual->data >= half)
        dlc_text_add(text,
                     "%.3g s of that a rank waits for samples; is the disk, or the "
                     "network that the data is read from, slower?",
                     now.data);
    else if (now.computed - usual->computed >= half || !transport)
        dlc_text_add(text,
                     "computing takes %.3g s on the slowest rank (%.3g s before); is "
                     "another program running there, or is the CPU throttled?",
                     now.computed, usual->computed);
    else if (now.computed <= 0)
        dlc_text_add(text,
                     "either the exchange over transport %s or the device has become "
                     "slower; is a link down to a lower rate?",
                     transport);
    else
        dlc_text_add(text,
                     "%.3g s of that the ranks wait for the exchange over transport "
                     "%s, while computing takes %.3g s as before; is a link down to a "
                     "lower rate, or used by others?",
                     now.seconds - now.computed - now.data, transport, now.computed);
}

static dlc_slowdown_news note_while_usual(dlc_slowdown *slowdown,
                                          const dlc_iteration_time *time,
                                          const char *transport, dlc_text *text) {
    double usual = slowdown->usual.seconds;
    if (usual <= 0 || time->seconds < slow_factor * usual) {
        begin_row(slowdown);
        learn(slowdown, time);
        return DLC_SLOWDOWN_NONE;
    }
    slowdown->row++;
    add_iteration_time(time, &slowdown->slow);
    if (slowdown->row < LEAST_SLOW ||
        slowdown->slow.seconds - slowdown->row * usual < worth_a_warning)
        return DLC_SLOWDOWN_NONE;
    say_slow(slowdown, transport, text);
    slowdown->is_slow = 1;
    begin_row(slowdown);
    return DLC_SLOWDOWN_BEGINS;
}

static dlc_slowdown_news note_while_slow(dlc_slowdown *slowdown,
                                         const dlc_iteration_time *time,
                                         dlc_text *text) {
    if (time->seconds >= usual_factor * slowdown->usual.seconds) {
        begin_row(slowdown);
        return DLC_SLOWDOWN_NONE;
    }
    add_iteration_time(time, &slowdown->slow);
    if (++slowdown->row < LEAST_USUAL)
        return DLC_SLOWDOWN_NONE;
    dlc_text_add(text, "iterations are as fast as before again: %.3g s",
                 slowdown->slow.seconds / slowdown->row);
    slowdown->is_slow = 0;
    begin_row(slowdown);
    return DLC_SLOWDOWN_ENDS;
}

dlc_slowdown_news dlc_slowdown_note(dlc_slowdown *slowdown,
                                    const dlc_iteration_time *time,
                                    const char *transport, dlc_text *text) {
    return slowdown->is_slow ? note_while_slow(slowdown, time, text)
                             : note_while_usual(slowdown, time, transport, text);
}
