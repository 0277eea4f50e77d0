/* Reads the state of the process and what it uses. */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process_state.h"
#include "digest.h"
#include "host.h"

/* ---- State ------------------------------------------------------------------- */

enum { SIGNALS = 65, STREAMS = 3 };

typedef struct state {
    dlc_process_state cheap;
    mode_t mask;
    uint64_t environment;
    char folder[4096];
} state;

static state first;
static struct sigaction first_handlers[SIGNALS];

static uint64_t digest_environment(void) {
    uint64_t digest = 0;
    for (char **at = environ; at && *at; at++)
        suite_digest_add(&digest, *at, strlen(*at) + 1);
    return digest;
}

static void take(state *now) {
    now->mask = umask(077);
    (void)umask(now->mask);
    now->environment = digest_environment();
    if (!getcwd(now->folder, sizeof now->folder))
        now->folder[0] = '\0';
}

static void take_handlers(struct sigaction handlers[SIGNALS]) {
    memset(handlers, 0, SIGNALS * sizeof *handlers);
    for (int number = 1; number < SIGNALS; number++)
        (void)sigaction(number, NULL, &handlers[number]);
}

void suite_process_begin(suite_run *run) {
    run->process = getpid();
    (void)dlc_modes_restore();
    dlc_process_state_take(&first.cheap);
    take(&first);
    take_handlers(first_handlers);
}

void suite_process_check(suite_run *run, const char *call) {
    state now;
    if (getpid() != run->process)
        suite_fail(run, "%s returns in a second process: it forks", call);
    const char *changed = dlc_modes_restore();
    if (!changed)
        changed = dlc_process_state_change(&first.cheap);
    if (!changed && gettid() != getpid())
        return; /* several threads cannot read the umask at once */
    take(&now);
    changed = changed                                 ? changed
              : now.mask != first.mask                ? "the umask"
              : now.environment != first.environment  ? "the environment"
              : strcmp(now.folder, first.folder) != 0 ? "the current folder"
                                                      : NULL;
    if (changed)
        suite_fail(run, "%s changes %s", call, changed);
}

/* What a plugin has forked, and takes part in the check by mistake, reports that first:
 * waits for it, but not for a helper that stays. */
static void await_children(void) {
    enum { MOMENTS = 1000 };
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < MOMENTS && waitpid(-1, NULL, WNOHANG) >= 0; i++)
        (void)nanosleep(&moment, NULL);
}

void suite_process_finish(suite_run *run) {
    static const char *const streams[STREAMS] = {"stdin", "stdout", "stderr"};
    struct sigaction now[SIGNALS];
    await_children();
    suite_process_check(run, "the plugin");
    take_handlers(now);
    for (int number = 1; number < SIGNALS; number++)
        if (now[number].sa_handler != first_handlers[number].sa_handler)
            suite_fail(run, "it changes the handler of signal %d (%s)", number,
                       strsignal(number));
    for (int fd = 0; fd < STREAMS; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            suite_fail(run, "it closes %s", streams[fd]);
}

pid_t suite_fork(suite_run *run) {
    pid_t child = fork();
    if (child == 0)
        run->process = getpid();
    return child;
}

/* ---- Descendants ------------------------------------------------------------- */

int suite_count_entries(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

/* Adds the children of a process to `found`, which has room for `most`. */
static int add_children(pid_t of, pid_t *found, int count, int most) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)of);
    DIR *threads = opendir(path);
    struct dirent *thread;
    while (threads && (thread = readdir(threads))) {
        char list[128];
        int pid;
        if (thread->d_name[0] == '.')
            continue;
        (void)snprintf(list, sizeof list, "%s/%.20s/children", path, thread->d_name);
        FILE *children = fopen(list, "re");
        while (children && count < most && fscanf(children, "%d", &pid) == 1)
            found[count++] = (pid_t)pid;
        if (children)
            (void)fclose(children);
    }
    if (threads)
        (void)closedir(threads);
    return count;
}

int suite_count_descendants(int most) {
    enum { ROOM = 256 };
    pid_t found[ROOM];
    most = most < ROOM ? most : ROOM;
    int count = add_children(getpid(), found, 0, most);
    for (int i = 0; i < count; i++)
        count = add_children(found[i], found, count, most);
    return count;
}

