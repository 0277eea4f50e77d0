/* Reads variables of the environment, and the secret that they hold or name. */
#include "job/launch/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *dlc_environment_text(const char *name) {
    const char *text = getenv(name);
    return text && text[0] ? text : NULL;
}

dlc_status dlc_environment_number(const char *name, long most, long *number) {
    const char *text = dlc_environment_text(name);
    *number = -1;
    if (!text)
        return DLC_OK;
    char *end;
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || end - text > 10 || value > most)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=%s in the environment is not a number from 0 to %ld", name,
                        text, most);
    *number = value;
    return DLC_OK;
}

/* ---- The secret ------------------------------------------------------------------ */

static dlc_status check_length(const dlc_secret *secret, const char *name) {
    if (secret->length < DLC_SECRET_MIN || secret->length > DLC_SECRET_MAX)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s has %zu characters, but a secret needs %d to %d; "
                        "`openssl rand -hex 32` makes one",
                        name, secret->length, DLC_SECRET_MIN, DLC_SECRET_MAX);
    return DLC_OK;
}

static dlc_status read_secret_from(int fd, const char *path, dlc_secret *secret) {
    struct stat found;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode))
        return dlc_fail(DLC_ERR_CONFIG, "DLCORE_SECRET_FILE=%s is not a file", path);
    if (found.st_mode & (S_IRWXG | S_IRWXO))
        return dlc_fail(DLC_ERR_CONFIG,
                        "other users may read or write %s, which holds the job's "
                        "secret: chmod 600 it",
                        path);
    if (found.st_uid != geteuid() && found.st_uid != 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s, which holds the job's secret, belongs to another user",
                        path);
    if (found.st_size > DLC_SECRET_MAX)
        return dlc_fail(DLC_ERR_CONFIG, "%s is too long for a secret: %d bytes at most",
                        path, DLC_SECRET_MAX);
    ssize_t got = read(fd, secret->bytes, sizeof secret->bytes);
    if (got < 0)
        return dlc_fail(DLC_ERR_CONFIG, "the secret in %s cannot be read: %s", path,
                        strerror(errno));
    secret->length = (size_t)got;
    if (secret->length && secret->bytes[secret->length - 1] == '\n')
        secret->length--;
    return check_length(secret, path);
}

static dlc_status read_secret_file(const char *path, dlc_secret *secret) {
    /* O_NONBLOCK, because opening a pipe would block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return dlc_fail(DLC_ERR_CONFIG, "DLCORE_SECRET_FILE=%s cannot be opened: %s",
                        path, strerror(errno));
    dlc_status status = read_secret_from(fd, path, secret);
    close(fd);
    return status;
}

dlc_status dlc_secret_read(dlc_secret *secret) {
    const char *text = dlc_environment_text("DLCORE_SECRET");
    const char *path = dlc_environment_text("DLCORE_SECRET_FILE");
    dlc_secret made = {.length = 0};
    if (text && path)
        return dlc_fail(DLC_ERR_CONFIG, "both DLCORE_SECRET and DLCORE_SECRET_FILE are "
                                        "set; unset one of them");
    if (path) {
        DLC_TRY(read_secret_file(path, &made));
    } else if (text) {
        made.length = strlen(text);
        DLC_TRY(check_length(&made, "DLCORE_SECRET"));
        memcpy(made.bytes, text, made.length);
    }
    *secret = made;
    return DLC_OK;
}
