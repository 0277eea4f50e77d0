/* Makes a secret, computes proofs of it with libcrypto, and makes and checks the three
 * messages of the handshake. */
#include "job/hub/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

/* ---- The secret ----------------------------------------------------------------- */

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

/* ---- The messages --------------------------------------------------------------- */

static const char magic_bytes[8] = {'d', 'l', 'c', '-', 'j', 'o', 'b', '\n'};

int dlc_magic_is_valid(const char magic[8]) {
    return memcmp(magic, magic_bytes, sizeof magic_bytes) == 0;
}

dlc_status dlc_challenge_make(const dlc_secret *secret, dlc_challenge *challenge) {
    memset(challenge, 0, sizeof *challenge);
    memcpy(challenge->magic, magic_bytes, sizeof magic_bytes);
    challenge->protocol = DLC_PROTOCOL;
    challenge->secured = secret->length > 0;
    return dlc_random_bytes(challenge->nonce, sizeof challenge->nonce);
}

static dlc_status prove_hello(const dlc_secret *secret, const dlc_challenge *challenge,
                              const dlc_hello *hello,
                              unsigned char proof[DLC_PROOF_BYTES]) {
    static const char label[] = "dlcore agent";
    dlc_part parts[] = {{label, sizeof label},
                        {challenge, sizeof *challenge},
                        {hello, offsetof(dlc_hello, proof)}};
    return dlc_secret_prove(secret, parts, 3, proof);
}

static dlc_status prove_welcome(const dlc_secret *secret,
                                const dlc_challenge *challenge, const dlc_hello *hello,
                                const dlc_welcome *welcome,
                                unsigned char proof[DLC_PROOF_BYTES]) {
    static const char label[] = "dlcore hub";
    dlc_part parts[] = {{label, sizeof label},
                        {challenge, sizeof *challenge},
                        {hello, offsetof(dlc_hello, proof)},
                        {welcome, offsetof(dlc_welcome, proof)}};
    return dlc_secret_prove(secret, parts, 4, proof);
}

dlc_status dlc_hello_make(const dlc_secret *secret, const dlc_challenge *challenge,
                          dlc_hello *hello) {
    memcpy(hello->magic, magic_bytes, sizeof magic_bytes);
    hello->protocol = DLC_PROTOCOL;
    DLC_TRY(dlc_random_bytes(hello->nonce, sizeof hello->nonce));
    return prove_hello(secret, challenge, hello, hello->proof);
}

int dlc_hello_is_valid(const dlc_secret *secret, const dlc_challenge *challenge,
                       const dlc_hello *hello) {
    unsigned char proof[DLC_PROOF_BYTES];
    return prove_hello(secret, challenge, hello, proof) == DLC_OK &&
           dlc_proofs_equal(proof, hello->proof);
}

dlc_status dlc_welcome_make(const dlc_secret *secret, const dlc_challenge *challenge,
                            const dlc_hello *hello, dlc_welcome *welcome) {
    memcpy(welcome->magic, magic_bytes, sizeof magic_bytes);
    /* A client that does not know the secret gets nothing that was made with it. */
    if (welcome->verdict == DLC_JOIN_SECRET) {
        memset(welcome->proof, 0, sizeof welcome->proof);
        return DLC_OK;
    }
    return prove_welcome(secret, challenge, hello, welcome, welcome->proof);
}

int dlc_welcome_is_valid(const dlc_secret *secret, const dlc_challenge *challenge,
                         const dlc_hello *hello, const dlc_welcome *welcome) {
    unsigned char proof[DLC_PROOF_BYTES];
    return prove_welcome(secret, challenge, hello, welcome, proof) == DLC_OK &&
           dlc_proofs_equal(proof, welcome->proof);
}
