/* float16 and bfloat16 to float32 and back, in integer arithmetic so that every compiler and level agrees to the bit. */
#ifndef FASTPOOL_HALF_H
#define FASTPOOL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float fastpool_bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t fastpool_float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fastpool_from_float16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = (uint32_t)(half & 0x7fff);
    if (magnitude >= 0x7c00) return fastpool_bits_to_float(sign | 0x7f800000 | magnitude << 13);  /* infinity, NaN */
    if (magnitude >= 0x0400) return fastpool_bits_to_float(sign | ((magnitude << 13) + 0x38000000));
    float subnormal = (float)magnitude * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

/* to nearest, ties to even */
static inline uint16_t fastpool_to_float16(float value) {
    uint32_t bits = fastpool_float_to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  /* rounds to 2^16 or beyond */
    if (magnitude >= 0x38800000) {
        magnitude -= 0x38000000;
        return (uint16_t)(sign | (magnitude + 0x0fff + (magnitude >> 13 & 1)) >> 13);
    }
    /* adding 0.5 leaves the subnormal's bits, rounded, at the end of the significand */
    return (uint16_t)(sign | (fastpool_float_to_bits(fastpool_bits_to_float(magnitude) + 0.5f) - 0x3f000000));
}

static inline float fastpool_from_bfloat16(uint16_t half) { return fastpool_bits_to_float((uint32_t)half << 16); }

static inline uint16_t fastpool_to_bfloat16(float value) {
    uint32_t bits = fastpool_float_to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
