/* Reads the headers of a tar archive: blocks of 512 bytes, each before the contents of
 * a file, which are padded to whole blocks. Sizes in them are compared with the size of
 * the archive before they are believed. */
#include "archive.h"

#include <string.h>

enum { BLOCK = 512, NAME_MOST = 65536 };

/* The header of a file. */
typedef struct header {
    char name[100], mode[8], owner[8], group[8], size[12], time[12], sum[8], type;
    char link[100], magic[6], version[2], owner_name[32], group_name[32];
    char major[8], minor[8], prefix[155], rest[12];
} header;
_Static_assert(sizeof(header) == BLOCK, "a header is one block");

/* A walk through an archive. */
typedef struct walk {
    const data_file *in;
    int64_t at;      /* of the present header */
    int has_end;     /* the block before it was an end mark */
    int64_t archive; /* where the present archive begins, behind the one before */
    growing name; /* of the next file, if an entry before it says so; used: with zero */
    int64_t size; /* likewise; -1: its header says */
} walk;

static dlc_status damaged(const walk *w, const char *what) {
    return host->fail(DLC_ERR_DATA, "%s: at byte %lld: %s", w->in->path,
                      (long long)w->at, what);
}

/* ---- Headers ----------------------------------------------------------------- */

/* A number of a header: octal digits, or bytes if the first bit is set; -1: neither. */
static int64_t number_of(const char *field, size_t bytes) {
    int64_t number = 0;
    size_t i = 0;
    if ((unsigned char)field[0] == 0x80) {
        for (i = 1; i < bytes; i++) {
            if (number >> 54)
                return -1;
            number = number << 8 | (unsigned char)field[i];
        }
        return number;
    }
    while (i < bytes && field[i] == ' ')
        i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++)
        number = number << 3 | (field[i] - '0');
    return i < bytes && field[i] != ' ' && field[i] != '\0' ? -1 : number;
}

/* The sum of all bytes, with spaces in place of the sum. */
static int has_right_sum(const header *h) {
    const unsigned char *bytes = (const unsigned char *)h;
    int32_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += bytes[i];
    for (size_t i = 0; i < sizeof h->sum; i++)
        sum += ' ' - (unsigned char)h->sum[i];
    return sum == number_of(h->sum, sizeof h->sum);
}

static int is_end(const header *h) {
    const char *bytes = (const char *)h;
    return bytes[0] == '\0' && memcmp(bytes, bytes + 1, BLOCK - 1) == 0;
}

static dlc_status set_name(walk *w, const char *bytes, size_t count) {
    w->name.used = 0;
    dlc_status status = growing_add(&w->name, bytes, count);
    return status == DLC_OK ? growing_add(&w->name, "", 1) : status;
}

/* "prefix/name" of a header. */
static dlc_status name_of(walk *w, const header *h) {
    size_t prefix = memcmp(h->magic, "ustar\0", 6) == 0
                        ? strnlen(h->prefix, sizeof h->prefix)
                        : 0;
    dlc_status status = set_name(w, h->prefix, prefix);
    w->name.used = prefix;
    if (status == DLC_OK && prefix)
        status = growing_add(&w->name, "/", 1);
    if (status == DLC_OK)
        status = growing_add(&w->name, h->name, strnlen(h->name, sizeof h->name));
    return status == DLC_OK ? growing_add(&w->name, "", 1) : status;
}

/* ---- Entries about the next file --------------------------------------------- */

/* One record of pax: "LENGTH KEY=VALUE\n", where the length is that of all of it. */
static dlc_status take_record(walk *w, const char *record, size_t bytes) {
    const char *key = memchr(record, ' ', bytes), *end = record + bytes - 1;
    const char *value = key ? memchr(key, '=', (size_t)(end - key)) : NULL;
    if (!value || *end != '\n')
        return damaged(w, "a damaged pax record");
    size_t key_bytes = (size_t)(value++ - ++key), value_bytes = (size_t)(end - value);
    if (key_bytes == 4 && memcmp(key, "path", 4) == 0)
        return set_name(w, value, value_bytes);
    if (key_bytes > 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return damaged(w, "a sparse file; tar without --sparse writes whole ones");
    if (key_bytes == 4 && memcmp(key, "size", 4) == 0) {
        w->size = 0;
        for (size_t i = 0; i < value_bytes; i++) {
            if (value[i] < '0' || value[i] > '9' || w->size > INT64_MAX / 100)
                return damaged(w, "a damaged size in a pax record");
            w->size = 10 * w->size + (value[i] - '0');
        }
    }
    return DLC_OK;
}

static dlc_status take_records(walk *w, const char *text, size_t bytes) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; status == DLC_OK && at < bytes;) {
        size_t length = 0, i = at;
        for (; i < bytes && text[i] >= '0' && text[i] <= '9' && length < NAME_MOST; i++)
            length = 10 * length + (size_t)(text[i] - '0');
        if (length < 4 || length > bytes - at || i == at || text[i] != ' ')
            return damaged(w, "a damaged pax record");
        status = take_record(w, text + at, length);
        at += length;
    }
    return status;
}

