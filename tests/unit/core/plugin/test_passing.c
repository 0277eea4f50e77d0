/* Tests that a condition that passes leaves no mark on a plugin: processes, memory or
 * descriptors run out, signals come from outside, the job is stopped, the machine is
 * busy. What is known about the file itself is remembered. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "plugin/child.h"
#include "plugin/object.h"
#include "plugin/scan.h"
#include "plugin_folders.h"
#include "support/test.h"

/* ---- Calls of the C library that fail on request -------------------------------- */

static pid_t only_forks;         /* fork() fails in all other processes; 0: in none */
static const char *loader_fails; /* what dlerror() says, and dlopen() fails */
static int reads_fail;           /* errno of pread(), after `reads_good` calls */
static int reads_good;

pid_t fork(void) {
    static pid_t (*real)(void);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fork");
    if (only_forks && getpid() != only_forks) {
        errno = EAGAIN;
        return -1;
    }
    return real();
}

void *dlopen(const char *path, int flags) {
    static void *(*real)(const char *, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    return path && loader_fails ? NULL : real(path, flags);
}

char *dlerror(void) {
    static char *(*real)(void);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dlerror");
    return loader_fails ? (char *)loader_fails : real();
}

ssize_t pread(int fd, void *into, size_t bytes, off_t begin) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    if (reads_fail && reads_good-- <= 0) {
        errno = reads_fail;
        return -1;
    }
    return real(fd, into, bytes, begin);
}

/* ---- Helpers ------------------------------------------------------------------- */

static const char *dir;

static void make_dir(void) {
    dir = dir_make();
    dir_add(dir, "obeys", NULL);
    cache_dir_make();
    give_orders(NULL, 0);
}

static void expect(dlc_entry_state state, const char *says) {
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "obeys.so");
    ck_assert_msg(entry->state == state, "%s: %s", dlc_entry_state_text(entry->state),
                  entry->reason ? entry->reason : "no reason");
    if (says)
        ck_contains(entry->reason, says);
    dlc_registry_close(registry);
}

/* Once the condition has passed, the plugin is asked again, and then remembered. */
static void expect_usable_again(void) {
    int loads = load_count();
    expect(DLC_ENTRY_USABLE, NULL);
    ck_assert_int_eq(load_count(), loads + 1);
    expect(DLC_ENTRY_USABLE, NULL);
    ck_assert_int_eq(load_count(), loads + 1);
}

/* ---- What runs out ------------------------------------------------------------- */

static dlc_status do_nothing(void *context) {
    (void)context;
    return DLC_OK;
}

TEST_SETTINGS(.timeout = 120, .setup = make_dir, .teardown = dir_remove_all);

/* As after `ulimit -u`: the first process starts, but it cannot start another one. */
TEST(no_processes) {
    only_forks = getpid();
    expect(DLC_ENTRY_REFUSED, "cannot be inspected: Resource temporarily unavailable");
    ck_assert_int_eq(dlc_probe("it", 5, do_nothing, NULL), DLC_ERR_IO);
    ck_contains(dlc_detail(), "it: cannot be tried: Resource temporarily unavailable");
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* none is left */
    ck_assert_int_eq(load_count(), 0);
    only_forks = 0;
    expect_usable_again();
}

static const struct {
    const char *says;
    int passes;
} loader[] = {
    {"x.so: failed to map segment from shared object", 1},
    {"x.so: cannot create shared object descriptor: Cannot allocate memory", 1},
    {"liby.so.1: cannot open shared object file: Too many open files", 1},
    {"liby.so.1: cannot read file data: Input/output error", 1},
    {"x.so: cannot open shared object file: Stale file handle", 1},
    {"out of memory", 1},
    {"x.so: undefined symbol: y", 0},
    {"/lib/liby.so.1: version `Y_2.0' not found (required by x.so)", 0},
    {"x.so: cannot allocate memory in static TLS block", 0},
    {"liby.so.1: cannot open shared object file: No such file or directory", 0},
};

