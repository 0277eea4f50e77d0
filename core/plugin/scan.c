/* Runs the inspecting child and receives its reports. For every file it sends a message
 * after opening it, and another when load() has returned: a length and a packed report,
 * of which the last counts. */
#include "plugin/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "plugin/calls.h"
#include "plugin/check.h"
#include "plugin/object.h"
#include "plugin/report.h"

/* Without a persistence daemon, asking a driver for its devices takes 10 s and more. */
#define TIMEOUT_MS 60000
#define NOTICE_MS 3000 /* after this time the user is told what is waited for */
#define MESSAGE_MAX (64u << 20)

static int64_t timeout_ms = TIMEOUT_MS;

int64_t dlc_scan_timeout(int64_t ms) {
    int64_t before = timeout_ms;
    timeout_ms = ms;
    return before;
}

/* ---- The child --------------------------------------------------------------- */

static void send_all(int fd, const void *bytes, size_t size) {
    for (const char *next = bytes; size;) {
        ssize_t sent = write(fd, next, size);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            _exit(1);
        next += sent;
        size -= (size_t)sent;
    }
}

/* A message of length 0 means out of memory. */
static void send_no_memory(int fd) {
    const uint64_t size = 0;
    send_all(fd, &size, sizeof size);
    _exit(1);
}

static void send_report(int fd, const dlc_report *report) {
    dlc_text bytes = {0};
    dlc_report_pack(report, &bytes);
    if (bytes.failed)
        send_no_memory(fd);
    const uint64_t size = bytes.length;
    send_all(fd, &size, sizeof size);
    send_all(fd, bytes.bytes, size);
    dlc_text_free(&bytes);
}

static char *keep_detail(int fd, dlc_status rc) {
    char *detail = rc == DLC_ERR_NOMEM ? NULL : dlc_strdup(dlc_detail());
    if (!detail)
        send_no_memory(fd);
    return detail;
}

static void check_features(int fd, const dlc_plugin *plugin, dlc_report *report) {
    report->feature = dlc_alloc(report->plugin.features, sizeof *report->feature);
    if (!report->feature)
        send_no_memory(fd);
    const dlc_feature *feature = plugin->features;
    for (size_t i = 0; i < report->plugin.features; i++, feature = DLC_NEXT(feature)) {
        dlc_feature_entry *entry = &report->feature[i];
        *entry = (dlc_feature_entry){.kind = feature->kind,
                                     .name = feature->name,
                                     .help = feature->help,
                                     .device = feature->device,
                                     .caps = feature->caps};
        dlc_status rc = dlc_feature_check(feature, &entry->state);
        if (rc != DLC_OK) {
            entry->reason = keep_detail(fd, rc);
            continue;
        }
        entry->state = DLC_ENTRY_USABLE;
        entry->offers = dlc_calls_offered(feature);
    }
}

static void free_report(dlc_report *report) {
    for (size_t i = 0; report->feature && i < report->plugin.features; i++)
        dlc_free((void *)report->feature[i].reason);
    dlc_free(report->feature);
    dlc_free((void *)report->plugin.reason);
}

static void inspect(int fd, const dlc_scan_file *file, int load) {
    dlc_report report = {0};
    const dlc_plugin *plugin = NULL;
    dlc_status rc = dlc_object_open(file->path, &file->info, &plugin);
    /* An error of the loader may be the fault of another library. */
    report.cacheable = rc == DLC_OK;
    if (rc == DLC_OK)
        rc = dlc_plugin_check(file->path, plugin, &report.plugin.features);
    if (rc != DLC_OK) {
        report.plugin.state = DLC_ENTRY_REFUSED;
        report.plugin.reason = keep_detail(fd, rc);
        send_report(fd, &report);
        free_report(&report);
        return;
    }
    report.plugin.state = DLC_ENTRY_UNTRIED;
    report.plugin.name = plugin->name;
    report.plugin.version = plugin->version;
    report.plugin.license = plugin->license;
    report.plugin.abi_minor = plugin->abi_minor;
    check_features(fd, plugin, &report);
    send_report(fd, &report);
    if (load) {
        rc = dlc_object_load(plugin);
        report.plugin.state = rc == DLC_OK ? DLC_ENTRY_USABLE : DLC_ENTRY_UNAVAILABLE;
        report.plugin.reason = rc == DLC_OK ? NULL : keep_detail(fd, rc);
        report.cacheable = rc == DLC_OK; /* a driver may be installed later */
        send_report(fd, &report);
    }
    free_report(&report);
}

