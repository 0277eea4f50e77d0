/* Writes and reads the message that tells a host what to start, and passes on the
 * host's output. */
#include "job/launch/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/write.h"
#include "job/job.h"
#include "job/supervise.h"

enum { TEXT_MAX = 1 << 20, LIST_MAX = 1 << 16 };

/* ---- Writing -------------------------------------------------------------------- */

static void add_message_text(dlc_text *text, const char *value) {
    dlc_text_append(text, value, strlen(value) + 1);
}

static void add_message_number(dlc_text *text, int number) {
    dlc_text_add(text, "%d", number);
    dlc_text_append(text, "", 1);
}

static void add_message_list(dlc_text *text, char *const *list) {
    int count = 0;
    while (list[count])
        count++;
    add_message_number(text, count);
    for (int i = 0; i < count; i++)
        add_message_text(text, list[i]);
}

void dlc_remote_start_write(const dlc_remote_start *start, dlc_text *text) {
    add_message_text(text, DLC_REMOTE_GREETING);
    add_message_text(text, start->folder);
    add_message_number(text, start->first);
    add_message_number(text, start->local_ranks);
    add_message_number(text, start->ranks);
    add_message_list(text, start->environment);
    add_message_list(text, start->arguments);
}

/* ---- Reading -------------------------------------------------------------------- */

static dlc_status not_ours(void) {
    return dlc_fail(DLC_ERR_PEER, "standard input is not what `dlcore train --hosts` "
                                  "sends: this command is only for its use");
}

/* One byte at a time: what follows the message are signals. */
static dlc_status read_message_text(int fd, char **value) {
    dlc_text text = {0};
    dlc_status status = DLC_OK;
    char byte = 1;
    while (byte && status == DLC_OK) {
        ssize_t got = read(fd, &byte, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || text.length == TEXT_MAX)
            status = not_ours();
        else
            dlc_text_append(&text, &byte, 1);
    }
    if (status == DLC_OK)
        status = dlc_text_status(&text);
    *value = status == DLC_OK ? dlc_strdup(text.bytes) : NULL;
    dlc_text_free(&text);
    return status == DLC_OK && !*value ? DLC_ERR_NOMEM : status;
}

static dlc_status read_message_number(int fd, long least, long most, int *number) {
    char *text = NULL, *end = NULL;
    DLC_TRY(read_message_text(fd, &text));
    long value = strtol(text, &end, 10);
    int right = end != text && !*end && value >= least && value <= most;
    dlc_free(text);
    *number = right ? (int)value : 0;
    return right ? DLC_OK : not_ours();
}

static dlc_status read_message_list(int fd, char ***list) {
    int count;
    DLC_TRY(read_message_number(fd, 0, LIST_MAX, &count));
    *list = dlc_alloc((size_t)count + 1, sizeof **list);
    if (!*list)
        return DLC_ERR_NOMEM;
    for (int i = 0; i < count; i++)
        DLC_TRY(read_message_text(fd, &(*list)[i]));
    return DLC_OK;
}

static dlc_status read_greeting(int fd) {
    char *text = NULL;
    DLC_TRY(read_message_text(fd, &text));
    int right = strcmp(text, DLC_REMOTE_GREETING) == 0;
    dlc_free(text);
    return right ? DLC_OK : not_ours();
}

static dlc_status read_message(int fd, dlc_remote_start *start) {
    DLC_TRY(read_greeting(fd));
    DLC_TRY(read_message_text(fd, &start->folder));
    DLC_TRY(read_message_number(fd, 0, DLC_JOB_RANKS_MAX - 1, &start->first));
    DLC_TRY(read_message_number(fd, 1, DLC_JOB_RANKS_MAX, &start->local_ranks));
    DLC_TRY(read_message_number(fd, 1, DLC_JOB_RANKS_MAX, &start->ranks));
    DLC_TRY(read_message_list(fd, &start->environment));
    DLC_TRY(read_message_list(fd, &start->arguments));
    return start->arguments[0] ? DLC_OK : not_ours();
}

dlc_status dlc_remote_start_read(int fd, dlc_remote_start *start) {
    dlc_remote_start made = {.folder = NULL};
    dlc_status status = read_message(fd, &made);
    if (status == DLC_OK)
        *start = made;
    else
        dlc_remote_start_free(&made);
    return status;
}

static void free_texts(char **list) {
    for (char **text = list; text && *text; text++)
        dlc_free(*text);
    dlc_free(list);
}

void dlc_remote_start_free(dlc_remote_start *start) {
    dlc_free(start->folder);
    free_texts(start->environment);
    free_texts(start->arguments);
    *start = (dlc_remote_start){.folder = NULL};
}

/* ---- Output --------------------------------------------------------------------- */

enum { STARTED = sizeof DLC_REMOTE_STARTED - 1 };

int dlc_remote_output_has_started(const dlc_remote_output *output) {
    return output->matched == STARTED;
}

/* Takes one byte; returns how many bytes of `to` are to be passed on because of it. */
static size_t search_started(dlc_remote_output *output, char byte, char *to) {
    static const char line[] = DLC_REMOTE_STARTED;
    size_t count = 0;
    if (!dlc_remote_output_has_started(output)) {
        if (byte == line[output->matched]) {
            output->matched++;
            return 0;
        }
        for (; count < output->matched; count++)
            to[count] = line[count];
        output->matched = byte == line[0];
        if (output->matched)
            return count;
    }
    to[count++] = byte;
    return count;
}

int dlc_remote_output_pass_on(dlc_remote_output *output) {
    char got[2048], passed[sizeof got + STARTED];
    ssize_t length = output->fd < 0 ? 0 : read(output->fd, got, sizeof got);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length <= 0) {
        dlc_close(&output->fd);
        return 0;
    }
    size_t count = 0;
    for (ssize_t i = 0; i < length; i++)
        count += search_started(output, got[i], passed + count);
    (void)dlc_write_all(STDOUT_FILENO, passed, count);
    return 1;
}
