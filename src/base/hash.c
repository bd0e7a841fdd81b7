/* A 128-bit content hash: two lanes of multiply and rotate over 64-bit words, finished with an avalanche. Every call of
 * hash_add also hashes the length of its data, so that ("ab", "c") and ("a", "bc") differ. Not for security. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void word(struct hash *h, uint64_t w)
{
    h->a = rotate((h->a ^ w) * 0xd6e8feb86659fd93u, 29) + h->b;
    h->b = rotate((h->b + w) * 0xa0761d6478bd642fu, 37) ^ h->a;
}

void hash_init(struct hash *h)
{
    *h = (struct hash){.a = 0x243f6a8885a308d3u, .b = 0x13198a2e03707344u};
}

void hash_add(struct hash *h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    h->n += bytes;
    word(h, bytes ^ 0x8000000000000000u);
    for (uint64_t w; bytes >= sizeof w; p += sizeof w, bytes -= sizeof w) {
        memcpy(&w, p, sizeof w);
        word(h, w);
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < bytes; i++) rest |= (uint64_t)p[i] << (8 * i);
    if (bytes) word(h, rest);
}

void hash_text(struct hash *h, const char *text)
{
    hash_add(h, text, strlen(text) + 1);
}

static uint64_t finish(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xe9846af9b1a615du;
    x ^= x >> 32;
    x *= 0xe9846af9b1a615du;
    return x ^ x >> 28;
}

void hash_hex(const struct hash *h, char out[33])
{
    struct hash end = *h;
    word(&end, h->n);
    word(&end, 0);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)finish(end.a), (unsigned long long)finish(end.b + end.a));
}
