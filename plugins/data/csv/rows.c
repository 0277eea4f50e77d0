/* Finds rows and takes them apart. */
#include "rows.h"

#include <string.h>

enum { BLOCK = 1 << 20, ROW_MOST = 16 << 20, COLUMNS_MOST = 1 << 20, MARK = 3 };

void row_free(row *of) {
    growing_free(&of->text);
    growing_free(&of->cells);
}

/* ---- Cells ------------------------------------------------------------------- */

static dlc_status refuse(const char *path, const row *at, const char *what) {
    return host->fail(DLC_ERR_DATA, "%s:%lld: cell %d: %s", path, (long long)at->line,
                      (int)row_count(at) + 1, what);
}

/* Takes the cell in quotes that begins at *at, and goes to what follows it. */
static int take_quoted(char **at, const char *end, cell *made) {
    char *from = *at + 1, *to = from;
    made->text = to;
    for (; from < end; from++) {
        if (*from == '"' && (from + 1 == end || from[1] != '"')) {
            made->length = (size_t)(to - made->text);
            *at = from + 1;
            *to = '\0';
            return 1;
        }
        from += *from == '"';
        *to++ = *from;
    }
    return 0;
}

static void take_plain(char **at, const char *end, char delimiter, cell *made) {
    char *close = memchr(*at, delimiter, (size_t)(end - *at));
    made->text = *at;
    *at = close ? close : *at + (end - *at);
    made->length = (size_t)(*at - made->text);
}

/* Blanks beside a delimiter belong to neither cell, but for those in quotes. */
static int is_blank(char c, char delimiter) {
    return (c == ' ' || c == '\t') && c != delimiter;
}

static void skip_blanks(char **at, const char *end, char delimiter) {
    while (*at < end && is_blank(**at, delimiter))
        ++*at;
}

static void trim_end(cell *of, char delimiter) {
    while (of->length && is_blank(of->text[of->length - 1], delimiter))
        of->text[--of->length] = '\0';
}

dlc_status row_split(const char *path, char delimiter, row *of) {
    char *at = of->text.bytes, *end = at + of->text.used;
    dlc_status status = DLC_OK;
    of->cells.used = 0;
    for (int is_last = 0; status == DLC_OK && !is_last; at++) {
        cell one = {0};
        skip_blanks(&at, end, delimiter);
        if (at < end && *at == '"') {
            if (!take_quoted(&at, end, &one))
                return refuse(path, of, "a quote is not closed");
            skip_blanks(&at, end, delimiter);
            if (at < end && *at != delimiter)
                return refuse(path, of, "there is something after its closing quote");
        } else {
            take_plain(&at, end, delimiter, &one);
            if (memchr(one.text, '"', one.length))
                return refuse(path, of,
                              "a quote inside; a cell with quotes needs them "
                              "around it, and doubled inside");
            trim_end(&one, delimiter);
        }
        is_last = at == end;
        *at = '\0';
        if (memchr(one.text, '\0', one.length))
            return refuse(path, of, "it has a zero byte");
        if (row_count(of) == COLUMNS_MOST)
            return refuse(path, of, "there are too many cells");
        status = growing_add(&of->cells, &one, sizeof one);
    }
    return status;
}

/* ---- The walk ---------------------------------------------------------------- */

/* A walk through a file. */
typedef struct walk {
    const data_file *in;
    char delimiter;
    row_visit visit;
    void *context;
    row row;       /* the part of a row that was seen */
    int64_t begin; /* of the row */
    int64_t line;  /* that is being read */
    int is_quoted; /* inside of quotes */
} walk;

/* The row's text is complete, without its newline; `end` is where the next begins. */
static dlc_status end_row(walk *w, int64_t end) {
    growing *text = &w->row.text;
    dlc_status status = DLC_OK;
    if (text->used && text->bytes[text->used - 1] == '\r')
        text->used--;
    if (text->used) {
        status = growing_add(text, "", 1);
        text->used--;
        if (status == DLC_OK)
            status = row_split(w->in->path, w->delimiter, &w->row);
        if (status == DLC_OK)
            status = w->visit(w->context, &w->row, w->begin, end - w->begin);
    }
    text->used = 0;
    w->begin = end;
    w->row.line = w->line;
    return status;
}

/* Finds the newline that ends the row, which is not in quotes; NULL: not in the block.
 */
static const char *find_end(walk *w, const char *at, const char *end) {
    for (; at < end; at++) {
        w->is_quoted ^= *at == '"';
        w->line += *at == '\n';
        if (*at == '\n' && !w->is_quoted)
            return at;
    }
    return NULL;
}

/* Takes the rows, and parts of rows, in a block from byte `first` on. */
static dlc_status take_block(walk *w, const char *block, size_t bytes, int64_t first) {
    const char *at = block, *end = block + bytes;
    dlc_status status = DLC_OK;
    while (status == DLC_OK && at < end) {
        const char *newline = find_end(w, at, end);
        size_t count = (size_t)((newline ? newline : end) - at);
        if (w->row.text.used + count > ROW_MOST)
            return host->fail(DLC_ERR_DATA,
                              "%s:%lld: a row of more than %d bytes; a quote may be "
                              "missing",
                              w->in->path, (long long)w->row.line, ROW_MOST);
        status = growing_add(&w->row.text, at, count);
        at += count + (newline != NULL);
        if (status == DLC_OK && newline)
            status = end_row(w, first + (at - block));
    }
    return status;
}

/* The bytes of the mark that some programs write before UTF-8. */
static dlc_status skip_mark(walk *w) {
    char mark[MARK];
    if (w->in->bytes < MARK)
        return DLC_OK;
    dlc_status status = file_read(w->in, 0, mark, sizeof mark);
    if (status == DLC_OK && memcmp(mark, "\xef\xbb\xbf", sizeof mark) == 0)
        w->begin = MARK;
    return status;
}

dlc_status rows_walk(const data_file *in, char delimiter, row_visit visit,
                     void *context) {
    walk w = {.in = in,
              .delimiter = delimiter,
              .visit = visit,
              .context = context,
              .row.line = 1,
              .line = 1};
    char *block = host->alloc(BLOCK);
    dlc_status status = block ? skip_mark(&w) : DLC_ERR_NOMEM;
    for (int64_t at = w.begin; status == DLC_OK && at < in->bytes; at += BLOCK) {
        size_t bytes = in->bytes - at < BLOCK ? (size_t)(in->bytes - at) : BLOCK;
        status = file_read(in, at, block, bytes);
        if (status == DLC_OK)
            status = take_block(&w, block, bytes, at);
    }
    if (status == DLC_OK)
        status = end_row(&w, in->bytes);
    row_free(&w.row);
    host->free(block);
    return status;
}