/* Ends the child if a plugin calls exit(): the exit handlers of this process must not
 * run. */
static void exit_child(void) {
    _exit(0);
}

/* Isolates the child: nothing that a plugin does may reach the terminal, a file or a
 * handler of this process, and the child does not outlive it. */
static void isolate_child(pid_t parent) {
    const struct rlimit no_core = {0, 0};
    sigset_t none;
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    dlc_log_file_close();
    (void)atexit(exit_child);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
    if (getppid() != parent)
        _exit(1);
}

/* ---- The parent -------------------------------------------------------------- */

typedef struct scanner {
    pid_t pid;
    int fd; /* the read end of its pipe */
} scanner;

static int scanner_start(const dlc_scan_file *file, size_t files, int load,
                         scanner *made) {
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    made->pid = fork();
    if (made->pid == 0) {
        close(ends[0]);
        int fd = fcntl(ends[1], F_DUPFD_CLOEXEC, 3); /* not stdin, stdout or stderr */
        isolate_child(parent);
        for (size_t i = 0; i < files; i++)
            inspect(fd, &file[i], load);
        _exit(0);
    }
    int error = errno;
    close(ends[1]);
    made->fd = ends[0];
    if (made->pid < 0)
        close(ends[0]);
    errno = error;
    return made->pid > 0;
}

/* Kills the child with everything that it started; returns the signal by which it had
 * ended before, 0 if it had not or that is unknown. If its end of the pipe is closed,
 * it gets a moment to end. */
