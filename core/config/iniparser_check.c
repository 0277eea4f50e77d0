/* Compares what the scanner has read with what iniparser reads from the same bytes: a
 * file means only what two strict readers agree on. Only functions that exist in 4.1
 * and 4.2 and survive odd input are used: the struct differs between them, and number
 * getters and dumps are unreliable. iniparser reads a memory file, so that both read
 * the same bytes even if the file on disk changes. */
#include <errno.h>
#include <iniparser.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
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

static dlc_status memory_file(const char *bytes, size_t length, int *fd) {
    int opened = memfd_create("net.ini", MFD_CLOEXEC);
    if (opened < 0)
        return dlc_fail(DLC_ERR_IO, "memory file: %s", strerror(errno));
    while (length) {
        ssize_t n = write(opened, bytes, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            close(opened);
            return dlc_fail(DLC_ERR_IO, "memory file: %s", strerror(errno));
        }
        bytes += n;
        length -= (size_t)n;
    }
    *fd = opened;
    return DLC_OK;
}

static void compare_section(const dlc_config *config, const dlc_section *section,
                            const dictionary *read, dlc_problems *problems) {
    char name[2 * DLC_CONFIG_LINE + 2], ours[DLC_SHOWN], theirs[DLC_SHOWN];
    int count = 0;
    if (iniparser_find_entry(read, section->name))
        count = iniparser_getsecnkeys(read, section->name);
    if (count != (int)section->count)
        dlc_problems_add(problems, config, section->line,
                         "[%s] has %zu keys here, but iniparser reads %d",
                         section->name, section->count, count);
    for (size_t i = 0; i < section->count; i++) {
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

dlc_status dlc_iniparser_compare(const dlc_config *config, const char *bytes,
                                 size_t length, dlc_problems *problems) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_callback);
    int fd = -1;
    DLC_TRY(memory_file(bytes, length, &fd));
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    last_error[0] = '\0';
    dictionary *read = iniparser_load(path);
    close(fd);
    if (!read) {
        dlc_problems_add(problems, config, DLC_LINE_FILE, "iniparser rejects it%s%s",
                         last_error[0] ? ": " : "", last_error);
        return DLC_OK;
    }
    int count = iniparser_getnsec(read);
    if (count != (int)config->count)
        dlc_problems_add(problems, config, DLC_LINE_FILE,
                         "%zu sections here, but iniparser reads %d", config->count,
                         count);
    for (size_t i = 0; i < config->count; i++)
        compare_section(config, &config->sections[i], read, problems);
    iniparser_freedict(read);
    return DLC_OK;
}
