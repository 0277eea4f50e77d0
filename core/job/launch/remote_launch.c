/* Starts a job on several hosts, and ends it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/write.h"
#include "job/hub/handshake.h"
#include "job/launch/environment.h"
#include "job/launch/remote.h"
#include "job/supervise.h"

/* The others notice a lost host, and say so; then they are ended, and then killed. */
#define NOTICE_NS 4000000000u
#define GRACE_NS 8000000000u

enum { EXIT_LOST = 5, EXIT_NO_LAUNCHER = 254 };

typedef struct host {
    const char *name;
    pid_t pid; /* of its launcher; 0: ended */
    int input; /* its standard input; -1: closed */
    dlc_remote_output output;
} host;

typedef struct remote_launch {
    const dlc_remote_launch_args *args;
    dlc_remote_start start;
    int variables; /* in start.environment */
    host *hosts;
    int count, running;
    int lost; /* a host was not reached, or was lost */
    int exit_code;
    int signals;           /* signalfd; -1: none */
    struct pollfd *polled; /* the signals, standard output, then each host's output */
    int is_full;           /* standard output: what hosts print has to wait */
    sigset_t mask_before;
    uint64_t stop_time;       /* when this process was first told to stop; 0: not yet */
    uint64_t end_at, kill_at; /* 0: the job goes on */
} remote_launch;

/* ---- The ranks' environment ----------------------------------------------------- */

/* Takes over the text; NULL: its allocation failed. */
static dlc_status add_variable(remote_launch *self, char *text) {
    if (!text)
        return DLC_ERR_NOMEM;
    self->start.environment[self->variables++] = text;
    return DLC_OK;
}

/* The secret goes by its text, and not by a file that may not be there. What another
 * launcher has said of this process is not true of the ranks. */
static int is_passed_on(const char *variable) {
    static const char *const kept[] = {"DLCORE_SECRET", "DLCORE_NODE", "PMIX_", "PMI_",
                                       "OMPI_COMM_WORLD_"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
            return 0;
    return 1;
}

static dlc_status add_secret(remote_launch *self) {
    dlc_secret secret;
    DLC_TRY(dlc_secret_read(&secret));
    if (!secret.length)
        DLC_TRY(dlc_secret_make(&secret));
    return add_variable(self, dlc_format("DLCORE_SECRET=%.*s", (int)secret.length,
                                         (const char *)secret.bytes));
}

/* Rank 0 listens at all addresses of the first host, whose own name may mean loopback
 * there, unless DLCORE_ADDR says otherwise. */
static dlc_status add_hub_address(remote_launch *self) {
    const char *name = self->hosts[0].name, *at = strrchr(name, '@');
    uint16_t number;
    DLC_TRY(dlc_random_bytes(&number, sizeof number));
    DLC_TRY(add_variable(self, dlc_format("MASTER_ADDR=%s", at ? at + 1 : name)));
    DLC_TRY(add_variable(
        self, dlc_format("MASTER_PORT=%d", DLC_FIRST_PORT + number % DLC_PORTS)));
    return dlc_environment_text("DLCORE_ADDR")
               ? DLC_OK
               : add_variable(self, dlc_strdup("DLCORE_ADDR=*"));
}

static dlc_status make_environment(remote_launch *self) {
    enum { ADDED = 5 };
    size_t own = 0;
    while (environ[own])
        own++;
    self->start.environment = dlc_alloc(own + ADDED + 1,
                                        sizeof *self->start.environment);
    if (!self->start.environment)
        return DLC_ERR_NOMEM;
    for (char **variable = environ; *variable; variable++)
        if (is_passed_on(*variable))
            DLC_TRY(add_variable(self, dlc_strdup(*variable)));
    DLC_TRY(add_secret(self));
    DLC_TRY(add_hub_address(self));
    return add_variable(self, dlc_strdup("DLCORE_NODE=1"));
}

/* ---- Starting a host ------------------------------------------------------------ */

/* For a shell on the host; most paths stay as they are, since a launcher without a
 * shell would take quotes for a part of the name. */
static char *quote_for_shell(const char *path) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789/._+-:@%";
    dlc_text text = {0};
    if (!path[strspn(path, plain)])
        return dlc_strdup(path);
    dlc_text_add(&text, "'");
    for (const char *at = path; *at; at++)
        if (*at == '\'')
            dlc_text_add(&text, "'\\''");
        else
            dlc_text_append(&text, at, 1);
    dlc_text_add(&text, "'");
    char *quoted = dlc_text_status(&text) == DLC_OK ? dlc_strdup(text.bytes) : NULL;
    dlc_text_free(&text);
    return quoted;
}

