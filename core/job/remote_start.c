/* Writes and reads what a host is told to start. */
#include "job/remote_start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "job/job.h"

enum { TEXT_MAX = 1 << 20, LIST_MAX = 1 << 16 };

/* ---- Writing ------------------------------------------------------------------------
 */

static void add_text(dlc_text *text, const char *value) {
    dlc_text_append(text, value, strlen(value) + 1);
}

static void add_number(dlc_text *text, int number) {
    dlc_text_add(text, "%d", number);
    dlc_text_append(text, "", 1);
}

static void add_list(dlc_text *text, char *const *list) {
    int count = 0;
    while (list[count])
        count++;
    add_number(text, count);
    for (int i = 0; i < count; i++)
        add_text(text, list[i]);
}

void dlc_remote_start_write(const dlc_remote_start *start, dlc_text *text) {
    add_text(text, DLC_REMOTE_GREETING);
    add_text(text, start->folder);
    add_number(text, start->first);
    add_number(text, start->local_ranks);
    add_number(text, start->ranks);
    add_list(text, start->environment);
    add_list(text, start->arguments);
}

/* ---- Reading ------------------------------------------------------------------------
 */

static dlc_status not_ours(void) {
    return dlc_fail(DLC_ERR_PEER, "standard input is not what `dlcore train --hosts` "
                                  "sends: this command is only for its use");
}

/* One byte at a time: what follows the message are signals. */
static dlc_status read_text(int fd, char **value) {
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

static dlc_status read_number(int fd, long least, long most, int *number) {
    char *text = NULL, *end = NULL;
    DLC_TRY(read_text(fd, &text));
    long value = strtol(text, &end, 10);
    int right = end != text && !*end && value >= least && value <= most;
    dlc_free(text);
    *number = right ? (int)value : 0;
    return right ? DLC_OK : not_ours();
}

static dlc_status read_list(int fd, char ***list) {
    int count;
    DLC_TRY(read_number(fd, 0, LIST_MAX, &count));
    *list = dlc_alloc((size_t)count + 1, sizeof **list);
    if (!*list)
        return DLC_ERR_NOMEM;
    for (int i = 0; i < count; i++)
        DLC_TRY(read_text(fd, &(*list)[i]));
    return DLC_OK;
}

static dlc_status read_greeting(int fd) {
    char *text = NULL;
    DLC_TRY(read_text(fd, &text));
    int right = strcmp(text, DLC_REMOTE_GREETING) == 0;
    dlc_free(text);
    return right ? DLC_OK : not_ours();
}

static dlc_status read_all(int fd, dlc_remote_start *start) {
    DLC_TRY(read_greeting(fd));
    DLC_TRY(read_text(fd, &start->folder));
    DLC_TRY(read_number(fd, 0, DLC_JOB_RANKS_MAX - 1, &start->first));
    DLC_TRY(read_number(fd, 1, DLC_JOB_RANKS_MAX, &start->local_ranks));
    DLC_TRY(read_number(fd, 1, DLC_JOB_RANKS_MAX, &start->ranks));
    DLC_TRY(read_list(fd, &start->environment));
    DLC_TRY(read_list(fd, &start->arguments));
    return start->arguments[0] ? DLC_OK : not_ours();
}

dlc_status dlc_remote_start_read(int fd, dlc_remote_start *start) {
    dlc_remote_start made = {.folder = NULL};
    dlc_status status = read_all(fd, &made);
    if (status == DLC_OK)
        *start = made;
    else
        dlc_remote_start_free(&made);
    return status;
}

static void free_list(char **list) {
    for (char **text = list; text && *text; text++)
        dlc_free(*text);
    dlc_free(list);
}

void dlc_remote_start_free(dlc_remote_start *start) {
    dlc_free(start->folder);
    free_list(start->environment);
    free_list(start->arguments);
    *start = (dlc_remote_start){.folder = NULL};
}
