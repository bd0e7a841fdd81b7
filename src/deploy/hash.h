/* The hash of a weights file: 64 bits that depend on every byte, computed at memory speed; not for security. */
#ifndef SOL_FRONT_HASH_H
#define SOL_FRONT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t front_hash(const void *data, size_t bytes)
{
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t lane[8] = {1, 2, 3, 4, 5, 6, 7, 8}, word[8], h = bytes;
    const unsigned char *at = data;
    for (size_t left = bytes; left; left -= left < sizeof word ? left : sizeof word, at += sizeof word) {
        if (left < sizeof word) memset(word, 0, sizeof word);
        memcpy(word, at, left < sizeof word ? left : sizeof word);
        for (int i = 0; i < 8; i++) lane[i] = (lane[i] ^ word[i]) * factor, lane[i] ^= lane[i] >> 29;
    }
    for (int i = 0; i < 8; i++) h = (h ^ lane[i]) * factor, h ^= h >> 32;
    return h;
}

#endif
