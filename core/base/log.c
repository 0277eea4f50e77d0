/* Writes messages, results and the status line to stderr and stdout, and events to the
 * log file. */
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/memory.h"
#include "base/write.h"

#define LINE_BYTES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int threshold = DLC_LOG_INFO;
static _Atomic int file = -1;
static _Atomic int results_fd = STDOUT_FILENO;
static _Atomic int
    results_failed; /* errno of the first result that could not be written */
static _Atomic int job_rank;
static int status_shown; /* a status line is on the terminal */

void dlc_log_level_set(dlc_log_level level) {
    atomic_store(&threshold, (int)level);
}

void dlc_log_rank_set(int rank) {
    atomic_store(&job_rank, rank);
}

/* Returns 0 or an errno; *left becomes what was not written. */
static int write_all(int fd, const char *bytes, size_t *left) {
    *left -= dlc_write_all(fd, bytes, *left);
    return *left ? errno : 0;
}

/* ---- The log file ------------------------------------------------------------ */

/* Errors of the log file, in memory shared by forked ranks: one of them warns for all,
 * and the launching process knows at the end. */
typedef struct file_state {
    _Atomic int failed;     /* errno of the first failure */
    _Atomic int incomplete; /* the last line is incomplete */
} file_state;

static file_state *file_shared;
static char *file_path;

/* Whether the file ends in the middle of a line, as after a full disk. */
static int is_incomplete(const char *path, int opened) {
    struct stat about;
    char last = '\n';
    if (fstat(opened, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0)
        return 0;
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    if (reader < 0)
        return 0; /* writable, but not readable */
    int incomplete = pread(reader, &last, 1, about.st_size - 1) == 1 && last != '\n';
    close(reader);
    return incomplete;
}

dlc_status dlc_log_file_open(const char *path) {
    char *copy = dlc_strdup(path);
    if (!copy)
        return DLC_ERR_NOMEM;
    if (!file_shared) {
        void *memory = mmap(NULL, sizeof *file_shared, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        file_shared = memory == MAP_FAILED ? NULL : memory;
    }
    int opened = file_shared
                     ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
                     : -1;
    if (opened < 0) {
        dlc_free(copy);
        return dlc_fail(DLC_ERR_IO, "log file %s: %s", path, strerror(errno));
    }
    int old = atomic_exchange(&file, opened);
    if (old >= 0)
        close(old);
    dlc_free(file_path);
    file_path = copy;
    atomic_store(&file_shared->failed, 0);
    atomic_store(&file_shared->incomplete, is_incomplete(path, opened));
    return DLC_OK;
}

dlc_status dlc_log_file_close(void) {
    dlc_status status = DLC_OK;
    int old = atomic_exchange(&file, -1);
    if (old < 0)
        return DLC_OK;
    int none = 0;
    if (close(old) != 0) /* network file systems report a full disk here */
        atomic_compare_exchange_strong(&file_shared->failed, &none, errno);
    int failed = atomic_load(&file_shared->failed);
    if (failed)
        status = dlc_fail(DLC_ERR_IO, "log file %s is incomplete: %s", file_path,
                          strerror(failed));
    dlc_free(file_path);
    file_path = NULL;
    return status;
}

static void write_to_file(int fd, const dlc_text *line) {
    int none = 0, error = 0;
    size_t left = 1;
    if (atomic_exchange(&file_shared->incomplete, 0) && write_all(fd, "\n", &left) != 0)
        atomic_store(&file_shared->incomplete, 1);
    left = line->length;
    error = line->failed ? ENOMEM : write_all(fd, line->bytes, &left);
    if (!error)
        return;
    if (left < line->length)
        atomic_store(&file_shared->incomplete, 1);
    if (atomic_compare_exchange_strong(&file_shared->failed, &none, error))
        dlc_warn("log file %s: %s; events are lost until it can be written again",
                 file_path, strerror(error));
}

/* ---- Messages ---------------------------------------------------------------- */

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
        is = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
        atomic_store(&known, is);
    }
    return is && atomic_load(&job_rank) == 0;
}

/* Colours of errors and warnings, where a terminal shows them (https://no-color.org).
 */
static const char *color_of(dlc_log_level level) {
    static _Atomic int known = -1;
    int is = atomic_load(&known);
    if (is < 0) {
        const char *term = getenv("TERM"), *unwanted = getenv("NO_COLOR");
        is = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0 &&
             !(unwanted && *unwanted);
        atomic_store(&known, is);
    }
    return !is                      ? ""
           : level == DLC_LOG_ERROR ? "\033[1;31m"
           : level == DLC_LOG_WARN  ? "\033[1;33m"
                                    : "";
}