static int is_this_host(const char *name) {
    char own[256];
    dlc_host_name(own, sizeof own);
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0;
}

static const char *launcher_of(const remote_launch *self) {
    return self->args->launcher ? self->args->launcher
                                : "ssh -o BatchMode=yes -o ConnectTimeout=10";
}

enum { WORDS_MAX = 64 };

/* The words of the command that runs `dlcore node` on the host, in `words`; they point
 * into `launcher` and elsewhere. */
static dlc_status make_words(const remote_launch *self, const char *name,
                             char *launcher, char *quoted, const char **words) {
    int count = 0;
    char *rest = NULL;
    if (self->args->launcher || !is_this_host(name)) {
        for (char *word = strtok_r(launcher, " ", &rest); word;
             word = strtok_r(NULL, " ", &rest)) {
            if (count == WORDS_MAX - 4)
                return dlc_fail(DLC_ERR_CONFIG, "--launcher has too many words");
            words[count++] = word;
        }
        words[count++] = name;
        words[count++] = quoted;
    } else {
        words[count++] = self->start.arguments[0];
    }
    words[count++] = "node";
    words[count] = NULL;
    return DLC_OK;
}

/* In the child; never returns. In a session of its own, the launcher does not get the
 * terminal's Ctrl-C, which is for the ranks. */
static void become_launcher(const remote_launch *self, const char *const *words,
                            int input, int output) {
    setsid();
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &self->mask_before, NULL);
    execvp(words[0], (char *const *)words);
    dlc_error("cannot start %s: %s", words[0], strerror(errno));
    _exit(EXIT_NO_LAUNCHER);
}

static dlc_status open_pipe(int ends[2]) {
    char files[DLC_FILES_TEXT];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return dlc_fail(DLC_ERR_UNAVAILABLE, "cannot make a pipe: %s%s",
                        strerror(errno), dlc_files_reason(errno, files));
    return DLC_OK;
}

