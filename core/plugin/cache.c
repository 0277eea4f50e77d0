/* Reads and writes the cache file: a header line; for each file its path, size and
 * times, and its report; and a checksum over everything. */
#include "plugin/cache.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "plugin/entry.h"

#define STRING(x) #x
#define NUMBER(x) STRING(x)
#define HEADER \
    "dlcore " DLC_VERSION ": plugins of interface " NUMBER(DLC_ABI_MAJOR) "." NUMBER( \
        DLC_ABI_MINOR) ", layout 3\n"
#define BYTES_MAX (64u << 20)
#define FILES_MAX 1024u /* beyond that, files not seen this time are dropped */

/* ---- Where ------------------------------------------------------------------- */

/* Whether a folder belongs to this user; with `make` it is created, if its parent does
 * (sudo may keep HOME). */
static int is_own_folder(char *path, int make) {
    struct stat info;
    if (stat(path, &info) != 0) {
        char *slash = strrchr(path, '/');
        if (!make || errno != ENOENT || slash == path)
            return 0;
        *slash = '\0';
        int may = stat(path, &info) == 0 && info.st_uid == geteuid();
        *slash = '/';
        if (!may || (mkdir(path, 0700) != 0 && errno != EEXIST) ||
            stat(path, &info) != 0)
            return 0;
    }
    return S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

/* The path of the cache file, or with `make` a template for mkostemp(); 0 if there can
 * be none. */
static int find_cache_path(char *path, int make) {
    const char *ending = make ? ".XXXXXX" : "";
    char host[HOST_NAME_MAX + 1] = "";
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = 0;
    if (gethostname(host, sizeof host - 1) != 0)
        return 0;
    for (char *c = host; *c; c++)
        if (*c == '/')
            *c = '_';
    if (cache && cache[0] == '/')
        n = snprintf(path, PATH_MAX, "%s", cache);
    else if (home && home[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/.cache", home);
    if (n < 1 ||
        (size_t)n + sizeof "/dlcore/plugins." + strlen(host) + strlen(ending) >=
            PATH_MAX)
        return 0;
    if (!is_own_folder(path, make))
        return 0;
    memcpy(path + n, "/dlcore", sizeof "/dlcore");
    if (!is_own_folder(path, make))
        return 0;
    (void)snprintf(path + n, PATH_MAX - (size_t)n, "/dlcore/plugins.%s%s", host,
                   ending);
    return 1;
}

/* ---- Reading ----------------------------------------------------------------- */

uint64_t dlc_cache_checksum(const char *bytes, size_t size) {
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        // bytes of numbers
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
        sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return sum;
}

/* A file that other users may write is not trusted. */
static int is_trusted(const struct stat *info) {
    return S_ISREG(info->st_mode) && info->st_uid == geteuid() &&
           !(info->st_mode & (S_IWGRP | S_IWOTH)) && info->st_size > 0 &&
           info->st_size <= BYTES_MAX;
}

static dlc_status read_whole(dlc_cache *cache) {
    char path[PATH_MAX];
    struct stat info;
    if (!find_cache_path(path, 0))
        return DLC_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return DLC_OK;
    dlc_status rc = DLC_OK;
    if (fstat(fd, &info) == 0 && is_trusted(&info)) {
        cache->bytes = dlc_alloc((size_t)info.st_size, 1);
        if (!cache->bytes)
            rc = DLC_ERR_NOMEM;
        else if (read(fd, cache->bytes, (size_t)info.st_size) == info.st_size)
            cache->size = (size_t)info.st_size;
    }
    close(fd);
    return rc;
}

static void pack_file(const dlc_cached *file, dlc_text *bytes) {
    const struct stat *info = &file->info;
    dlc_pack_text(bytes, file->path);
    dlc_pack_number(bytes, info->st_dev);
    dlc_pack_number(bytes, info->st_ino);
    dlc_pack_number(bytes, (uint64_t)info->st_size);
    dlc_pack_number(bytes, (uint64_t)info->st_mtim.tv_sec);
    dlc_pack_number(bytes, (uint64_t)info->st_mtim.tv_nsec);
    dlc_pack_number(bytes, (uint64_t)info->st_ctim.tv_sec);
    dlc_pack_number(bytes, (uint64_t)info->st_ctim.tv_nsec);
    dlc_pack_number(bytes, file->system);
    dlc_pack_number(bytes, file->size);
    dlc_text_append(bytes, file->report, file->size);
}

static void unpack_file(dlc_unpacking *from, dlc_cached *file) {
    struct stat *info = &file->info;
    file->path = dlc_unpack_text(from);
    info->st_dev = (dev_t)dlc_unpack_number(from);
    info->st_ino = (ino_t)dlc_unpack_number(from);
    info->st_size = (off_t)dlc_unpack_number(from);
    info->st_mtim.tv_sec = (time_t)dlc_unpack_number(from);
    info->st_mtim.tv_nsec = (long)dlc_unpack_number(from);
    info->st_ctim.tv_sec = (time_t)dlc_unpack_number(from);
    info->st_ctim.tv_nsec = (long)dlc_unpack_number(from);
    file->system = dlc_unpack_number(from);
    file->size = dlc_unpack_number(from);
    file->report = from->next;
    from->failed |= !file->path || file->size > from->left;
    if (from->failed)
        return;
    from->next += file->size;
    from->left -= file->size;
}

/* Unpacks what follows the header line. */
static dlc_status unpack_files(dlc_cache *cache) {
    const size_t begin = sizeof HEADER - 1;
    uint64_t sum;
    if (cache->size < begin + sizeof sum || memcmp(cache->bytes, HEADER, begin) != 0)
        return DLC_OK;
    const size_t end = cache->size - sizeof sum;
    memcpy(&sum, cache->bytes + end, sizeof sum);
    if (sum != dlc_cache_checksum(cache->bytes, end))
        return DLC_OK;
    dlc_unpacking from = {.next = cache->bytes + begin, .left = end - begin};
    uint64_t files = dlc_unpack_number(&from);
    if (files > FILES_MAX)
        return DLC_OK;
    cache->file = dlc_alloc(files, sizeof *cache->file);
    if (!cache->file)
        return DLC_ERR_NOMEM;
    for (; cache->files < files && !from.failed; cache->files++)
        unpack_file(&from, &cache->file[cache->files]);
    if (from.failed)
        cache->files = 0;
    return DLC_OK;
}

dlc_status dlc_cache_read(dlc_cache *cache) {
    dlc_status rc = read_whole(cache);
    if (rc == DLC_OK)
        rc = unpack_files(cache);
    if (rc != DLC_OK)
        dlc_cache_free(cache);
    return rc;
}

void dlc_cache_free(dlc_cache *cache) {
    dlc_free(cache->file);
    dlc_free(cache->bytes);
    *cache = (dlc_cache){0};
}

static int same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

int dlc_stat_same_bytes(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
           a->st_size == b->st_size && same_time(&a->st_mtim, &b->st_mtim);
}

/* Whether two stats describe the same, unchanged file. */
static int is_same_file(const struct stat *a, const struct stat *b) {
    return dlc_stat_same_bytes(a, b) && same_time(&a->st_ctim, &b->st_ctim);
}

const dlc_cached *dlc_cache_find(const dlc_cache *cache, const char *path,
                                 const struct stat *info, uint64_t system) {
    for (size_t i = 0; i < cache->files; i++) {
        const dlc_cached *file = &cache->file[i];
        if (!strcmp(file->path, path))
            return is_same_file(&file->info, info) &&
                           (!file->system || file->system == system)
                       ? file
                       : NULL;
    }
    return NULL;
}

/* ---- Writing ----------------------------------------------------------------- */

/* Whether it is an entry for a file of another folder, not searched this time, that
 * still exists. */
static int is_other(const dlc_cached *old, const dlc_cached *file, size_t files) {
    struct stat now;
    for (size_t i = 0; i < files; i++)
        if (!strcmp(file[i].path, old->path))
            return 0;
    return stat(old->path, &now) == 0 && is_same_file(&now, &old->info);
}

static void pack_files(const dlc_cached *file, size_t files, const dlc_cache *before,
                       dlc_text *bytes) {
    uint64_t count = 0;
    dlc_text packed = {0};
    for (size_t i = 0; i < files && count < FILES_MAX; i++)
        if (file[i].report && ++count)
            pack_file(&file[i], &packed);
    for (size_t i = 0; i < before->files && count < FILES_MAX; i++)
        if (is_other(&before->file[i], file, files) && ++count)
            pack_file(&before->file[i], &packed);
    dlc_text_append(bytes, HEADER, sizeof HEADER - 1);
    dlc_pack_number(bytes, count);
    dlc_text_append_text(bytes, &packed);
    if (!bytes->failed)
        dlc_pack_number(bytes, dlc_cache_checksum(bytes->bytes, bytes->length));
    dlc_text_free(&packed);
}

static void replace_cache(const dlc_text *bytes) {
    char path[PATH_MAX], made[PATH_MAX];
    if (!find_cache_path(made, 1) || !find_cache_path(path, 0))
        return;
    int fd = mkostemp(made, O_CLOEXEC);
    if (fd < 0)
        return;
    int whole = write(fd, bytes->bytes, bytes->length) == (ssize_t)bytes->length;
    if (close(fd) != 0 || !whole || rename(made, path) != 0)
        (void)unlink(made);
}

dlc_status dlc_cache_write(const dlc_cached *file, size_t files,
                           const dlc_cache *before) {
    dlc_text bytes = {0};
    pack_files(file, files, before, &bytes);
    dlc_status rc = dlc_text_status(&bytes);
    if (rc == DLC_OK)
        replace_cache(&bytes);
    dlc_text_free(&bytes);
    return rc;
}

void dlc_cache_drop(void) {
    char path[PATH_MAX];
    if (find_cache_path(path, 0))
        (void)unlink(path);
}

/* ---- The stamp of the system ------------------------------------------------------
 */

/* It sums up the loader's cache and search path, device files, whether /proc is there,
 * the environment and the limits of this process. */

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
