/* Sizes of arrays, and the numbers in them, on a computer of any byte order. */
#include "array.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int array_is_sound(const array *of) {
    int64_t bytes = of->bytes;
    int is_known = of->bytes == 4 || of->bytes == 8 || of->bytes == 2 ||
                   (of->bytes == 1 && of->kind != NUMBER_FLOAT);
    if (!is_known || of->rank < 1 || of->rank > ARRAY_RANK_MOST)
        return 0;
    for (int32_t i = 0; i < of->rank; i++)
        if (of->dims[i] < 0 || __builtin_mul_overflow(bytes, of->dims[i], &bytes))
            return 0;
    return 1;
}

int array_is_valid(const array *of) {
    int valid = array_is_sound(of);
    for (int32_t i = 0; valid && i < of->rank; i++)
        valid = of->dims[i] > 0;
    return valid;
}

int64_t array_row_count(const array *of) {
    int64_t count = 1;
    for (int32_t i = 1; i < of->rank; i++)
        count *= of->dims[i];
    return count;
}

int64_t array_row_bytes(const array *of) {
    return array_row_count(of) * of->bytes;
}

int64_t array_bytes(const array *of) {
    return array_row_bytes(of) * of->dims[0];
}

int array_is_native(const array *of) {
    return of->bytes == 1 ||
           of->is_big_endian == (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* IEEE 754's binary16. */
static double half_number(uint64_t bits) {
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023), value;
    if (exponent == 31)
        value = bits & 1023 ? (double)NAN : (double)INFINITY;
    else
        value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 & 1 ? -value : value;
}

static double float_number(uint64_t bits, int32_t bytes) {
    uint32_t low = (uint32_t)bits;
    float single;
    double number;
    if (bytes == 2)
        return half_number(bits);
    memcpy(&single, &low, sizeof single);
    memcpy(&number, &bits, sizeof number);
    return bytes == 4 ? (double)single : number;
}

double array_number(const array *of, const unsigned char *at) {
    uint64_t bits = 0;
    for (int32_t i = 0; i < of->bytes; i++)
        bits = bits << 8 | at[of->is_big_endian ? i : of->bytes - 1 - i];
    if (of->kind == NUMBER_FLOAT)
        return float_number(bits, of->bytes);
    if (of->kind == NUMBER_UNSIGNED)
        return (double)bits;
    int unused = 64 - 8 * of->bytes;
    return (double)((int64_t)(bits << unused) >> unused);
}

void array_describe(const array *of, char *text, size_t room) {
    const char *kind = of->kind == NUMBER_FLOAT      ? "float"
                       : of->kind == NUMBER_UNSIGNED ? "uint"
                                                     : "int";
    int used = snprintf(text, room, "%s%d", kind, (int)(8 * of->bytes));
    for (int32_t i = 0; i < of->rank && used > 0 && (size_t)used < room; i++)
        used += snprintf(text + used, room - (size_t)used, "%s%lld", i ? " x " : ", ",
                         (long long)of->dims[i]);
}
