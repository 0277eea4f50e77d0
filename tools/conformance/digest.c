/* The check that results are the same in every process and at any time: as the ranks of
 * a job, or a job and the one that goes on with its checkpoint. */
#include "digest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "host.h"
#include "plugin/entry.h"
#include "process.h"

/* The second and the third process have numbers of which one is odd and one even, and
 * begin when the clock shows another second than for the first. */
enum { PROCESSES = 3, FEATURES_MOST = 256 };
#define SECONDS_BETWEEN 1.1
#define SECONDS_MOST 10.0

typedef struct result {
    int done;
    pid_t process;
    uint64_t digest;
} result;

void suite_digest_add(uint64_t *digest, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        *digest = (*digest ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3 + 1;
}

/* NULL: several ranks would have to be connected. */
static void (*digest_of(uint32_t kind))(suite_run *run, uint64_t *digest) {
    switch ((dlc_kind)kind) {
    case DLC_KIND_DEVICE:
        return suite_digest_device;
    case DLC_KIND_LAYER:
        return suite_digest_layer;
    case DLC_KIND_SOLVER:
    case DLC_KIND_CONSISTENCY:
        return suite_digest_training;
    case DLC_KIND_DATA:
        return suite_digest_data;
    case DLC_KIND_DECODER:
        return suite_digest_decoder;
    case DLC_KIND_TRANSPORT:
        break;
    }
    return NULL;
}

/* What goes wrong here is for other checks to say. */
__attribute__((noreturn)) static void compute(suite_run run, const dlc_feature *feature,
                                              result *into) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    run.report = -1;
    run.process = into->process = getpid();
    if (suite_load(&run) != DLC_OK)
        _exit(1);
    run.feature = feature;
    suite_make_settings(&run);
    digest_of(feature->kind)(&run, &into->digest);
    into->done = 1;
    _exit(0);
}

static void wait_for(suite_run *run, pid_t child) {
    const struct timespec moment = {.tv_nsec = 1000000};
    double most = SECONDS_MOST * run->subject->timeout_scale;
    uint64_t start = dlc_now_ns();
    while (waitpid(child, NULL, WNOHANG) == 0) {
        if (dlc_since(start) > most)
            (void)kill(child, SIGKILL);
        (void)nanosleep(&moment, NULL);
    }
}

/* In a process whose number is odd where that of `other` is even; NULL: any. Returns 0
 * if the feature could not be used. */
static int use_once(suite_run *run, const dlc_feature *feature, const result *other,
                    result *into) {
    enum { TRIES = 40 };
    into->process = 0;
    for (int i = 0; i < TRIES && !into->process; i++) {
        pid_t child = fork();
        if (child < 0)
            suite_skip(run, "fork: %s", strerror(errno));
        if (child == 0 && other && (getpid() - other->process) % 2 == 0)
            _exit(0);
        if (child == 0)
            compute(*run, feature, into);
        wait_for(run, child);
    }
    return into->done;
}

static void compare(suite_run *run, const dlc_feature *feature,
                    const result results[PROCESSES]) {
    for (int p = 1; p < PROCESSES; p++)
        if (results[0].done && results[p].done &&
            results[p].digest != results[0].digest)
            suite_fail(run,
                       "%s %s gives other results in another process or at another "
                       "time, with the same input",
                       dlc_kind_text((dlc_kind)feature->kind), feature->name);
}

static void is_the_same_everywhere(suite_run *run) {
    suite_check_descriptor(run);
    const struct timespec pause = {.tv_sec = 1,
                                   .tv_nsec = (long)((SECONDS_BETWEEN - 1) * 1e9)};
    result(*all)[PROCESSES] = mmap(NULL, FEATURES_MOST * sizeof *all,
                                   PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                   -1, 0);
    if (all == MAP_FAILED)
        suite_skip(run, "cannot map shared memory: %s", strerror(errno));
    int used = 0;
    const dlc_feature *f;
    for (int late = 0; late < 2; late++) {
        int i = 0;
        for (f = NULL; (f = suite_accepted(run, f)) && i < FEATURES_MOST; i++) {
            if (!digest_of(f->kind) || (late && !all[i][0].done))
                continue;
            used += use_once(run, f, NULL, &all[i][late]);
            if (late)
                (void)use_once(run, f, &all[i][1], &all[i][2]);
            if (late)
                compare(run, f, all[i]);
        }
        if (!used)
            suite_skip(run, "none of its features can be used alone and with these "
                            "settings");
        if (!late)
            (void)nanosleep(&pause, NULL);
    }
}

const suite_check suite_digest_checks[] = {
    {"file.processes", "results depend on neither process nor clock", 0, 0,
     SUITE_OPENED, 300, is_the_same_everywhere},
    {.name = NULL},
};
