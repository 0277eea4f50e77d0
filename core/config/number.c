/* Parses text that is a number and nothing else, independent of the locale. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

static size_t digits(const char *text, size_t length) {
    size_t n = 0;
    while (n < length && text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

static size_t sign(const char *text, size_t length) {
    return length && (*text == '-' || *text == '+');
}

dlc_number dlc_parse_int(const char *text, size_t length, int64_t *number) {
    size_t start = sign(text, length);
    if (start == length || digits(text + start, length - start) != length - start)
        return DLC_NOT_A_NUMBER;
    int64_t value = 0;
    for (size_t i = start; i < length; i++) {
        int64_t digit = text[i] - '0';
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, *text == '-' ? -digit : digit, &value))
            return DLC_NUMBER_TOO_BIG;
    }
    *number = value;
    return DLC_NUMBER;
}

dlc_number dlc_parse_bytes(const char *text, size_t length, int64_t *number) {
    static const char units[] = "KMG";
    int64_t unit = 1;
    const char *found = length ? strchr(units, text[length - 1]) : NULL;
    if (found && *found) {
        unit = (int64_t)1 << (10 * (found - units + 1));
        length--;
    }
    int64_t count;
    dlc_number is = dlc_parse_int(text, length, &count);
    if (is != DLC_NUMBER)
        return is;
    if (__builtin_mul_overflow(count, unit, &count))
        return DLC_NUMBER_TOO_BIG;
    *number = count;
    return DLC_NUMBER;
}

/* [sign] digits [. digits] [e [sign] digits], with a digit before the e. */
static int is_float(const char *text, size_t length) {
    size_t at = sign(text, length);
    size_t whole = digits(text + at, length - at), fraction = 0;
    at += whole;
    if (at < length && text[at] == '.') {
        at++;
        fraction = digits(text + at, length - at);
        at += fraction;
    }
    if (whole + fraction == 0)
        return 0;
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += sign(text + at, length - at);
        size_t exponent = digits(text + at, length - at);
        if (!exponent)
            return 0;
        at += exponent;
    }
    return at == length;
}

dlc_number dlc_parse_float(const char *text, size_t length, double *number) {
    char copy[DLC_CONFIG_LINE + 1];
    if (length >= sizeof copy)
        return DLC_NOT_A_NUMBER;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (strcmp(copy, "inf") == 0 || strcmp(copy, "-inf") == 0) {
        *number = *copy == '-' ? -(double)INFINITY : (double)INFINITY;
        return DLC_NUMBER;
    }
    if (!is_float(copy, length))
        return DLC_NOT_A_NUMBER;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return DLC_NOT_A_NUMBER;
    errno = 0;
    double value = strtod_l(copy, NULL, plain);
    int lost = errno == ERANGE && (isinf(value) || value == 0);
    freelocale(plain);
    if (lost)
        return DLC_NUMBER_TOO_BIG;
    *number = value;
    return DLC_NUMBER;
}
