/* Reads the header of an array: a magic word, the version, the length of the rest, and
 * a Python dictionary such as
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
 *
 * Only what NumPy writes is accepted. */
#include "npy_header.h"

#include <string.h>

/* Most headers are in the first bytes as a whole. */
enum { FIXED = 8, TEXT_MOST = 65536, FIRST = 256 };

/* The text of a header that is being read. */
typedef struct scan {
    const char *at, *end;
} scan;

static void skip_blanks(scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n'))
        s->at++;
}

/* Takes a character, after blanks; 0 if there is another one. */
static int take(scan *s, char c) {
    skip_blanks(s);
    if (s->at == s->end || *s->at != c)
        return 0;
    s->at++;
    return 1;
}

static int take_word(scan *s, const char *word) {
    size_t length = strlen(word);
    skip_blanks(s);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return 0;
    s->at += length;
    return 1;
}

/* Takes a string in quotes; returns its length, -1 if there is none. */
static int take_string(scan *s, const char **text) {
    skip_blanks(s);
    char quote = s->at < s->end ? *s->at : '\0';
    if (quote != '\'' && quote != '"')
        return -1;
    const char *close = memchr(s->at + 1, quote, (size_t)(s->end - s->at - 1));
    if (!close)
        return -1;
    *text = s->at + 1;
    s->at = close + 1;
    return (int)(close - *text);
}

static int take_number(scan *s, int64_t *number) {
    const char *begin;
    skip_blanks(s);
    begin = s->at;
    for (*number = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, *s->at - '0', number))
            return 0;
    return s->at > begin;
}

/* '<f4', '|u1', '|b1': the order of bytes, the kind, and bytes of a number. */
static int take_type(scan *s, array *made) {
    const char *text;
    if (take_string(s, &text) != 3 || !strchr("<>|", text[0]))
        return 0;
    made->kind = text[1] == 'b' ? NUMBER_UNSIGNED : (number_kind)text[1];
    made->bytes = text[2] - '0';
    made->is_big_endian = text[0] == '>';
    if (text[0] == '|' || text[1] == 'b')
        return made->bytes == 1 && strchr("uib", text[1]);
    return strchr("uif", text[1]) != NULL;
}

/* (60000, 28, 28), or (60000,), or (). */
static int take_shape(scan *s, array *made) {
    if (!take(s, '('))
        return 0;
    for (made->rank = 0; !take(s, ')'); made->rank++) {
        if (made->rank == ARRAY_RANK_MOST || !take_number(s, &made->dims[made->rank]))
            return 0;
        if (!take(s, ',')) {
            made->rank++;
            return take(s, ')');
        }
    }
    return 1;
}

/* Returns what is wrong with the dictionary; NULL: nothing. */
static const char *take_dictionary(scan *s, array *made) {
    int has_type = 0, has_order = 0, has_shape = 0;
    if (!take(s, '{'))
        return "its header is no dictionary";
    while (!take(s, '}')) {
        const char *key;
        int length = take_string(s, &key);
        if (length < 0 || !take(s, ':'))
            return "its header is damaged";
        if (length == 5 && memcmp(key, "descr", 5) == 0 && !has_type++) {
            if (!take_type(s, made))
                return "it is not of plain numbers (uint8, int64, float32 ...)";
        } else if (length == 13 && memcmp(key, "fortran_order", 13) == 0 &&
                   !has_order++) {
            if (take_word(s, "True"))
                return "it is in Fortran's order; numpy.ascontiguousarray changes "
                       "that";
            if (!take_word(s, "False"))
                return "its header is damaged";
        } else if (length == 5 && memcmp(key, "shape", 5) == 0 && !has_shape++) {
            if (!take_shape(s, made))
                return "its header has a damaged shape, or more dimensions than can be "
                       "used";
        } else {
            return "its header has an unknown key";
        }
        if (!take(s, ',') && (s->at == s->end || *s->at != '}'))
            return "its header is damaged";
    }
    skip_blanks(s);
    if (!has_type || !has_order || !has_shape || s->at != s->end)
        return "its header is damaged";
    return NULL;
}

static dlc_status refuse(const data_file *in, const char *name, const char *what) {
    return host->fail(DLC_ERR_DATA, "%s: %s: %s", in->path, name, what);
}

/* Finds where the dictionary is, from the beginning of the array. */
static dlc_status find_text(const data_file *in, const char *name,
                            const unsigned char first[FIRST], int64_t bytes,
                            size_t *text, size_t *length) {
    if (bytes < FIXED + 4 || memcmp(first, "\x93NUMPY", 6) != 0)
        return refuse(in, name, "not an array in NumPy's format");
    if (first[6] < 1 || first[6] > 3)
        return refuse(in, name, "its format has a version that is not known");
    size_t wide = first[6] == 1 ? 2 : 4;
    *length = 0;
    for (size_t i = wide; i-- > 0;)
        *length = *length << 8 | first[FIXED + i];
    *text = FIXED + wide;
    if (*length > TEXT_MOST || (int64_t)*length > bytes - FIXED - (int64_t)wide)
        return refuse(in, name, "its header is longer than the array");
    return DLC_OK;
}

dlc_status npy_header_read(const data_file *in, const char *name, int64_t begin,
                           int64_t bytes, array *made, int64_t *data) {
    array of = {0};
    unsigned char first[FIRST];
    size_t at = 0, length = 0;
    dlc_status status = file_read(in, begin, first,
                                  bytes < FIRST ? (size_t)bytes : FIRST);
    if (status == DLC_OK)
        status = find_text(in, name, first, bytes, &at, &length);
    if (status != DLC_OK)
        return status;
    char *far = at + length > FIRST ? host->alloc(length) : NULL;
    const char *text = far ? far : (const char *)first + at;
    if (at + length > FIRST)
        status = far ? file_read(in, begin + (int64_t)at, far, length) : DLC_ERR_NOMEM;
    scan s = {text, text + length};
    const char *wrong = status == DLC_OK ? take_dictionary(&s, &of) : NULL;
    host->free(far);
    if (wrong)
        status = refuse(in, name, wrong);
    else if (status == DLC_OK && !array_is_sound(&of))
        status = refuse(in, name,
                        "it has no rows, is too large, or is not of plain numbers");
    int64_t rest = bytes - (int64_t)(at + length);
    if (status == DLC_OK && array_bytes(&of) != rest)
        status = host->fail(DLC_ERR_DATA,
                            "%s: %s: its header asks for %lld bytes, but it has %lld: "
                            "it was cut short or damaged",
                            in->path, name, (long long)array_bytes(&of),
                            (long long)rest);
    if (status != DLC_OK)
        return status;
    *made = of;
    *data = begin + (int64_t)(at + length);
    return DLC_OK;
}
