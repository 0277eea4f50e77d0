/* Starts the process that asks libhdf5, and checks its answer. */
#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "describe.h"

/* A file whose numbers lead in a circle must not stop the job. */
enum { CPU_SECONDS = 10, SECONDS = 300 };
#define MEMORY_MOST ((rlim_t)1 << 30) /* beyond what the process has */
#define CHUNK_MOST ((int64_t)1 << 30)

void layout_free(layout *of) {
    host->free(of->place);
    host->free(of->numbers);
    *of = (layout){0};
}

int64_t layout_chunk_bytes(const layout *of) {
    int64_t bytes = of->of.bytes;
    for (int32_t i = 0; i < of->of.rank; i++)
        if (__builtin_mul_overflow(bytes, of->chunk[i], &bytes) || bytes > CHUNK_MOST)
            return CHUNK_MOST + 1;
    return bytes;
}

/* ---- The process --------------------------------------------------------------- */

static void limit(void) {
    struct rlimit none = {0, 0}, cpu = {CPU_SECONDS, CPU_SECONDS + 1};
    struct rlimit memory = {MEMORY_MOST, MEMORY_MOST};
    unsigned long pages = 0;
    FILE *own = fopen("/proc/self/statm", "re");
    if (own && fscanf(own, "%lu", &pages) == 1)
        memory.rlim_cur = memory.rlim_max += (rlim_t)pages * (rlim_t)getpagesize();
    if (pages)
        (void)setrlimit(RLIMIT_AS, &memory);
    if (own)
        (void)fclose(own);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)setrlimit(RLIMIT_CPU, &cpu);
    (void)alarm(SECONDS);
}

/* What a handler of the job, a sanitizer's or libhdf5 itself has to say of a crash is
 * of no use. */
_Noreturn static void run_child(const data_file *in, const char *name, int fd) {
    static const int ending[] = {SIGALRM, SIGXCPU, SIGTERM, SIGINT,
                                 SIGSEGV, SIGBUS,  SIGABRT, SIGFPE};
    sigset_t nothing;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        (void)signal(ending[i], SIG_DFL);
    sigemptyset(&nothing);
    (void)sigprocmask(SIG_SETMASK, &nothing, NULL);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, STDERR_FILENO);
    limit();
    describe_dataset(in->path, name, fd);
}

/* Reads until `bytes` bytes are there, or the process has ended. */
static size_t receive(int fd, void *to, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = read(fd, (char *)to + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

/* ---- Its answer ---------------------------------------------------------------- */

static dlc_status refuse(const data_file *in, const char *name, const char *why) {
    return host->fail(DLC_ERR_DATA, "%s: %s: %s", in->path, name, why);
}

/* What is wrong with a description; NULL: nothing. */
static const char *find_fault(const data_file *in, const layout *of) {
    int64_t count = 1;
    if (of->of.rank > ARRAY_RANK_MOST || !array_is_valid(&of->of))
        return "it is empty, too large or not of numbers";
    if (of->kind == IN_ONE_PIECE)
        return of->address < 0 || of->address > in->bytes ||
                       array_bytes(&of->of) > in->bytes - of->address
                   ? "its numbers would end beyond the file, which was cut short or is "
                     "damaged"
                   : NULL;
    if (of->kind == IN_HEADER)
        return array_bytes(&of->of) > in->bytes
                   ? "its numbers would end beyond the file"
                   : NULL;
    if (of->kind != IN_CHUNKS || of->filters < 0 || of->filters > FILTERS_MOST)
        return "its header is damaged";
    for (int32_t i = 0; i < of->of.rank; i++) {
        if (of->chunk[i] < 1)
            return "its chunks are empty";
        if (__builtin_mul_overflow(count, (of->of.dims[i] - 1) / of->chunk[i] + 1,
                                   &count))
            return "it has too many chunks";
    }
    if (layout_chunk_bytes(of) > CHUNK_MOST)
        return "its chunks are too large";
    return count != of->chunks || count > in->bytes / 8
               ? "it has more chunks than the file has room for"
               : NULL;
}

static int has_valid_places(const data_file *in, const layout *of) {
    int64_t most = 2 * layout_chunk_bytes(of) + 4096;
    for (int64_t i = 0; i < of->chunks; i++) {
        const chunk_place *at = &of->place[i];
        if (at->address < 0)
            continue;
        if (at->address > in->bytes || at->bytes > in->bytes - at->address ||
            at->bytes > most)
            return 0;
    }
    return 1;
}

/* Receives what follows a description. */
static dlc_status receive_rest(const data_file *in, const char *name, int fd,
                               layout *made) {
    size_t bytes = made->kind == IN_CHUNKS ? (size_t)made->chunks * sizeof *made->place
                   : made->kind == IN_HEADER ? (size_t)array_bytes(&made->of)
                                             : 0;
    void *rest = host->alloc(bytes + 1);
    if (!rest)
        return DLC_ERR_NOMEM;
    size_t got = receive(fd, rest, bytes);
    if (made->kind == IN_CHUNKS)
        made->place = rest;
    else
        made->numbers = rest;
    if (got < bytes || (made->kind == IN_CHUNKS && !has_valid_places(in, made)))
        return refuse(in, name,
                      "the places of its chunks are damaged, or beyond the "
                      "end of the file, which was cut short");
    return DLC_OK;
}

static dlc_status receive_layout(const data_file *in, const char *name, int fd,
                                 layout *made, int *found) {
    description *got = host->alloc(sizeof *got);
    if (!got)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    if (receive(fd, got, sizeof *got) < sizeof *got) {
        status = refuse(in, name,
                        "libhdf5 crashes when it reads this, or takes too "
                        "long: the file is damaged");
    } else if (got->result == REFUSED) {
        got->reason[REASON - 1] = '\0';
        status = refuse(in, name, got->reason);
    } else if (got->result == DESCRIBED) {
        layout at = got->at;
        const char *fault = find_fault(in, &at);
        at.place = NULL;
        at.numbers = NULL;
        status = fault ? refuse(in, name, fault) : receive_rest(in, name, fd, &at);
        if (status == DLC_OK)
            *made = at;
        else
            layout_free(&at);
        *found = status == DLC_OK;
    }
    host->free(got);
    return status;
}

dlc_status layout_ask(const data_file *in, const char *name, layout *made, int *found) {
    int ends[2];
    *found = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return host->fail(DLC_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        run_child(in, name, ends[1]);
    }
    (void)close(ends[1]);
    dlc_status status = child > 0 ? receive_layout(in, name, ends[0], made, found)
                                  : host->fail(DLC_ERR_IO, "cannot start a process: %s",
                                               strerror(errno));
    (void)close(ends[0]); /* ends a child that has more to say */
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return status;
}