/* Takes what an entry says about the next file: GNU's long name, or pax records. */
static dlc_status take_note(walk *w, char type, int64_t bytes) {
    char *text;
    if (bytes < 1 || bytes > NAME_MOST)
        return damaged(w, "a name or a note that is empty or too long");
    text = host->alloc((size_t)bytes + 1);
    if (!text)
        return DLC_ERR_NOMEM;
    dlc_status status = file_read(w->in, w->at + BLOCK, text, (size_t)bytes);
    if (status == DLC_OK && type == 'L')
        status = set_name(w, text, strnlen(text, (size_t)bytes));
    else if (status == DLC_OK)
        status = take_records(w, text, (size_t)bytes);
    host->free(text);
    return status;
}

/* ---- The walk ---------------------------------------------------------------- */

static int is_file(char type) {
    return type == '0' || type == '\0' || type == '7';
}

/* Entries that stand for a file, but do not have its contents; NULL: any other. */
static const char *substitute_of(char type) {
    return type == '1'   ? "a hard link"
           : type == '2' ? "a symbolic link"
           : type == 'S' ? "a sparse file"
           : type == 'M' ? "the rest of a file in another archive"
                         : NULL;
}

static dlc_status visit_file(walk *w, const header *h, int64_t bytes,
                             dlc_status (*visit)(void *context, const member *file),
                             void *context) {
    dlc_status status = w->name.used ? DLC_OK : name_of(w, h);
    if (status != DLC_OK)
        return status;
    member file = {.name = w->name.bytes,
                   .begin = w->at + BLOCK,
                   .bytes = bytes,
                   .archive = w->archive,
                   .substitute = substitute_of(h->type)};
    return visit(context, &file);
}

/* Reads the entry at w->at, and goes to the next. */
static dlc_status visit_entry(walk *w, const header *h,
                              dlc_status (*visit)(void *context, const member *file),
                              void *context) {
    if (!has_right_sum(h))
        return damaged(w, w->has_end ? "there is something behind its end that is no "
                                       "archive"
                          : w->at    ? "a damaged header"
                                     : "not a tar archive; compressed ones have to be "
                                       "unpacked first");
    if (w->has_end)
        w->archive = w->at;
    w->has_end = 0;
    int is_note = h->type == 'L' || h->type == 'x';
    int64_t own = number_of(h->size, sizeof h->size);
    int64_t bytes = is_note || w->size < 0 ? own : w->size;
    if (bytes < 0 || bytes > w->in->bytes - w->at - BLOCK)
        return damaged(w,
                       "a file that would end beyond the archive, which was cut short "
                       "or is damaged");
    dlc_status status = DLC_OK;
    if (is_note) {
        status = take_note(w, h->type, bytes);
    } else {
        if (is_file(h->type) || substitute_of(h->type))
            status = visit_file(w, h, bytes, visit, context);
        w->name.used = 0;
        w->size = -1;
    }
    w->at += BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
    return status;
}

dlc_status archive_walk(const data_file *in,
                        dlc_status (*visit)(void *context, const member *file),
                        void *context) {
    walk w = {.in = in, .size = -1};
    dlc_status status = DLC_OK;
    while (status == DLC_OK && w.at < in->bytes) {
        header h;
        if (in->bytes - w.at < BLOCK) {
            status = damaged(&w, "it ends in the middle of a header");
            break;
        }
        status = file_read(in, w.at, &h, sizeof h);
        if (status != DLC_OK)
            break;
        if (is_end(&h)) {
            w.has_end = 1;
            w.at += BLOCK;
        } else {
            status = visit_entry(&w, &h, visit, context);
        }
    }
    if (status == DLC_OK && !w.has_end)
        status = damaged(&w, "it ends without the end mark of an archive, so it was "
                             "probably cut short; if it is complete, `truncate -s "
                             "+1024` adds the mark");
    growing_free(&w.name);
    return status;
}