TEST_EACH(loader_fails_for_a_while, COUNT(loader)) {
    loader_fails = loader[_i].says;
    expect(DLC_ENTRY_REFUSED, loader[_i].says);
    loader_fails = NULL;
    if (loader[_i].passes)
        expect_usable_again();
    else
        expect(DLC_ENTRY_REFUSED, loader[_i].says);
}

TEST(reads_fail_for_a_while) {
    for (int good = 0; good < 4; good++) {
        reads_fail = EIO;
        reads_good = good;
        dlc_status rc = dlc_image_check(dir_path(dir, "obeys.so"));
        int has_failed = reads_good < 0;
        reads_fail = 0;
        if (has_failed && good != 1) { /* the second one is of the program */
            ck_assert_int_eq(rc, DLC_ERR_IO);
            ck_contains(dlc_detail(), "cannot be read: Input/output error");
        }
    }
    reads_fail = EIO;
    reads_good = 0;
    expect(DLC_ENTRY_REFUSED, "cannot be read: Input/output error");
    reads_fail = 0;
    expect_usable_again();
}

/* In this process, too, the plugin is not given up. */
TEST(no_descriptors) {
    struct rlimit before, none;
    const dlc_feature *feature = NULL;
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    dlc_status rc = dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_int_eq(rc, DLC_ERR_IO);
    ck_contains(dlc_detail(), "cannot be read: Too many open files");
    ck_assert_ptr_nonnull(cache_file());
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    dlc_registry_close(registry);
}

/* load() says that something else is wrong than the machine. */
TEST_EACH(load_fails_for_a_while, 3) {
    static const dlc_status statuses[] = {DLC_ERR_NOMEM, DLC_ERR_IO, DLC_ERR_TIMEOUT};
    give_orders("return", statuses[_i]);
    expect(DLC_ENTRY_UNAVAILABLE, "its load() failed without a reason");
    give_orders(NULL, 0);
    expect_usable_again();
    give_orders("return", DLC_ERR_UNAVAILABLE);
    ck_assert_int_eq(state_after_rescan("obeys.so"), DLC_ENTRY_UNAVAILABLE);
    give_orders(NULL, 0);
    expect(DLC_ENTRY_UNAVAILABLE, "its load() failed without a reason");
}

/* ---- How it ends --------------------------------------------------------------- */

static const int passing[] = {SIGKILL, SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
                              SIGXCPU, SIGBUS,  SIGABRT, SIGUSR1, SIGALRM};

TEST_EACH(ends_by_a_signal_from_outside, COUNT(passing)) {
    char says[64];
    snprintf(says, sizeof says, "(signal %d, ", passing[_i]);
    give_orders("signal", passing[_i]);
    expect(DLC_ENTRY_REFUSED, says);
    expect(DLC_ENTRY_REFUSED, "the next command tries it again");
    give_orders(NULL, 0);
    expect_usable_again();
}

TEST(ends_the_process) {
    give_orders("exit", 3);
    expect(DLC_ENTRY_REFUSED, "ended the process in its load()");
    give_orders(NULL, 0);
    expect_usable_again();
}

static const int faults[] = {SIGSEGV, SIGILL, SIGFPE, SIGTRAP};

/* Its code is wrong; but under other limits it may not be. */
TEST_EACH(ends_by_a_fault, COUNT(faults)) {
    struct rlimit limit;
    give_orders("signal", faults[_i]);
    expect(DLC_ENTRY_REFUSED, "it is skipped for an hour");
    give_orders(NULL, 0);
    expect(DLC_ENTRY_REFUSED, "crashed");
    ck_assert_int_eq(getrlimit(RLIMIT_CORE, &limit), 0);
    limit.rlim_max = limit.rlim_max / 2;
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_CORE, &limit), 0);
    expect_usable_again();
}

/* ---- Time ---------------------------------------------------------------------- */

/* The only child of a process; 0 if there is none. */
static pid_t child_of(pid_t process) {
    char path[64];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)process,
             (int)process);
    FILE *list = fopen(path, "re");
    if (list && fscanf(list, "%d", &found) != 1)
        found = 0;
    if (list)
        fclose(list);
    return (pid_t)found;
}

