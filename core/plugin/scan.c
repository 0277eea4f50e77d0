/* Inspects files, each in a child of its own, several at a time, and receives their
 * reports. A child sends a message after opening its file, and another when load() has
 * returned: a length and a packed report, of which the last counts. */
#include "plugin/scan.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlcore/decoder.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "plugin/check.h"
#include "plugin/child.h"
#include "plugin/entry.h"
#include "plugin/object.h"

/* The time for opening a file, and for its load(). Without a persistence daemon, asking
 * a driver for its devices takes 10 s and more. */
enum { TIMEOUT_MS = 5000, DRIVER_TIMEOUT_MS = 60000 };
enum { NOTICE_MS = 3000 }; /* after this time the user is told what is waited for */
enum { CHILDREN_MOST = 16 };
#define MESSAGE_MAX (64u << 20)

static int64_t fixed_timeout_ms; /* 0: the defaults */

void dlc_scan_timeout(int64_t ms) {
    fixed_timeout_ms = ms;
}

/* ---- The child --------------------------------------------------------------- */

/* A message of length 0 means out of memory. */
static void send_no_memory(int fd) {
    const uint64_t size = 0;
    dlc_child_send(fd, &size, sizeof size);
    _exit(1);
}

static void send_report(int fd, const dlc_report *report) {
    dlc_text bytes = {0};
    dlc_report_pack(report, &bytes);
    if (bytes.failed)
        send_no_memory(fd);
    const uint64_t size = bytes.length;
    dlc_child_send(fd, &size, sizeof size);
    dlc_child_send(fd, bytes.bytes, size);
    dlc_text_free(&bytes);
}

static char *keep_detail(int fd, dlc_status rc) {
    char *detail = rc == DLC_ERR_NOMEM ? NULL : dlc_strdup(dlc_detail());
    if (!detail)
        send_no_memory(fd);
    return detail;
}

static char *join_endings(int fd, const dlc_decoder_ops *ops) {
    dlc_text text = {0};
    for (const char *const *one = ops->endings; *one; one++)
        dlc_text_add(&text, "%s%s", one == ops->endings ? "" : ",", *one);
    if (text.failed)
        send_no_memory(fd);
    return text.bytes;
}

/* Until when an error is true. A library may be missing, or a driver, and be installed
 * later. */
static dlc_report_scope scope_of(dlc_status rc) {
    return rc == DLC_ERR_IO ? DLC_REPORT_ONCE : DLC_REPORT_OF_SYSTEM;
}

static void enter_features(int fd, const dlc_plugin *plugin, dlc_report *report) {
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
        if (feature->kind == DLC_KIND_DECODER)
            entry->endings = join_endings(fd, feature->ops);
    }
}

static void free_report(dlc_report *report) {
    for (size_t i = 0; report->feature && i < report->plugin.features; i++) {
        dlc_free((void *)report->feature[i].reason);
        dlc_free((void *)report->feature[i].endings);
    }
    dlc_free(report->feature);
    dlc_free((void *)report->plugin.reason);
}

/* What a child is to do. */
typedef struct task {
    const dlc_scan_file *file;
    int load;
} task;

static void inspect(int fd, void *context) {
    const task *given = context;
    const dlc_scan_file *file = given->file;
    int load = given->load;
    dlc_child_isolate();
    dlc_report report = {0};
    const dlc_plugin *plugin = NULL;
    dlc_status rc = dlc_object_open(file->path, &file->info, &plugin);
    report.scope = rc == DLC_OK ? DLC_REPORT_OF_FILE : scope_of(rc);
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
    enter_features(fd, plugin, &report);
    send_report(fd, &report);
    if (load) {
        rc = dlc_object_load(plugin);
        report.plugin.state = rc == DLC_OK ? DLC_ENTRY_USABLE : DLC_ENTRY_UNAVAILABLE;
        report.plugin.reason = rc == DLC_OK ? NULL : keep_detail(fd, rc);
        report.scope = rc == DLC_OK ? DLC_REPORT_OF_FILE : scope_of(rc);
        send_report(fd, &report);
    }
    free_report(&report);
}

/* ---- The parent -------------------------------------------------------------- */

