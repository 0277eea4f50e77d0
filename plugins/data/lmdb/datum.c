/* Reads messages of protocol buffers, whose fields have a number and a wire type. */
#include "datum.h"

#include <string.h>

enum { CHANNELS = 1, HEIGHT, WIDTH, DATA, LABEL, FLOAT_DATA, ENCODED };
enum { VARINT = 0, FIXED_64 = 1, BYTES = 2, FIXED_32 = 5, VARINT_MOST = 10 };

/* A message that is being read. */
typedef struct scan {
    const unsigned char *at, *end;
} scan;

/* One field. */
typedef struct item {
    uint64_t field;
    int type;
    uint64_t number;            /* of VARINT */
    const unsigned char *bytes; /* of the others */
    size_t count;
} item;

static int take_varint(scan *s, uint64_t *number) {
    *number = 0;
    for (int i = 0; i < VARINT_MOST && s->at < s->end; i++) {
        unsigned char byte = *s->at++;
        if (i == VARINT_MOST - 1 && byte > 1)
            return 0;
        *number |= (uint64_t)(byte & 127) << 7 * i;
        if (byte < 128)
            return 1;
    }
    return 0;
}

static int take_item(scan *s, item *made) {
    uint64_t tag, count = 0;
    if (!take_varint(s, &tag) || tag >> 32 || tag < 8)
        return 0;
    *made = (item){.field = tag >> 3, .type = (int)(tag & 7)};
    if (made->type == VARINT)
        return take_varint(s, &made->number);
    if (made->type == BYTES && !take_varint(s, &count))
        return 0;
    if (made->type == FIXED_64)
        count = 8;
    else if (made->type == FIXED_32)
        count = 4;
    else if (made->type != BYTES)
        return 0;
    if (count > (uint64_t)(s->end - s->at))
        return 0;
    made->bytes = s->at;
    made->count = (size_t)count;
    s->at += count;
    return 1;
}

static void put_floats(const item *from, float *to) {
    for (size_t i = 0; i + 4 <= from->count; i += 4) {
        const unsigned char *at = from->bytes + i;
        uint32_t bits = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                        (uint32_t)at[3] << 24;
        memcpy(to + i / 4, &bits, sizeof bits);
    }
}

/* Takes float_data, packed or one by one. */
static int set_floats(const item *from, float *floats, datum *made) {
    if ((from->type != BYTES && from->type != FIXED_32) || from->count % 4)
        return 0;
    if (floats)
        put_floats(from, floats + made->floats);
    made->floats += from->count / 4;
    return 1;
}

/* Numbers of type int32 have 64 bits as varints, with their sign. */
static int set_number(const item *from, int32_t *number) {
    int64_t value = (int64_t)from->number;
    if (from->type != VARINT || value < INT32_MIN || value > INT32_MAX)
        return 0;
    *number = (int32_t)value;
    return 1;
}

/* Takes one field; unknown ones are left out. */
static int set_field(const item *from, float *floats, datum *made) {
    int32_t flag = 0;
    switch (from->field) {
    case CHANNELS:
        return set_number(from, &made->channels);
    case HEIGHT:
        return set_number(from, &made->height);
    case WIDTH:
        return set_number(from, &made->width);
    case LABEL:
        made->label = (int64_t)from->number;
        return from->type == VARINT;
    case ENCODED:
        if (!set_number(from, &flag))
            return 0;
        made->is_encoded = flag != 0;
        return 1;
    case DATA:
        made->data = from->bytes;
        made->bytes = from->count;
        return from->type == BYTES;
    case FLOAT_DATA:
        return set_floats(from, floats, made);
    default:
        return 1;
    }
}

const char *datum_parse(const unsigned char *message, size_t bytes, float *floats,
                        datum *made) {
    scan s = {message, message + bytes};
    datum all = {0};
    while (s.at < s.end) {
        item one;
        if (!take_item(&s, &one))
            return "it is no message of protocol buffers, or is damaged";
        if (!set_field(&one, floats, &all))
            return "it is no Datum of Caffe, or is damaged";
    }
    if (!all.bytes && !all.floats)
        return "it has no data, as a Datum of Caffe has";
    *made = all;
    return NULL;
}
