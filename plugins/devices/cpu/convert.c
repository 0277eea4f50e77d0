/* Conversions between float32 and the other element types.
 *
 * Floating types round to nearest even; NaN stays NaN. Integers round to nearest even
 * and saturate; NaN becomes 0. Rounding is written as arithmetic that vectorizes on
 * every instruction set and gives the same result on each.
 */
#include <math.h>
#include <string.h>

#include "bf16.h"
#include "cpu.h"

static inline uint16_t f16_of(float value) {
    uint32_t bits = bits_of(value);
    uint32_t sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    uint32_t nan = 0x7e00 | ((size >> 13) & 0x3ff);
    /* Normal: exponent 127 becomes 15; values too large become infinity. */
    uint32_t even = (size + 0xfff + ((size >> 13) & 1) - 0x38000000) >> 13;
    uint32_t normal = even < 0x7c00 ? even : 0x7c00;
    /* Below 2^-14: adding 0.5 lets the adder round to multiples of 2^-24. */
    uint32_t small = bits_of(float_of(size) + 0.5f) - 0x3f000000;
    uint32_t finite = size < 0x38800000 ? small : normal;
    return (uint16_t)(sign | (size > 0x7f800000 ? nan : finite));
}

static inline float float_of_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t size = (uint32_t)(half & 0x7fff) << 13, exponent = half & 0x7c00;
    uint32_t normal = size + 0x38000000;
    uint32_t infinite = size + 0x70000000; /* infinity and NaN */
    uint32_t small = bits_of(float_of(size + 0x38800000) - 0x1p-14f);
    uint32_t finite = exponent == 0 ? small : normal;
    return float_of(sign | (exponent == 0x7c00 ? infinite : finite));
}

static inline uint8_t u8_of(float value) {
    float low = value > 0.0f ? value : 0.0f; /* NaN, too */
    float in = low < 255.0f ? low : 255.0f;
    return (uint8_t)bits_of(in + 0x1p23f); /* the addition rounds to integers */
}

static inline int32_t i32_of(float value) {
    double wide = value == value ? (double)value : 0.0;
    double low = wide > -2147483648.0 ? wide : -2147483648.0;
    double in = low < 2147483647.0 ? low : 2147483647.0;
    double units = in + 0x1.8p52; /* rounds as above; the low word is the integer */
    uint64_t bits;
    memcpy(&bits, &units, sizeof bits);
    return (int32_t)(uint32_t)bits;
}

static inline int64_t i64_of(float value) {
    if (value != value)
        return 0;
    if (value >= 0x1p63f)
        return INT64_MAX;
    return value <= -0x1p63f ? INT64_MIN : (int64_t)rintf(value);
}

#define CONVERT(name, from_type, to_type, expression) \
    CLONES static void name(size_t n, const void *src, void *dst) { \
        const from_type *from = src; \
        to_type *to = dst; /* NOLINT(bugprone-macro-parentheses): a type */ \
        EACH for (size_t i = 0; i < n; i++) to[i] = (expression); \
    }

CONVERT(f32_to_bf16, float, uint16_t, bf16_of(from[i]))
CONVERT(f32_to_f16, float, uint16_t, f16_of(from[i]))
CONVERT(f32_to_f64, float, double, (double)from[i])
CONVERT(f32_to_i32, float, int32_t, i32_of(from[i]))
CONVERT(f32_to_i64, float, int64_t, i64_of(from[i]))
CONVERT(f32_to_u8, float, uint8_t, u8_of(from[i]))
CONVERT(bf16_to_f32, uint16_t, float, float_of_bf16(from[i]))
CONVERT(f16_to_f32, uint16_t, float, float_of_f16(from[i]))
CONVERT(f64_to_f32, double, float, (float)from[i])
CONVERT(i32_to_f32, int32_t, float, (float)from[i])
CONVERT(i64_to_f32, int64_t, float, (float)from[i])
CONVERT(u8_to_f32, uint8_t, float, (float)from[i])

CLONES void convert_add_f16(size_t n, const uint16_t *x, uint16_t *y) {
    EACH for (size_t i = 0; i < n; i++)
        y[i] = f16_of(float_of_f16(y[i]) + float_of_f16(x[i]));
}

convert_fn *convert_find(dlc_dtype from, dlc_dtype to) {
    static const struct {
        dlc_dtype from, to;
        convert_fn *convert;
    } table[] = {
        {DLC_F32, DLC_BF16, f32_to_bf16}, {DLC_BF16, DLC_F32, bf16_to_f32},
        {DLC_F32, DLC_F16, f32_to_f16},   {DLC_F16, DLC_F32, f16_to_f32},
        {DLC_F32, DLC_F64, f32_to_f64},   {DLC_F64, DLC_F32, f64_to_f32},
        {DLC_F32, DLC_I32, f32_to_i32},   {DLC_I32, DLC_F32, i32_to_f32},
        {DLC_F32, DLC_I64, f32_to_i64},   {DLC_I64, DLC_F32, i64_to_f32},
        {DLC_F32, DLC_U8, f32_to_u8},     {DLC_U8, DLC_F32, u8_to_f32},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].from == from && table[i].to == to)
            return table[i].convert;
    return NULL;
}
