/* Generated inputs of the self-test: the same bits at deployment and in the deployed library on any machine. */
#ifndef SOL_FRONT_MADE_UP_H
#define SOL_FRONT_MADE_UP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Real numbers in -1..1 and integers 0 or 1; if a network rejects these, real numbers in 0..1 and integers 0. */
enum { MADE_UP_SIGNED, MADE_UP_POSITIVE, MADE_UP_KINDS };

/* One number of the generator splitmix64. */
static inline uint64_t made_up_bits(uint64_t n)
{
    uint64_t z = n * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The size of an element, by the type's name: "f32", "i8", "bool". */
static inline size_t made_up_size(const char *type)
{
    switch (type[1]) {
    case '1': return 2;
    case '3': return 4;
    case '6': return 8;
    default: return 1;
    }
}

static inline void made_up(const char *type, size_t bytes, int kind, int input, void *data)
{
    const size_t size = made_up_size(type);
    for (size_t i = 0; i < bytes / size; i++) {
        const uint64_t bits = made_up_bits(((uint64_t)(input + 1) << 40) + i);
        const double real = (double)(int32_t)(bits >> 41) / (1 << 23); /* 0..1, exact in float as well */
        const double wide = kind == MADE_UP_SIGNED ? 2 * real - 1 : real;
        const float narrow = (float)wide;
        const uint64_t whole = kind == MADE_UP_SIGNED ? bits & 1 : 0;
        const void *value = *type != 'f' ? (const void *)&whole : size == sizeof narrow ? (const void *)&narrow : &wide;
        memcpy((char *)data + i * size, value,
               size); /* integers take the low bytes, since processors are little-endian */
    }
}

#endif