/* ---- Use --------------------------------------------------------------------- */

enum { ALLOCATIONS, HEAP, PAGES, FILES, THREADS, PROCESSES, USES };

typedef struct use {
    int64_t of[USES];
} use;

/* Bytes that are allocated by malloc, in any way. */
static int64_t heap_bytes(void) {
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
#else
    return 0;
#endif
}

static int64_t pages(void) {
    long long count = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%lld", &count) != 1)
        count = 0;
    if (file)
        (void)fclose(file);
    return count;
}

static use measure(void) {
    return (use){{[ALLOCATIONS] = suite_host_allocations(),
                  [HEAP] = heap_bytes(),
                  [PAGES] = pages(),
                  [FILES] = suite_count_entries(SUITE_FILES),
                  [THREADS] = suite_count_entries(SUITE_THREADS),
                  [PROCESSES] = suite_count_descendants(200)}};
}

/* The number of the process or thread that was started last on this machine. */
static long last_started(void) {
    char text[128] = "";
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    const char *number = got > 0 ? strrchr(text, ' ') : NULL;
    return number ? strtol(number, NULL, 10) : 0;
}

/* What every call starts at least; other programs start something meanwhile, but not
 * during each of the calls. */
static long started_in_each(int times, void (*once)(void *context), void *context) {
    long least = -1;
    for (int i = 0; i < times; i++) {
        long before = last_started();
        once(context);
        long started = last_started() - before;
        if (least < 0 || started < least)
            least = started > 0 ? started : 0;
    }
    return least;
}

/* The least growth that counts, in so many calls. */
static int64_t least_growth(int which, int times) {
    enum { HEAP_BYTES = 16, PAGES_EACH = 4 };
    return which == HEAP    ? (int64_t)times * HEAP_BYTES
           : which == PAGES ? 1 + times / PAGES_EACH
                            : 1;
}

static void run_times(int times, void (*once)(void *context), void *context) {
    for (int i = 0; i < times; i++)
        once(context);
}

/* Does it grow in each of the windows, and not less and less, as a pool or a cache does
 * that fills? */
static int grows(const use *at, int windows, int which, int times) {
    int64_t least = INT64_MAX, most = 0;
    for (int w = 1; w <= windows; w++) {
        int64_t more = at[w].of[which] - at[w - 1].of[which];
        least = more < least ? more : least;
        most = more > most ? more : most;
    }
    return least >= least_growth(which, times) && most <= 2 * least;
}

enum { WINDOWS = 4 };

/* Measures before `times` more calls, and after each further `times` of them. Returns
 * what grows, or USES. */
static int find_growth(int times, void (*once)(void *context), void *context, use *at) {
    for (int w = 0; w <= WINDOWS; w++) {
        run_times(w ? times : 0, once, context);
        at[w] = measure();
    }
    int which = 0;
    while (which < USES && !grows(at, WINDOWS, which, times))
        which++;
    return which;
}

void suite_repeat(suite_run *run, int times, const char *calls,
                  void (*once)(void *context), void *context) {
    enum { WARM_UP = 16, STARTED_MOST = 24, MANY = 24 };
    static const char *const words[USES] = {"allocations by dlc_host.alloc",
                                            "bytes of memory by malloc",
                                            "pages of memory",
                                            "open files",
                                            "threads",
                                            "processes"};
    use at[WINDOWS + 1];
    run_times(WARM_UP, once, context);
    int which = find_growth(times, once, context, at);
    /* A leak goes on. A pool that is slow to fill does not, and malloc has such pools
     * of pieces that were freed: it counts these as in use. */
    if (which < USES && times < MANY)
        which = find_growth(times = MANY, once, context, at);
    if (which < USES)
        suite_fail(run, "after each %d more times %s, %lld more %s are in use", times,
                   calls,
                   (long long)(at[WINDOWS].of[which] - at[WINDOWS - 1].of[which]),
                   words[which]);
    long started = started_in_each(times / 2 + 1, once, context);
    if (started > STARTED_MOST)
        suite_fail(run, "%s starts %ld threads or processes each time", calls, started);
}