static int scanner_end(const scanner *it, int is_dying) {
    const struct timespec moment = {.tv_nsec = 1000000};
    siginfo_t how = {0};
    for (int i = 0; is_dying && i < 1000 && !how.si_pid; i++) {
        if (i)
            (void)nanosleep(&moment, NULL);
        if (waitid(P_PID, (id_t)it->pid, &how, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
    }
    (void)kill(-it->pid, SIGKILL);
    (void)kill(it->pid, SIGKILL);
    while (waitpid(it->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(it->fd);
    return how.si_pid && how.si_code != CLD_EXITED ? how.si_status : 0;
}

/* Receives `size` bytes until the timeout. 1: complete, 0: the pipe is closed, -1:
 * timed out. */
static int receive(const scanner *it, const char *path, void *bytes, size_t size,
                   uint64_t begin) {
    struct pollfd wait = {.fd = it->fd, .events = POLLIN};
    int64_t noticed = 0;
    for (char *next = bytes; size;) {
        int64_t gone = (int64_t)((dlc_now_ns() - begin) / 1000000);
        if (gone >= timeout_ms)
            return -1;
        if (gone >= NOTICE_MS && !noticed) {
            dlc_info("%s: inspecting it takes long", path);
            noticed = 1;
        }
        int64_t until = noticed || timeout_ms < NOTICE_MS ? timeout_ms : NOTICE_MS;
        int ready = poll(&wait, 1, (int)(until - gone));
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t got = ready < 0 ? -1 : read(it->fd, next, size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        next += got;
        size -= (size_t)got;
    }
    return 1;
}

/* Receives the next report on a file, which replaces the previous one; after a damaged
 * one, none will follow. */
static dlc_status receive_report(const scanner *it, dlc_scan_file *file, int *received,
                                 dlc_entry_state *state) {
    uint64_t begin = dlc_now_ns(), size = 0;
    dlc_report report = {0};
    *received = receive(it, file->path, &size, sizeof size, begin);
    if (*received == 1 && !size)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (*received == 1 && size > MESSAGE_MAX)
        *received = 0;
    if (*received != 1)
        return DLC_OK;
    dlc_text_free(&file->report);
    file->report.bytes = dlc_alloc(size, 1);
    if (!file->report.bytes)
        return DLC_ERR_NOMEM;
    file->report.length = size;
    *received = receive(it, file->path, file->report.bytes, size, begin);
    dlc_status rc = *received == 1
                        ? dlc_report_unpack(file->report.bytes, size, &report)
                        : DLC_OK;
    dlc_free(report.feature);
    *state = report.plugin.state;
    if (rc == DLC_ERR_DATA)
        *received = 0;
    return rc == DLC_ERR_NOMEM ? rc : DLC_OK;
}

/* Receives all reports on a file; *opened: the first step succeeded. */
static dlc_status receive_all(const scanner *it, dlc_scan_file *file, int load,
                              int *received, int *opened) {
    dlc_entry_state state = DLC_ENTRY_UNTRIED;
    DLC_TRY(receive_report(it, file, received, &state));
    *opened = *received == 1;
    if (*opened && load && state == DLC_ENTRY_UNTRIED)
        return receive_report(it, file, received, &state);
    return DLC_OK;
}

static dlc_status refuse(dlc_scan_file *file, char *reason, int cacheable) {
    dlc_report report = {.plugin = {.state = DLC_ENTRY_REFUSED, .reason = reason},
                         .cacheable = cacheable};
    dlc_text_free(&file->report);
    if (reason)
        dlc_report_pack(&report, &file->report);
    dlc_free(reason);
    return reason ? dlc_text_status(&file->report) : DLC_ERR_NOMEM;
}

/* Refuses the file that has killed or hung the child. */
static dlc_status refuse_culprit(dlc_scan_file *file, int opened, int received,
                                 int signal) {
    const char *step = opened ? "in its load()" : "while it was opened";
    char what[128], when[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm))
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    if (received < 0)
        (void)snprintf(what, sizeof what, "did not return within %g s",
                       (double)timeout_ms / 1000);
    else if (signal)
        (void)snprintf(what, sizeof what, "crashed (signal %d, %s)", signal,
                       strsignal(signal)); // NOLINT(concurrency-mt-unsafe): one thread
    else
        (void)snprintf(what, sizeof what, "ended the process");
    /* A process may also be killed for lack of memory, so that is not cached. */
    return refuse(
        file,
        dlc_format("%s: %s %s, on %s; it is skipped until the file changes or "
                   "`dlcore plugin list --rescan` tries it again",
                   file->path, what, step, when),
        signal != SIGKILL);
}

/* Runs one child; *next is the first file left for another one. */
static dlc_status scan_some(dlc_scan_file *file, size_t files, int load, size_t *next) {
    const size_t first = *next;
    dlc_status rc = DLC_OK;
    scanner it;
    int received = 1, opened = 0;
    if (!scanner_start(&file[first], files - first, load, &it))
        return refuse(&file[(*next)++],
                      dlc_format("%s: cannot be inspected: %s", file[first].path,
                                 strerror(errno)), // NOLINT(concurrency-mt-unsafe)
                      0);
    while (*next < files) {
        rc = receive_all(&it, &file[*next], load, &received, &opened);
        if (rc != DLC_OK || received != 1)
            break;
        ++*next;
    }
    int signal = scanner_end(&it, received == 0);
    /* If it is not the first file, an earlier one may have damaged the child: it gets a
     * child of its own. */
    if (rc == DLC_OK && *next == first)
        rc = refuse_culprit(&file[(*next)++], opened, received, signal);
    return rc;
}

dlc_status dlc_scan_run(dlc_scan_file *file, size_t files, int load) {
    dlc_status rc = DLC_OK;
    for (size_t next = 0; rc == DLC_OK && next < files;)
        rc = scan_some(file, files, load, &next);
    return rc;
}