/* The inspection of one file. */
typedef struct scanner {
    dlc_scan_file *file; /* NULL: it has ended */
    dlc_child child;
    dlc_text received;  /* a message that is not complete yet */
    dlc_stopwatch step; /* how long this step takes */
    int opened;         /* the first step has succeeded */
    int is_driver;      /* it offers a device */
    int64_t timeout_ms; /* of opening it, and of most load() */
    int noticed;        /* the user knows that it is waited for */
} scanner;

static dlc_status refuse_file(dlc_scan_file *file, char *reason,
                              dlc_report_scope scope) {
    dlc_report report = {.plugin = {.state = DLC_ENTRY_REFUSED, .reason = reason},
                         .scope = scope};
    dlc_text_free(&file->report);
    if (reason)
        dlc_report_pack(&report, &file->report);
    dlc_free(reason);
    return reason ? dlc_text_status(&file->report) : DLC_ERR_NOMEM;
}

static int64_t limit_of(const scanner *it) {
    if (fixed_timeout_ms)
        return fixed_timeout_ms;
    return it->opened && it->is_driver ? DRIVER_TIMEOUT_MS : it->timeout_ms;
}

/* How an inspection has ended without a report. */
typedef struct failure {
    int hangs;      /* the time limit was reached */
    int is_held_up; /* and the file may not be to blame for that */
    int signal;     /* that has ended the child; 0: none */
} failure;

/* Whether the file alone is to blame: its code has a fault, or never ends. abort() and
 * exit() are what libraries do when memory or threads run out, too; other signals come
 * from outside, or tell of a disk or a limit. */
static int is_fault_of_file(const failure *what) {
    if (what->hangs)
        return !what->is_held_up;
    return what->signal == SIGSEGV || what->signal == SIGILL ||
           what->signal == SIGFPE || what->signal == SIGTRAP;
}

/* Refuses the file whose inspection has failed. */
static dlc_status refuse_culprit(const scanner *it, const failure *failed) {
    const char *step = it->opened ? "in its load()" : "while it was opened";
    int is_lasting = is_fault_of_file(failed);
    char what[128], when[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm))
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    if (failed->hangs)
        (void)snprintf(what, sizeof what, "did not return within %.3g s",
                       (double)limit_of(it) / 1000);
    else if (failed->signal)
        (void)snprintf(
            what, sizeof what, "%s (signal %d, %s)",
            is_lasting || failed->signal == SIGABRT ? "crashed" : "was killed",
            failed->signal,
            strsignal(failed->signal)); // NOLINT(concurrency-mt-unsafe): one thread
    else
        (void)snprintf(what, sizeof what, "ended the process");
    return refuse_file(
        it->file,
        dlc_format("%s: %s %s, on %s; %s", it->file->path, what, step, when,
                   is_lasting ? "it is skipped for an hour, or until the file or the "
                                "environment changes, or `dlcore plugin list --rescan` "
                                "tries it again"
                              : "the next command tries it again"),
        is_lasting ? DLC_REPORT_OF_SYSTEM : DLC_REPORT_ONCE);
}

static void scanner_end(scanner *it, int is_dying, int *signal) {
    *signal = dlc_child_end(&it->child, is_dying);
    dlc_text_free(&it->received);
    it->file = NULL;
}

static dlc_status scanner_start(const task *what, scanner *it) {
    dlc_scan_file *file = it->file;
    task given = *what;
    it->timeout_ms = (int64_t)dlc_child_patience(TIMEOUT_MS);
    if (dlc_child_start(inspect, &given, &it->child)) {
        (void)dlc_stopwatch_look(&it->step);
        return DLC_OK;
    }
    it->file = NULL;
    return refuse_file(file,
                       dlc_format("%s: cannot be inspected: %s", file->path,
                                  strerror(errno)), // NOLINT(concurrency-mt-unsafe)
                       DLC_REPORT_ONCE);
}

/* Takes the next report on a file, which replaces the previous one. *more: another one
 * will follow. DLC_ERR_DATA if it is damaged. */
static dlc_status take_scan_report(scanner *it, const char *bytes, size_t size,
                                   int load, int *more) {
    dlc_report report = {0};
    DLC_TRY(dlc_report_unpack(bytes, size, &report));
    for (size_t i = 0; i < report.plugin.features; i++)
        it->is_driver |= report.feature[i].kind == DLC_KIND_DEVICE;
    *more = load && !it->opened && report.plugin.state == DLC_ENTRY_UNTRIED;
    dlc_free(report.feature);
    dlc_text_free(&it->file->report);
    dlc_text_append(&it->file->report, bytes, size);
    it->opened = 1;
    it->noticed = 0;
    it->step = (dlc_stopwatch){0};
    (void)dlc_stopwatch_look(&it->step);
    return dlc_text_status(&it->file->report);
}