static void write_stderr(dlc_log_level level, const char *message, int lines) {
    char shown[LINE_BYTES], line[LINE_BYTES + 128];
    /* Information has no prefix; warnings and errors are marked. */
    int plain = level == DLC_LOG_INFO;
    dlc_escape_text(shown, sizeof shown, message, lines);
    pthread_mutex_lock(&lock);
    const char *color = color_of(level);
    int length = snprintf(line, sizeof line, "%s%s%s%s%s%s\n",
                          status_shown ? "\r\033[K" : "", color,
                          plain ? "" : level_name(level), plain ? "" : ": ",
                          *color ? "\033[m" : "", shown);
    if (length >= (int)sizeof line)
        length = (int)sizeof line - 1;
    status_shown = 0;
    size_t left = (size_t)length;
    write_all(STDERR_FILENO, line,
              &left); /* errors are ignored: there is nowhere to report them */
    pthread_mutex_unlock(&lock);
}

static void log_to_file(dlc_log_level level, const char *message) {
    dlc_json event = dlc_log_event_begin("message");
    dlc_json_string(&event, "level", level_name(level));
    dlc_json_string(&event, "text", message);
    dlc_log_event_end(&event);
}

void dlc_log(dlc_log_level level, const char *format, ...) {
    int to_file = atomic_load(&file) >= 0;
    int to_stderr = (int)level <= atomic_load(&threshold);
    if (!to_file && !to_stderr)
        return;
    char message[LINE_BYTES];
    va_list args;
    va_start(args, format);
    dlc_print(message, sizeof message, format, args);
    va_end(args);
    if (to_stderr)
        write_stderr(level, message, 0);
    if (to_file)
        log_to_file(level, message);
}

void dlc_log_lines(dlc_log_level level, const char *text) {
    if ((int)level <= atomic_load(&threshold))
        write_stderr(level, text, 1);
    if (atomic_load(&file) >= 0)
        log_to_file(level, text);
}

/* ---- Results ----------------------------------------------------------------- */

void dlc_log_results_to_stderr(void) {
    atomic_store(&results_fd, STDERR_FILENO);
}

static void write_result(const char *message) {
    char line[LINE_BYTES + 2];
    int none = 0, fd = atomic_load(&results_fd);
    size_t left = 0;
    if (fd == STDERR_FILENO) {
        write_stderr(DLC_LOG_INFO, message, 0);
        return;
    }
    size_t length = dlc_escape_text(line, LINE_BYTES, message, 0);
    line[length++] = '\n';
    pthread_mutex_lock(&lock);
    if (status_shown) {
        left = strlen("\r\033[K");
        write_all(STDERR_FILENO, "\r\033[K", &left);
        status_shown = 0;
    }
    left = length;
    int error = write_all(fd, line, &left);
    pthread_mutex_unlock(&lock);
    if (error && atomic_compare_exchange_strong(&results_failed, &none, error))
        dlc_warn("results cannot be written to stdout: %s; continuing",
                 strerror(error));
}

void dlc_log_result(const char *format, ...) {
    char message[LINE_BYTES];
    va_list args;
    va_start(args, format);
    dlc_print(message, sizeof message, format, args);
    va_end(args);
    if (atomic_load(&threshold) >= (int)DLC_LOG_INFO)
        write_result(message);
    if (atomic_load(&file) >= 0)
        log_to_file(DLC_LOG_INFO, message);
}

void dlc_log_result_text(const dlc_text *text) {
    int none = 0;
    if (text->failed)
        atomic_compare_exchange_strong(&results_failed, &none, ENOMEM);
    dlc_log_result("%s", dlc_text_string(text));
}

dlc_status dlc_log_results_status(void) {
    int error = atomic_load(&results_failed);
    return error ? dlc_fail(DLC_ERR_IO, "results are missing on stdout: %s",
                            strerror(error))
                 : DLC_OK;
}

/* ---- Events and the status line ---------------------------------------------- */

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
        write_to_file(fd, &fields->text);
    }
    dlc_text_free(&fields->text);
}

void dlc_log_status(const char *format, ...) {
    if (!dlc_log_is_terminal())
        return;
    char given[1024], message[1024];
    va_list args;
    va_start(args, format);
    dlc_print(given, sizeof given, format, args);
    va_end(args);
    dlc_escape_text(message, sizeof message, given, 0);
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
    size_t left = (size_t)length;
    write_all(STDERR_FILENO, line, &left);
    pthread_mutex_unlock(&lock);
}
