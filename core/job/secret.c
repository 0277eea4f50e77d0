/* Reads or makes the job's secret, and computes proofs of it with libcrypto. */
#include "job/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/environment.h"

/* ---- Reading and making it ----------------------------------------------------- */

static dlc_status check_length(const dlc_secret *secret, const char *name) {
    if (secret->length < DLC_SECRET_MIN || secret->length > DLC_SECRET_MAX)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s has %zu characters, but a secret needs %d to %d; "
                        "`openssl rand -hex 32` makes one",
                        name, secret->length, DLC_SECRET_MIN, DLC_SECRET_MAX);
    return DLC_OK;
}

static dlc_status read_open_file(int fd, const char *path, dlc_secret *secret) {
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

static dlc_status read_file(const char *path, dlc_secret *secret) {
    /* O_NONBLOCK, because opening a pipe would block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return dlc_fail(DLC_ERR_CONFIG, "DLCORE_SECRET_FILE=%s cannot be opened: %s",
                        path, strerror(errno));
    dlc_status status = read_open_file(fd, path, secret);
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
        DLC_TRY(read_file(path, &made));
    } else if (text) {
        made.length = strlen(text);
        DLC_TRY(check_length(&made, "DLCORE_SECRET"));
        memcpy(made.bytes, text, made.length);
    }
    *secret = made;
    return DLC_OK;
}

dlc_status dlc_random_bytes(void *bytes, size_t length) {
    if (getrandom(bytes, length, 0) != (ssize_t)length)
        return dlc_fail(DLC_ERR_INTERNAL, "the kernel gives no random bytes");
    return DLC_OK;
}

dlc_status dlc_secret_make(dlc_secret *secret) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[32];
    DLC_TRY(dlc_random_bytes(random, sizeof random));
    secret->length = 2 * sizeof random;
    for (size_t i = 0; i < sizeof random; i++) {
        secret->bytes[2 * i] = (unsigned char)digits[random[i] >> 4];
        secret->bytes[2 * i + 1] = (unsigned char)digits[random[i] & 15];
    }
    return DLC_OK;
}

/* ---- Proofs -------------------------------------------------------------------- */

/* Enough for all messages that are proved: their parts are few and short. */
#define MESSAGE_MAX 1024

dlc_status dlc_secret_prove(const dlc_secret *secret, const dlc_part *parts,
                            size_t count, unsigned char proof[DLC_PROOF_BYTES]) {
    unsigned char message[MESSAGE_MAX];
    size_t length = 0;
    memset(proof, 0, DLC_PROOF_BYTES);
    if (!secret->length)
        return DLC_OK;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = parts[i].length;
        if (bytes > MESSAGE_MAX - sizeof bytes - length)
            return dlc_fail(DLC_ERR_INTERNAL, "the message to prove is too long");
        memcpy(message + length, &bytes, sizeof bytes);
        memcpy(message + length + sizeof bytes, parts[i].bytes, bytes);
        length += sizeof bytes + bytes;
    }
    unsigned written = 0;
    if (!HMAC(EVP_sha256(), secret->bytes, (int)secret->length, message, length, proof,
              &written) ||
        written != DLC_PROOF_BYTES)
        return dlc_fail(DLC_ERR_INTERNAL, "libcrypto cannot compute HMAC-SHA256");
    return DLC_OK;
}

int dlc_proofs_equal(const unsigned char *a, const unsigned char *b) {
    return CRYPTO_memcmp(a, b, DLC_PROOF_BYTES) == 0;
}
