/* Sums up the loader's cache and search path, device files, whether /proc is there, the
 * environment and the limits of this process. */
#include "plugin/system_stamp.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "plugin/cache.h"

enum { LONGEST_S = 3600 };

static uint64_t text_stamp(const char *text) {
    return dlc_cache_checksum(text, strlen(text));
}

/* A folder changes when a file is added to it. */
static uint64_t file_stamp(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0)
        return 0;
    const uint64_t parts[] = {text_stamp(path),
                              info.st_dev,
                              info.st_ino,
                              (uint64_t)info.st_size,
                              (uint64_t)info.st_mtim.tv_sec,
                              (uint64_t)info.st_mtim.tv_nsec};
    return dlc_cache_checksum((const char *)parts, sizeof parts);
}

/* The folders in which the loader looks for libraries, LD_LIBRARY_PATH included. */
static uint64_t search_path_stamp(void) {
    Dl_serinfo size, *path = NULL;
    uint64_t sum = 0;
    void *program = dlopen(NULL, RTLD_LAZY);
    if (program && dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0)
        path = dlc_alloc(1, size.dls_size);
    if (path && dlinfo(program, RTLD_DI_SERINFOSIZE, path) == 0 &&
        dlinfo(program, RTLD_DI_SERINFO, path) == 0)
        for (unsigned i = 0; i < path->dls_cnt; i++)
            sum += file_stamp(path->dls_serpath[i].dls_name);
    dlc_free(path);
    if (program)
        dlclose(program);
    return sum;
}

/* Without what a shell changes all the time. */
static uint64_t environment_stamp(void) {
    static const char *const ignored[] = {"_=", "PWD=", "OLDPWD=", "SHLVL="};
    uint64_t sum = 0;
    for (char **variable = environ; variable && *variable; variable++) {
        int counts = 1;
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
            counts &= strncmp(*variable, ignored[i], strlen(ignored[i])) != 0;
        sum += counts ? text_stamp(*variable) : 0;
    }
    return sum;
}

/* A plugin that fails under the limits of one shell may work in another one. */
static uint64_t limits_stamp(void) {
    struct rlimit limits[RLIM_NLIMITS] = {{0}};
    for (int i = 0; i < RLIM_NLIMITS; i++)
        (void)getrlimit((__rlimit_resource_t)i, &limits[i]);
    return dlc_cache_checksum((const char *)limits, sizeof limits);
}

uint64_t dlc_system_stamp(void) {
    const uint64_t parts[] = {file_stamp("/etc/ld.so.cache"),
                              file_stamp("/dev"),
                              file_stamp("/proc"),
                              search_path_stamp(),
                              environment_stamp(),
                              limits_stamp(),
                              (uint64_t)time(NULL) / LONGEST_S};
    return dlc_cache_checksum((const char *)parts, sizeof parts) | 1;
}
