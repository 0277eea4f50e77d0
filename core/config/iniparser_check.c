/* Compares what the scanner has read with what iniparser reads from the same bytes: a
 * file means only what two strict readers agree on. iniparser gets a large file in
 * parts, since it looks names up by going through all of them. Only functions that
 * exist in 4.1 and 4.2 and survive odd input are used: the struct differs between them,
 * and number getters and dumps are unreliable. iniparser reads a memory file, so that
 * both read the same bytes even if the file on disk changes. */
#include <errno.h>
#include <iniparser.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "base/write.h"
#include "config/internal.h"
#include "config/value.h"

static _Thread_local char last_error[256]; /* iniparser's last error message */

__attribute__((format(printf, 1, 2))) static int keep_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    last_error[strcspn(last_error, "\n")] = '\0';
    return length;
}

static void set_callback(void) {
    iniparser_set_error_callback(keep_error);
}

/* ---- Parts of the file -------------------------------------------------------------
 */

/* A place between two lines that the scanner has read: before a section, if `key` is 0,
 * or before one of its keys. */
typedef struct place {
    size_t section, key;
} place;

typedef struct part {
    place begin, end;
    const char *bytes;
    size_t length;
} part;

/* Moves on by one section or key. 0: there is no other. */
static int move_on(const dlc_config *config, place *at) {
    at->key++;
    if (at->key >= config->sections[at->section].count)
        *at = (place){at->section + 1, 0};
    return at->section < config->count;
}

static int line_at(const dlc_config *config, place at) {
    const dlc_section *section = &config->sections[at.section];
    return at.key ? section->entries[at.key].line : section->line;
}

/* Ends a part that begins at `line` where it has its size, or with the file, and moves
 * *line to the next one. */
static void find_end(const dlc_config *config, const char *end, part *made, int *line) {
    int is_more = 1;
    made->end = made->begin;
    for (int i = 0; i < DLC_CONFIG_PART && is_more; i++)
        is_more = move_on(config, &made->end);
    made->length = (size_t)(end - made->bytes);
    if (!is_more)
        return;
    const char *at = made->bytes, *newline = at;
    for (int next = line_at(config, made->end); *line < next && newline; (*line)++) {
        newline = memchr(at, '\n', (size_t)(end - at));
        at = newline ? newline + 1 : end;
    }
    made->length = (size_t)(at - made->bytes);
}

/* ---- Reading a part ----------------------------------------------------------------
 */

static dlc_status write_memory(int fd, const char *bytes, size_t length) {
    return dlc_write_all(fd, bytes, length) == length
               ? DLC_OK
               : dlc_fail(DLC_ERR_IO, "memory file: %s", strerror(errno));
}

/* A part that begins in a section begins with its name once more. */
static dlc_status memory_file(const dlc_config *config, const part *what, int *fd) {
    char header[DLC_CONFIG_LINE + 4] = "";
    int opened = memfd_create("net.ini", MFD_CLOEXEC);
    if (opened < 0)
        return dlc_fail(DLC_ERR_IO, "memory file: %s", strerror(errno));
    if (what->begin.key)
        (void)snprintf(header, sizeof header, "[%s]\n",
                       config->sections[what->begin.section].name);
    dlc_status status = write_memory(opened, header, strlen(header));
    if (status == DLC_OK)
        status = write_memory(opened, what->bytes, what->length);
    if (status == DLC_OK)
        *fd = opened;
    else
        close(opened);
    return status;
}

/* ---- Comparing ---------------------------------------------------------------------
 */

/* Compares the keys of a section from `begin` on and before `end`. */
static void compare_keys(const dlc_config *config, const dlc_section *section,
                         size_t begin, size_t end, const dictionary *read,
                         dlc_problems *problems) {
    char name[2 * DLC_CONFIG_LINE + 2], ours[DLC_SHOWN], theirs[DLC_SHOWN];
    int count = 0;
    if (iniparser_find_entry(read, section->name))
        count = iniparser_getsecnkeys(read, section->name);
    if (count != (int)(end - begin))
        dlc_problems_add(problems, config, section->line,
                         "[%s] has %zu keys here, but iniparser reads %d",
                         section->name, end - begin, count);
    for (size_t i = begin; i < end; i++) {
        const dlc_entry *entry = &section->entries[i];
        snprintf(name, sizeof name, "%s:%s", section->name, entry->key);
        const char *value = iniparser_getstring(read, name, NULL);
        if (!value)
            dlc_problems_add(problems, config, entry->line,
                             "[%s] %s: iniparser does not see this key", section->name,
                             entry->key);
        else if (strcmp(value, entry->value) != 0)
            dlc_problems_add(problems, config, entry->line,
                             "[%s] %s: \"%s\" here, but iniparser reads \"%s\"; put "
                             "\"...\" around the value",
                             section->name, entry->key, dlc_show(entry->value, ours),
                             dlc_show(value, theirs));
    }
}

static void compare_sections(const dlc_config *config, const part *what,
                             const dictionary *read, dlc_problems *problems) {
    size_t begin = what->begin.section, end = what->end.section + (what->end.key > 0);
    int count = iniparser_getnsec(read);
    if (count != (int)(end - begin))
        dlc_problems_add(problems, config, DLC_LINE_FILE,
                         "%zu sections here, but iniparser reads %d", end - begin,
                         count);
    for (size_t i = begin; i < end; i++) {
        const dlc_section *section = &config->sections[i];
        compare_keys(config, section, i == begin ? what->begin.key : 0,
                     i == what->end.section ? what->end.key : section->count, read,
                     problems);
    }
}

/* Reports that iniparser rejects a part; *rejected: it was. */
static dlc_status compare_part(const dlc_config *config, const part *what,
                               dlc_problems *problems, int *rejected) {
    int fd = -1;
    DLC_TRY(memory_file(config, what, &fd));
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    last_error[0] = '\0';
    dictionary *read = iniparser_load(path);
    close(fd);
    *rejected = !read;
    if (!read) {
        dlc_problems_add(problems, config, DLC_LINE_FILE, "iniparser rejects it%s%s",
                         last_error[0] ? ": " : "", last_error);
        return DLC_OK;
    }
    compare_sections(config, what, read, problems);
    iniparser_freedict(read);
    return DLC_OK;
}

dlc_status dlc_iniparser_compare(const dlc_config *config, const char *bytes,
                                 size_t length, dlc_problems *problems) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_callback);
    const char *end = bytes + length;
    part next = {.bytes = bytes};
    int line = 1, rejected = 0;
    while (next.begin.section < config->count && !rejected) {
        find_end(config, end, &next, &line);
        DLC_TRY(compare_part(config, &next, problems, &rejected));
        next = (part){.begin = next.end, .bytes = next.bytes + next.length};
    }
    return DLC_OK;
}