static void sleep_ms(int ms) {
    usleep((useconds_t)ms * 1000);
}

/* In a process that is no child of this one: waits until the plugin sleeps, stops what
 * inspects it, waits, and continues it in an order in which nothing helps. */
static void stop_meanwhile(int whole, int ms) {
    const pid_t job = getpid();
    const int loads = load_count();
    if (fork() != 0) {
        ck_assert_int_gt(wait(NULL), 0);
        return;
    }
    if (fork() != 0)
        _exit(0);
    for (int i = 0; i < 1000 && load_count() == loads; i++)
        sleep_ms(10);
    pid_t guard = child_of(job), child = child_of(guard);
    if (guard <= 0 || child <= 0)
        _exit(1);
    if (whole)
        (void)kill(job, SIGSTOP);
    (void)kill(guard, SIGSTOP);
    (void)kill(child, SIGSTOP);
    if (whole) {
        sleep_ms(ms);
        (void)kill(job, SIGCONT);
        sleep_ms(300);
        (void)kill(guard, SIGCONT);
        sleep_ms(300);
        (void)kill(child, SIGCONT);
    }
    _exit(0);
}

/* Ctrl-Z, or a batch system that suspends the job: its time does not count. */
TEST(whole_job_is_stopped) {
    dlc_scan_timeout(2500);
    give_orders("sleep", 1000);
    stop_meanwhile(1, 4000);
    expect_usable_again();
}

/* What nobody continues does not wait for ever. */
TEST(inspection_is_stopped) {
    dlc_scan_timeout(5000);
    give_orders("sleep", 1000);
    stop_meanwhile(0, 0);
    expect_usable_again();
}

TEST(stops_itself) {
    dlc_scan_timeout(5000);
    give_orders("stop", 3);
    expect_usable_again();
    /* Not even the one that does nothing else holds up the job. */
    dlc_scan_timeout(1000);
    give_orders("stop", INT_MAX);
    ck_assert_int_eq(state_after_rescan("obeys.so"), DLC_ENTRY_REFUSED);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}

static dlc_status stop_myself(void *context) {
    (void)context;
    return raise(SIGSTOP) == 0 ? DLC_OK : DLC_ERR_INTERNAL;
}

TEST(probe_is_stopped) {
    ck_assert_int_eq(dlc_probe("it", 5, stop_myself, NULL), DLC_OK);
}

/* Others use the CPU: what would need 0.4 s does not end within 1 s. */
TEST(machine_is_busy) {
    enum { OTHERS = 8 };
    pid_t others[OTHERS];
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    give_orders("compute", 400);
    for (int i = 0; i < OTHERS; i++)
        if ((others[i] = fork()) == 0)
            for (;;)
                ;
    dlc_scan_timeout(1000);
    expect(DLC_ENTRY_REFUSED, "did not return within 1 s in its load()");
    for (int i = 0; i < OTHERS; i++) {
        ck_assert_int_eq(kill(others[i], SIGKILL), 0);
        ck_assert_int_eq(waitpid(others[i], NULL, 0), others[i]);
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
    dlc_scan_timeout(0);
    give_orders(NULL, 0);
    expect_usable_again();
}

/* Sleeping is the plugin's own fault. */
TEST(sleeps_too_long) {
    dlc_scan_timeout(2000);
    give_orders("sleep", 100000);
    expect(DLC_ENTRY_REFUSED, "did not return within 2 s in its load()");
    give_orders(NULL, 0);
    expect(DLC_ENTRY_REFUSED, "did not return within 2 s in its load()");
}

/* Without /proc, nothing tells who is to blame. */
TEST(no_proc) {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        umount2("/proc", MNT_DETACH) != 0)
        return; /* only root may, and not everywhere */
    dlc_scan_timeout(2000);
    give_orders("sleep", 100000);
    expect(DLC_ENTRY_REFUSED, "the next command tries it again");
    give_orders(NULL, 0);
    expect_usable_again();
    ck_assert_int_eq(mount("proc", "/proc", "proc", 0, NULL), 0); /* for LSan */
}
