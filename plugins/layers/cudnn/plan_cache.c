/* Reads and writes the files of the plan cache; a checksum covers key and text. */
#include "plan_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, MOST_TEXT = 256 << 20, MOST_KEY = 1 << 16 };

/* The header of a file; key and text follow. */
typedef struct head {
    char magic[16];
    uint64_t key_bytes, text_bytes, sum; /* FNV-1a of key and text */
} head;

static const char magic[16] = "dlcore-plan-1";

/* The 64-bit FNV-1a hash of Fowler, Noll and Vo. */
static uint64_t hash(uint64_t start, const void *data, size_t bytes) {
    const uint64_t prime = 0x100000001b3;
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        start = (start ^ at[i]) * prime;
    return start;
}

static const uint64_t HASH_START = 0xcbf29ce484222325;

static head head_of(const char *key, const char *text, size_t bytes) {
    head h = {.key_bytes = strlen(key), .text_bytes = bytes};
    memcpy(h.magic, magic, sizeof magic);
    h.sum = hash(hash(HASH_START, key, h.key_bytes), text, bytes);
    return h;
}

/* ---- Where ------------------------------------------------------------------- */

/* The cache folder; created if `make`. Returns 0 if there is none. */
static int folder(char path[PATH_BYTES], int make) {
    const char *off = secure_getenv("DLCORE_CUDNN_CACHE");
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    const char *const below[] = {"", "/dlcore", "/cudnn"};
    char root[PATH_BYTES / 2];
    int n = 0;
    if (off && strcmp(off, "no") == 0)
        return 0;
    if (cache && cache[0] == '/') /* the XDG standard ignores relative paths */
        n = snprintf(root, sizeof root, "%s", cache);
    else if (home && home[0] == '/')
        n = snprintf(root, sizeof root, "%s/.cache", home);
    if (n <= 0 || (size_t)n >= sizeof root)
        return 0;
    size_t used = (size_t)snprintf(path, PATH_BYTES, "%s", root);
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        used += (size_t)snprintf(path + used, PATH_BYTES - used, "%s", below[i]);
        if (make && mkdir(path, 0700) != 0 && errno != EEXIST)
            return 0;
    }
    return 1;
}

static int file_of(const char *key, int make, char path[PATH_BYTES]) {
    if (!folder(path, make))
        return 0;
    size_t used = strlen(path);
    int n = snprintf(path + used, PATH_BYTES - used, "/%016llx.plan",
                     (unsigned long long)hash(HASH_START, key, strlen(key)));
    return n > 0 && (size_t)n < PATH_BYTES - used;
}

/* ---- Reading ----------------------------------------------------------------- */

static int read_all(int file, void *to, size_t bytes) {
    char *at = to;
    while (bytes) {
        ssize_t n = read(file, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        bytes -= (size_t)n;
    }
    return 1;
}

/* A regular file of this user, of the size that its header says. */
static int fits(int file, const head *h, const char *key) {
    struct stat is;
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->key_bytes != strlen(key) ||
        h->key_bytes > MOST_KEY || h->text_bytes > MOST_TEXT || !h->text_bytes)
        return 0;
    return fstat(file, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == geteuid() &&
           (uint64_t)is.st_size == sizeof *h + h->key_bytes + h->text_bytes;
}

static char *read_text(int file, const char *key, size_t *bytes) {
    head h;
    if (!read_all(file, &h, sizeof h) || !fits(file, &h, key))
        return NULL;
    char *both = host->alloc(h.key_bytes + h.text_bytes + 1);
    if (!both)
        return NULL;
    char *text = both + h.key_bytes;
    if (!read_all(file, both, h.key_bytes + h.text_bytes) ||
        memcmp(both, key, h.key_bytes) != 0 ||
        head_of(key, text, h.text_bytes).sum != h.sum) {
        host->free(both);
        return NULL;
    }
    memmove(both, text, h.text_bytes);
    both[h.text_bytes] = 0;
    *bytes = h.text_bytes;
    return both;
}

char *plan_cache_load(const char *key, size_t *bytes) {
    char path[PATH_BYTES];
    if (!file_of(key, 0, path))
        return NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return NULL;
    char *text = read_text(file, key, bytes);
    (void)close(file);
    return text;
}

/* ---- Writing ----------------------------------------------------------------- */

static int write_all(int file, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes) {
        ssize_t n = write(file, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        bytes -= (size_t)n;
    }
    return 1;
}

void plan_cache_store(const char *key, const char *text, size_t bytes) {
    char path[PATH_BYTES], temporary[PATH_BYTES + 16];
    if (!bytes || bytes > MOST_TEXT || strlen(key) > MOST_KEY || !file_of(key, 1, path))
        return;
    (void)snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int file = mkostemp(temporary, O_CLOEXEC);
    if (file < 0)
        return;
    const head h = head_of(key, text, bytes);
    int written = write_all(file, &h, sizeof h) && write_all(file, key, h.key_bytes) &&
                  write_all(file, text, bytes);
    written &= close(file) == 0;
    if (!written || rename(temporary, path) != 0)
        (void)unlink(temporary);
}