static dlc_status fork_launcher(remote_launch *self, host *on,
                                const char *const *words) {
    int to[2], from[2];
    DLC_TRY(open_pipe(to));
    on->input = to[1];
    dlc_status status = open_pipe(from);
    if (status != DLC_OK) {
        close(to[0]);
        return status;
    }
    on->output.fd = from[0];
    (void)fcntl(from[0], F_SETFL, O_NONBLOCK);
    on->pid = fork();
    if (on->pid == 0)
        become_launcher(self, words, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    if (on->pid < 0) {
        on->pid = 0;
        return dlc_fail(DLC_ERR_UNAVAILABLE, "cannot start a process: %s",
                        strerror(errno));
    }
    self->running++;
    return DLC_OK;
}

static dlc_status start_launcher(remote_launch *self, host *on) {
    const char *words[WORDS_MAX];
    char *launcher = dlc_strdup(launcher_of(self));
    char *quoted = quote_for_shell(self->start.arguments[0]);
    dlc_status status = launcher && quoted ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = make_words(self, on->name, launcher, quoted, words);
    if (status == DLC_OK)
        status = fork_launcher(self, on, words);
    dlc_free(launcher);
    dlc_free(quoted);
    return status;
}

/* A host that hangs up is noticed when its launcher ends. */
static void send_bytes(const host *to, const char *bytes, size_t length) {
    if (to->input >= 0)
        (void)dlc_write_all(to->input, bytes, length);
}

static dlc_status start_host(remote_launch *self, int index) {
    dlc_text text = {0};
    self->start.local_ranks = self->args->hosts->list[index].ranks;
    dlc_remote_start_write(&self->start, &text);
    dlc_status status = dlc_text_status(&text);
    if (status == DLC_OK)
        status = start_launcher(self, &self->hosts[index]);
    if (status == DLC_OK)
        send_bytes(&self->hosts[index], text.bytes, text.length);
    dlc_text_free(&text);
    self->start.first += self->start.local_ranks;
    return status;
}

/* ---- Ending --------------------------------------------------------------------- */

static void hang_up(remote_launch *self) {
    for (int i = 0; i < self->count; i++)
        dlc_close(&self->hosts[i].input);
    self->kill_at = dlc_awake_ns() + GRACE_NS;
}

static void kill_launchers(const remote_launch *self) {
    for (int i = 0; i < self->count; i++)
        if (self->hosts[i].pid > 0)
            kill(self->hosts[i].pid, SIGKILL);
}

/* What has started has said itself why it ended with any other code. */
static void say_lost(remote_launch *self, const host *on, const dlc_ending *how) {
    int has_started = dlc_remote_output_has_started(&on->output);
    int code = how->number;
    if (how->by_signal)
        dlc_error("host %s was lost: its launcher was killed by signal %d", on->name,
                  code);
    else if (code == 126 || code == 127)
        dlc_error("host %s cannot run %s: dlcore must be there, too, under the same "
                  "path",
                  on->name, self->start.arguments[0]);
    else if (code == 255)
        dlc_error("host %s was %s: its launcher ended with 255%s", on->name,
                  has_started ? "lost" : "not reached",
                  has_started || self->args->launcher
                      ? ""
                      : "; `ssh HOST true` must work without a password");
    else if (!has_started && code != EXIT_NO_LAUNCHER)
        dlc_error("host %s: `%s %s %s node` ended with code %d before its ranks joined "
                  "the job; it must run that program there, and pass standard input "
                  "and output on",
                  on->name, launcher_of(self), on->name, self->start.arguments[0],
                  code);
    else if (has_started)
        return;
    self->lost = 1;
}

static void note_end(remote_launch *self, host *on, const dlc_ending *how) {
    int code = how->by_signal ? EXIT_LOST : how->number;
    on->pid = 0;
    self->running--;
    while (dlc_remote_output_pass_on(&on->output))
        continue;
    if (self->kill_at == 0)
        say_lost(self, on, how);
    if (on == self->hosts)
        self->exit_code = code;
    if ((code != 0 || self->lost) && !self->end_at)
        self->end_at = dlc_awake_ns() + NOTICE_NS;
}

static void find_ended_hosts(remote_launch *self) {
    dlc_ending how;
    for (int i = 0; i < self->count; i++)
        if (self->hosts[i].pid > 0 && dlc_process_has_ended(self->hosts[i].pid, &how)) {
            (void)dlc_process_wait(self->hosts[i].pid);
            note_end(self, &self->hosts[i], &how);
        }
}

/* ---- In between ----------------------------------------------------------------- */

static void handle_signal(remote_launch *self) {
    int signal = dlc_signals_next(self->signals);
    char number = (char)signal;
    if (signal == SIGCHLD) {
        find_ended_hosts(self);
        return;
    }
    if (!signal)
        return;
    send_bytes(&self->hosts[0], &number, 1);
    /* The job ends at once by a second signal, but a host may not hear of it. */
    if ((signal == SIGINT || signal == SIGTERM) &&
        dlc_stop_count(&self->stop_time) == DLC_STOP_AGAIN && !self->end_at)
        self->end_at = dlc_awake_ns();
}

static void poll_all(remote_launch *self) {
    struct pollfd *polled = self->polled;
    polled[0] = (struct pollfd){.fd = self->signals, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = self->is_full ? STDOUT_FILENO : -1,
                                .events = POLLOUT};
    for (int i = 0; i < self->count; i++)
        polled[2 + i] = (struct pollfd){
            .fd = self->is_full ? -1 : self->hosts[i].output.fd, .events = POLLIN};
    if (poll(polled, 2 + (nfds_t)self->count, 200) <= 0)
        polled[0].revents = 0;
}

/* What may not wait for a reader of standard output are signals and the ends of hosts.
 */
static void pass_output_on(remote_launch *self) {
    for (int i = 0; i < self->count; i++) {
        struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
        self->is_full = poll(&out, 1, 0) == 0;
        if (self->is_full)
            return;
        (void)dlc_remote_output_pass_on(&self->hosts[i].output);
    }
}

static void wait_for_hosts(remote_launch *self) {
    while (self->running) {
        poll_all(self);
        if (self->polled[0].revents)
            handle_signal(self);
        pass_output_on(self);
        uint64_t now = dlc_awake_ns();
        if (self->end_at && !self->kill_at && now > self->end_at)
            hang_up(self);
        if (self->kill_at && now > self->kill_at)
            kill_launchers(self);
    }
}

/* ---- All ------------------------------------------------------------------------ */

static dlc_status open_launcher_signals(remote_launch *self) {
    sigset_t signals;
    dlc_rank_signals(&signals);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    return dlc_signals_open(&signals, "the launcher", &self->signals);
}

static dlc_status prepare_launch(remote_launch *self) {
    const dlc_hosts *hosts = self->args->hosts;
    self->hosts = dlc_alloc((size_t)hosts->count, sizeof *self->hosts);
    self->polled = dlc_alloc(2 + (size_t)hosts->count, sizeof *self->polled);
    self->start.folder = getcwd(NULL, 0);
    if (!self->hosts || !self->polled)
        return DLC_ERR_NOMEM;
    if (!self->start.folder)
        return dlc_fail(DLC_ERR_UNAVAILABLE, "the working directory is unknown: %s",
                        strerror(errno));
    for (int i = 0; i < hosts->count; i++)
        self->hosts[i] = (host){
            .name = hosts->list[i].name, .input = -1, .output = {.fd = -1}};
    self->count = hosts->count;
    self->start.ranks = hosts->ranks;
    self->start.arguments = self->args->arguments;
    DLC_TRY(make_environment(self));
    return open_launcher_signals(self);
}

static dlc_status run_hosts(remote_launch *self) {
    DLC_TRY(prepare_launch(self));
    dlc_status status = DLC_OK;
    for (int i = 0; status == DLC_OK && i < self->count; i++)
        status = start_host(self, i);
    if (status != DLC_OK)
        hang_up(self);
    wait_for_hosts(self);
    return status;
}

dlc_status dlc_remote_launch(const dlc_remote_launch_args *args, int *exit_code) {
    remote_launch self = {.args = args, .signals = -1};
    struct sigaction pipe_before;
    sigaction(SIGPIPE, NULL, &pipe_before);
    sigprocmask(SIG_BLOCK, NULL, &self.mask_before);
    dlc_status status = run_hosts(&self);
    if (status == DLC_OK)
        *exit_code = self.lost ? EXIT_LOST : self.exit_code;
    for (int i = 0; i < self.count; i++) {
        dlc_close(&self.hosts[i].input);
        dlc_close(&self.hosts[i].output.fd);
    }
    dlc_close(&self.signals);
    sigprocmask(SIG_SETMASK, &self.mask_before, NULL);
    sigaction(SIGPIPE, &pipe_before, NULL);
    free(self.start.folder);
    self.start.folder = NULL;
    self.start.arguments = NULL; /* the caller's */
    dlc_remote_start_free(&self.start);
    dlc_free(self.polled);
    dlc_free(self.hosts);
    return status;
}
