/* Cryptographic digests: BLAKE2b of libsodium. Without a key they name compiled entries; with the user's secret key
 * they are the seals of cached files.
 *
 * The length of each piece is part of the digest, so that ("ab", "c") and ("a", "bc") differ. */
#include "build/inside.h"

#include <stdio.h>
#include <string.h>

void digest_init(struct digest *d, const unsigned char *secret)
{
    if (sodium_init() < 0) secret = NULL; /* chooses the fastest code: without it there is another */
    crypto_generichash_init(&d->state, secret, secret ? SECRET_BYTES : 0, SEAL_BYTES);
}

void digest_add(struct digest *d, const void *data, size_t bytes)
{
    const uint64_t n = bytes;
    crypto_generichash_update(&d->state, (const unsigned char *)&n, sizeof n);
    crypto_generichash_update(&d->state, data, bytes);
}

void digest_text(struct digest *d, const char *text)
{
    digest_add(d, text, strlen(text));
}

void digest_end(struct digest *d, unsigned char out[SEAL_BYTES])
{
    crypto_generichash_final(&d->state, out, SEAL_BYTES);
}

void digest_hex(struct digest *d, char out[33])
{
    unsigned char all[SEAL_BYTES];
    digest_end(d, all);
    sodium_bin2hex(out, 33, all, 16);
}
