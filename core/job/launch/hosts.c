/* Reads lists of hosts. */
#include "job/launch/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "job/job.h"

/* Where the text stands, for messages. */
typedef struct place {
    const char *path; /* NULL: the option */
    int line;
} place;

static dlc_status wrong(const place *at, const char *text, const char *why) {
    if (at->path)
        return dlc_fail(DLC_ERR_CONFIG, "%s, line %d: '%s': %s", at->path, at->line,
                        text, why);
    return dlc_fail(DLC_ERR_CONFIG, "--hosts: '%s': %s", text, why);
}

/* ---- One host ---------------------------------------------------------------------
 */

/* A host that is named again gets more ranks, as PBS lists a node once for each of its
 * processes. */
static dlc_status add_host(const place *at, const char *text, const char *name,
                           size_t length, long ranks, dlc_hosts *hosts) {
    if (!length || strspn(name, "-") || memchr(name, ' ', length))
        return wrong(at, text, "that is no host's name");
    if (ranks < 1 || ranks > DLC_JOB_RANKS_MAX - hosts->ranks)
        return wrong(at, text, "a job has 1 to 1024 ranks");
    for (int i = 0; i < hosts->count; i++)
        if (strncmp(hosts->list[i].name, name, length) == 0 &&
            !hosts->list[i].name[length]) {
            hosts->list[i].ranks += (int)ranks;
            hosts->ranks += (int)ranks;
            return DLC_OK;
        }
    dlc_job_host *grown = dlc_grow_by_one(hosts->list, (size_t)hosts->count,
                                          sizeof *hosts->list);
    if (!grown)
        return DLC_ERR_NOMEM;
    hosts->list = grown;
    char *copy = dlc_strndup(name, length);
    if (!copy)
        return DLC_ERR_NOMEM;
    hosts->list[hosts->count++] = (dlc_job_host){.name = copy, .ranks = (int)ranks};
    hosts->ranks += (int)ranks;
    return DLC_OK;
}

/* The number after the name; *ranks is 0 if it is none. */
static void read_ranks(const char *text, long *ranks) {
    char *end = NULL;
    long value = strtol(text, &end, 10);
    *ranks = text[0] >= '0' && text[0] <= '9' && !*end ? value : 0;
}

/* "HOST", "HOST:RANKS", "[ADDRESS]:RANKS"; an IPv6 address without brackets has several
 * colons. `count` is a number of ranks that follows, or NULL. */
static dlc_status read_host(const place *at, const char *text, const char *count,
                            dlc_hosts *hosts) {
    const char *name = text, *colon = strchr(text, ':');
    size_t length = strlen(text);
    long ranks = 1;
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (!close || (close[1] && close[1] != ':'))
            return wrong(at, text, "the bracket is not closed");
        name = text + 1;
        length = (size_t)(close - name);
        colon = close[1] ? close + 1 : NULL;
    } else if (colon && strchr(colon + 1, ':')) {
        colon = NULL;
    } else if (colon) {
        length = (size_t)(colon - text);
    }
    if (colon && count)
        return wrong(at, text, "the number of ranks is given twice");
    if (colon || count)
        read_ranks(colon ? colon + 1 : count, &ranks);
    return add_host(at, text, name, length, ranks, hosts);
}

/* ---- The option ---------------------------------------------------------------------
 */

static dlc_status read_option(char *text, dlc_hosts *hosts) {
    const place at = {.path = NULL};
    char *rest = text;
    for (char *part = strsep(&rest, ","); part; part = strsep(&rest, ","))
        DLC_TRY(read_host(&at, part, NULL, hosts));
    return DLC_OK;
}

dlc_status dlc_hosts_parse(const char *text, dlc_hosts *hosts) {
    dlc_hosts made = {.list = NULL};
    char *copy = dlc_strdup(text);
    if (!copy)
        return DLC_ERR_NOMEM;
    dlc_status status = read_option(copy, &made);
    dlc_free(copy);
    if (status == DLC_OK)
        *hosts = made;
    else
        dlc_hosts_free(&made);
    return status;
}

/* ---- The file -----------------------------------------------------------------------
 */

/* "HOST:RANKS", "HOST RANKS" or "HOST slots=RANKS". Open MPI's max_slots, and the queue
 * and CPUs that follow a number in Grid Engine's files, do not matter. */
static dlc_status read_host_line(const place *at, char *line, dlc_hosts *hosts) {
    static const char slots[] = "slots=";
    line[strcspn(line, "#\r\n")] = '\0';
    char *rest = NULL, *name = strtok_r(line, " \t", &rest);
    char *count = name ? strtok_r(NULL, " \t", &rest) : NULL, *more;
    if (!name)
        return DLC_OK;
    int is_plain = count && strspn(count, "0123456789") == strlen(count);
    int is_slots = count && strncmp(count, slots, strlen(slots)) == 0;
    if (count && !is_plain && !is_slots)
        return wrong(at, count, "after the host may follow RANKS or slots=RANKS");
    while (is_slots && (more = strtok_r(NULL, " \t", &rest)))
        if (strncmp(more, "max_slots=", 10) != 0 &&
            strncmp(more, "max-slots=", 10) != 0)
            return wrong(at, more, "after slots=RANKS may follow max_slots=RANKS");
    return read_host(at, name, is_slots ? count + strlen(slots) : count, hosts);
}

static dlc_status read_lines(FILE *file, const char *path, dlc_hosts *hosts) {
    place at = {.path = path};
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        at.line++;
        if (strlen(line) == sizeof line - 1)
            return wrong(&at, "...", "the line is too long");
        DLC_TRY(read_host_line(&at, line, hosts));
    }
    if (ferror(file))
        return dlc_fail(DLC_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    return hosts->count ? DLC_OK : dlc_fail(DLC_ERR_CONFIG, "%s names no host", path);
}

dlc_status dlc_hosts_read(const char *path, dlc_hosts *hosts) {
    dlc_hosts made = {.list = NULL};
    FILE *file = fopen(path, "re");
    if (!file)
        return dlc_fail(DLC_ERR_CONFIG, "the list of hosts %s cannot be opened: %s",
                        path, strerror(errno));
    dlc_status status = read_lines(file, path, &made);
    (void)fclose(file);
    if (status == DLC_OK)
        *hosts = made;
    else
        dlc_hosts_free(&made);
    return status;
}

void dlc_hosts_free(dlc_hosts *hosts) {
    for (int i = 0; i < hosts->count; i++)
        dlc_free(hosts->list[i].name);
    dlc_free(hosts->list);
    *hosts = (dlc_hosts){.list = NULL};
}
