/* Makes and checks the three messages of the handshake. */
#include "job/handshake.h"

#include <stddef.h>
#include <string.h>

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
