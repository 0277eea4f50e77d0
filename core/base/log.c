/* See log.h. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int threshold = DLC_LOG_INFO;
static _Atomic int file = -1;
static _Atomic int job_rank;
static int status_shown; /* a status line stands at the cursor */

void dlc_log_level_set(dlc_log_level level) {
    atomic_store(&threshold, (int)level);
}

void dlc_log_rank_set(int rank) {
    atomic_store(&job_rank, rank);
}

dlc_status dlc_log_file_open(const char *path) {
    int opened = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (opened < 0)
        return dlc_fail(DLC_ERR_IO, "log file %s: %s", path, strerror(errno));
    int old = atomic_exchange(&file, opened);
    if (old >= 0)
        close(old);
    return DLC_OK;
}

void dlc_log_file_close(void) {
    int old = atomic_exchange(&file, -1);
    if (old >= 0)
        close(old);
}

/* One write a line: lines of several processes stay whole. */
static void write_all(int fd, const char *bytes, size_t length) {
    while (length) {
        ssize_t done = write(fd, bytes, length);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return; /* nowhere to complain */
        }
        bytes += done;
        length -= (size_t)done;
    }
}

static const char *level_name(dlc_log_level level) {
    switch (level) {
    case DLC_LOG_ERROR:
        return "error";
    case DLC_LOG_WARN:
        return "warning";
    case DLC_LOG_INFO:
        return "info";
    case DLC_LOG_DEBUG:
        break;
    }
    return "debug";
}

int dlc_log_is_terminal(void) {
    static _Atomic int known = -1;
    int is = atomic_load(&known);
    if (is < 0) {
        const char *term = getenv("TERM");
        is = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
        atomic_store(&known, is);
    }
    return is && atomic_load(&job_rank) == 0;
}

static void write_human(dlc_log_level level, const char *message) {
    char line[LINE_BYTES + 128];
    /* Information speaks for itself; what is wrong says that it is. */
    int plain = level == DLC_LOG_INFO;
    pthread_mutex_lock(&lock);
    int length = snprintf(line, sizeof line, "%s%s%s%s\n",
                          status_shown ? "\r\033[K" : "",
                          plain ? "" : level_name(level), plain ? "" : ": ", message);
    if (length >= (int)sizeof line)
        length = (int)sizeof line - 1;
    status_shown = 0;
    write_all(STDERR_FILENO, line, (size_t)length);
    pthread_mutex_unlock(&lock);
}

void dlc_log(dlc_log_level level, const char *format, ...) {
    int to_file = atomic_load(&file) >= 0;
    int to_human = (int)level <= atomic_load(&threshold);
    if (!to_file && !to_human)
        return;
    char message[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (to_human)
        write_human(level, message);
    if (to_file) {
        dlc_json event = dlc_log_event_begin("message");
        dlc_json_string(&event, "level", level_name(level));
        dlc_json_string(&event, "text", message);
        dlc_log_event_end(&event);
    }
}

dlc_json dlc_log_event_begin(const char *event) {
    dlc_json json = {0};
    if (atomic_load(&file) < 0)
        return json;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    dlc_json_object(&json, NULL);
    dlc_json_number(&json, "time", (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    dlc_json_int(&json, "rank", atomic_load(&job_rank));
    dlc_json_string(&json, "event", event);
    return json;
}

void dlc_log_event_end(dlc_json *fields) {
    int fd = atomic_load(&file);
    if (fd >= 0) {
        dlc_json_end_object(fields);
        dlc_text_add(&fields->text, "\n");
        if (!fields->text.failed)
            write_all(fd, fields->text.bytes, fields->text.length);
    }
    dlc_text_free(&fields->text);
}

void dlc_log_status(const char *format, ...) {
    if (!dlc_log_is_terminal())
        return;
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    struct winsize size;
    size_t width = 79;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        width = (size_t)size.ws_col - 1u;
    if (width < sizeof message)
        message[width] = '\0';
    char line[sizeof message + 16];
    pthread_mutex_lock(&lock);
    int length = snprintf(line, sizeof line, "\r\033[K%s", message);
    status_shown = message[0] != '\0';
    write_all(STDERR_FILENO, line, (size_t)length);
    pthread_mutex_unlock(&lock);
}