/* Takes all messages that have been received completely. */
static dlc_status take_messages(scanner *it, int load, int *more) {
    size_t begin = 0;
    dlc_status status = DLC_OK;
    for (uint64_t size; status == DLC_OK && *more; begin += sizeof size + size) {
        size_t left = it->received.length - begin;
        if (left < sizeof size)
            break;
        memcpy(&size, it->received.bytes + begin, sizeof size);
        if (!size)
            return dlc_fail(DLC_ERR_NOMEM, "out of memory");
        if (size > MESSAGE_MAX)
            return dlc_fail(DLC_ERR_DATA, "the report on a plugin is damaged");
        if (left - sizeof size < size)
            break;
        status = take_scan_report(it, it->received.bytes + begin + sizeof size, size,
                                  load, more);
    }
    it->received.length -= begin;
    if (it->received.length)
        memmove(it->received.bytes, it->received.bytes + begin, it->received.length);
    return status;
}

/* Reads what is there. *closed: nothing will follow. */
static dlc_status receive_messages(scanner *it, int *closed) {
    char bytes[4096];
    for (;;) {
        ssize_t got = read(it->child.fd, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *closed = got == 0 || errno != EAGAIN;
            return DLC_OK;
        }
        dlc_text_append(&it->received, bytes, (size_t)got);
        DLC_TRY(dlc_text_status(&it->received));
    }
}

static int64_t waited_ms(scanner *it) {
    return (int64_t)(dlc_stopwatch_look(&it->step) * 1e3);
}

/* Moves one inspection on, and ends it when it is complete or has failed. */
static dlc_status scanner_step(scanner *it, int load) {
    int closed = 0, more = 1;
    dlc_child_continue(&it->child);
    dlc_status status = receive_messages(it, &closed);
    if (status == DLC_OK)
        status = take_messages(it, load, &more);
    failure failed = {.hangs = !closed && waited_ms(it) >= limit_of(it)};
    if (status == DLC_OK && more && !closed && !failed.hangs) {
        if (waited_ms(it) >= NOTICE_MS && !it->noticed++)
            dlc_info("%s: inspecting it takes long", it->file->path);
        return DLC_OK;
    }
    if (failed.hangs)
        failed.is_held_up = dlc_child_is_held_up(&it->child,
                                                 (double)limit_of(it) * 1e-3);
    scanner ended = *it;
    scanner_end(it, more && closed, &failed.signal);
    if (status == DLC_ERR_DATA || (status == DLC_OK && more))
        return refuse_culprit(&ended, &failed);
    return status;
}

/* Waits until a child has something to say, or it is time to look for time limits and
 * for what is stopped. */
static void wait_for_any(const scanner *list, size_t count) {
    struct pollfd fds[CHILDREN_MOST];
    nfds_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].file)
            fds[used++] = (struct pollfd){.fd = list[i].child.fd, .events = POLLIN};
    if (used)
        (void)poll(fds, used, DLC_CHILD_LOOK_MS);
}

dlc_status dlc_scan_run(dlc_scan_file *file, size_t files, int load) {
    scanner list[CHILDREN_MOST] = {{.file = NULL}};
    dlc_status status = DLC_OK;
    size_t next = 0, running = 1;
    while (status == DLC_OK && (running || next < files)) {
        for (size_t i = 0; status == DLC_OK && i < CHILDREN_MOST; i++) {
            if (list[i].file || next == files)
                continue;
            list[i] = (scanner){.file = &file[next]};
            const task what = {.file = &file[next++], .load = load};
            status = scanner_start(&what, &list[i]);
        }
        wait_for_any(list, CHILDREN_MOST);
        running = 0;
        for (size_t i = 0; status == DLC_OK && i < CHILDREN_MOST; i++) {
            if (list[i].file)
                status = scanner_step(&list[i], load);
            running += list[i].file != NULL;
        }
    }
    for (size_t i = 0; i < CHILDREN_MOST; i++) {
        int signal;
        if (list[i].file)
            scanner_end(&list[i], 0, &signal);
    }
    return status;
}
