/* Replaces stdout and stderr by FILEs of our own, which escape what is written and pass
 * it to the descriptor. */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/write.h"

/* A descriptor, and the first bytes of a character that is still incomplete. */
typedef struct stream {
    int fd;
    size_t held;
    char part[4];
} stream;

enum { OUT, ERROR, NOISE }; /* NOISE: stdout while OUT is reserved */

static stream streams[] = {
    {.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}, {.fd = STDERR_FILENO}};
static FILE *reserved;
static pid_t guarded;
static int lost; /* errno of the first failure on stdout */

static int write_all(const stream *s, const char *bytes, size_t length) {
    if (dlc_write_all(s->fd, bytes, length) == length)
        return 0;
    if (s == &streams[OUT] && !lost)
        lost = errno;
    return -1;
}

/* Escapes `length` bytes into `shown`, which has room for DLC_ESCAPE_BYTES of each.
 * Returns how many were consumed: an incomplete character is left, unless this is the
 * `end`. */
static size_t escape(const char *text, size_t length, int end, char *shown,
                     size_t *used) {
    size_t taken = 0;
    *used = 0;
    while (taken < length) {
        uint32_t code;
        size_t bytes = dlc_utf8_next(text + taken, length - taken, &code);
        if (!bytes && !end)
            break;
        bytes += !bytes;
        if (text[taken] == '\n' || text[taken] == '\t')
            shown[(*used)++] = text[taken];
        else
            *used += dlc_escape_char(shown + *used, text + taken, bytes, code);
        taken += bytes;
    }
    return taken;
}

static ssize_t write_stream(void *context, const char *bytes, size_t length) {
    enum { PIECE = 256 };
    stream *s = context;
    char text[PIECE], shown[PIECE * DLC_ESCAPE_BYTES];
    size_t more, used;
    for (size_t given = 0; given < length; given += more) {
        more = length - given < PIECE - s->held ? length - given : PIECE - s->held;
        memcpy(text, s->part, s->held);
        memcpy(text + s->held, bytes + given, more);
        size_t there = s->held + more, taken = escape(text, there, 0, shown, &used);
        s->held = there - taken; /* fewer than 4, the longest character */
        memcpy(s->part, text + taken, s->held);
        if (write_all(s, shown, used) != 0)
            return 0;
    }
    return (ssize_t)length;
}

/* Runs at exit, also of forked ranks, whose exit code tells their launcher. */
static void finish(int code, void *context) {
    (void)context;
    int failed = fflush(dlc_tool_out()) != 0;
    (void)fflush(stdout);
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        char shown[sizeof streams->part * DLC_ESCAPE_BYTES];
        size_t used;
        (void)escape(streams[i].part, streams[i].held, 1, shown, &used);
        (void)write_all(&streams[i], shown, used);
        streams[i].held = 0;
    }
    if (!failed && !ferror(dlc_tool_out()) && !lost)
        return;
    if (getpid() != guarded || code != 0)
        return;
    fprintf(stderr, "error: stdout could not be written: %s\n",
            strerror(lost ? lost : EIO)); // NOLINT(concurrency-mt-unsafe)
    _exit(1);
}

static FILE *open_stream(stream *s, int mode) {
    FILE *file = fopencookie(s, "w", (cookie_io_functions_t){.write = write_stream});
    if (file)
        (void)setvbuf(file, NULL, mode, mode == _IONBF ? 0 : BUFSIZ);
    return file;
}

/* A descriptor that was closed before we started would be that of the next file that is
 * opened, which would then receive what is printed. Writing to these ones fails. */
static void occupy_closed(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

dlc_status dlc_tool_guard_streams(void) {
    occupy_closed();
    FILE *out = open_stream(&streams[OUT], isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    FILE *err = out ? open_stream(&streams[ERROR], _IONBF) : NULL;
    if (!err)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    stdout = out;
    stderr = err;
    guarded = getpid();
    if (on_exit(finish, NULL) != 0)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    return DLC_OK;
}

FILE *dlc_tool_out(void) {
    return reserved ? reserved : stdout;
}

dlc_status dlc_tool_reserve_stdout(void) {
    if (reserved || !guarded)
        return DLC_OK;
    FILE *noise = open_stream(&streams[NOISE], _IOLBF);
    if (!noise)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)fflush(stdout);
    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return dlc_fail(DLC_ERR_IO, "stdout cannot be kept for the document: %s",
                        strerror(errno)); // NOLINT(concurrency-mt-unsafe): one thread
    streams[OUT].fd = fd;
    reserved = stdout;
    stdout = noise;
    return DLC_OK;
}

int dlc_tool_columns(void) {
    struct winsize window;
    int fd = streams[OUT].fd;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}
