/* Builds a tree from expat's events, and limits its size and depth. */
#include "topology/xml.h"

#include <errno.h>
#include <expat.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/read.h"
#include "base/text.h"

enum { BYTES_MOST = 64 << 20, ELEMENTS_MOST = 1 << 15, DEPTH_MOST = 128 };

struct dlc_xml {
    char *name;
    dlc_xml_element *root;
};

typedef struct reader {
    XML_Parser parser;
    dlc_xml *xml;
    dlc_xml_element *open; /* the innermost open element */
    int depth, elements;
    dlc_text text; /* of the innermost element, since its start or its last child's */
    dlc_status status; /* the first error of a handler */
} reader;

/* ---- Events -------------------------------------------------------------------- */

static void stop_parser(reader *r, dlc_status status) {
    r->status = status;
    XML_StopParser(r->parser, XML_FALSE);
}

static int current_line(const reader *r) {
#if XML_MAJOR_VERSION > 2 || XML_MINOR_VERSION >= 9
    return (int)XML_GetCurrentLineNumber64(r->parser);
#else
    return (int)XML_GetCurrentLineNumber(r->parser);
#endif
}

static void refuse_document(reader *r, const char *what) {
    stop_parser(
        r, dlc_fail(DLC_ERR_DATA, "%s:%d: %s", r->xml->name, current_line(r), what));
}

/* One allocation holds the element, its table of attributes and their text. */
static dlc_xml_element *make_element(const char *name, const char **attributes) {
    size_t count = 0, text = strlen(name) + 1;
    while (attributes[count])
        text += strlen(attributes[count++]) + 1;
    size_t table = count * sizeof(char *);
    char *block = dlc_alloc(1, sizeof(dlc_xml_element) + table + text);
    if (!block)
        return NULL;
    dlc_xml_element *element = (void *)block;
    const char **slot = (void *)(block + sizeof *element);
    char *at = block + sizeof *element + table;
    element->name = memcpy(at, name, strlen(name) + 1);
    at += strlen(name) + 1;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(attributes[i]) + 1;
        slot[i] = memcpy(at, attributes[i], bytes);
        at += bytes;
    }
    element->text = "";
    element->attributes = count / 2;
    element->attribute = slot;
    return element;
}

static void XMLCALL on_start(void *context, const char *name, const char **attributes) {
    reader *r = context;
    if (r->status != DLC_OK)
        return;
    if (++r->depth > DEPTH_MOST) {
        refuse_document(r, "the elements are nested too deeply for a topology");
        return;
    }
    if (++r->elements > ELEMENTS_MOST) {
        refuse_document(r, "the file has too many elements for a topology");
        return;
    }
    dlc_xml_element *made = make_element(name, attributes);
    if (!made) {
        stop_parser(r, DLC_ERR_NOMEM);
        return;
    }
    r->text.length = 0;
    made->line = current_line(r);
    made->parent = r->open;
    if (!r->open)
        r->xml->root = made;
    else if (r->open->last)
        r->open->last->next = made;
    else
        r->open->child = made;
    if (r->open)
        r->open->last = made;
    r->open = made;
}

static void XMLCALL on_end(void *context, const char *name) {
    reader *r = context;
    (void)name;
    if (r->status != DLC_OK)
        return;
    dlc_xml_element *ended = r->open;
    r->depth--;
    r->open = ended->parent;
    if (!ended->child && r->text.length > 0) {
        char *kept = dlc_strndup(r->text.bytes, r->text.length);
        if (kept)
            ended->text = kept;
        else
            stop_parser(r, DLC_ERR_NOMEM);
    }
    r->text.length = 0;
}

static void XMLCALL on_text(void *context, const char *bytes, int length) {
    reader *r = context;
    if (r->status != DLC_OK || !r->open || r->open->child)
        return;
    dlc_text_append(&r->text, bytes, (size_t)length);
    if (dlc_text_status(&r->text) != DLC_OK)
        stop_parser(r, DLC_ERR_NOMEM);
}

static void XMLCALL on_entity(void *context, const char *name, int is_parameter,
                              const char *value, int length, const char *base,
                              const char *system, const char *public,
                              const char *notation) {
    (void)name, (void)is_parameter, (void)value, (void)length, (void)base;
    (void)system, (void)public, (void)notation;
    refuse_document(context, "entity definitions are not allowed in a topology");
}

/* ---- Documents --------------------------------------------------------------- */

static dlc_status run_parser(reader *r, const char *bytes, size_t size) {
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    XML_SetEntityDeclHandler(r->parser, on_entity);
    enum XML_Status rc = XML_Parse(r->parser, bytes, (int)size, XML_TRUE);
    if (r->status != DLC_OK)
        return r->status;
    enum XML_Error error = XML_GetErrorCode(r->parser);
    if (rc == XML_STATUS_ERROR && error == XML_ERROR_NO_MEMORY)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (rc == XML_STATUS_ERROR || !r->xml->root)
        return dlc_fail(DLC_ERR_DATA, "%s:%d: not well-formed XML: %s", r->xml->name,
                        current_line(r), XML_ErrorString(error));
    return DLC_OK;
}

dlc_status dlc_xml_parse(const char *bytes, size_t size, const char *name,
                         dlc_xml **xml) {
    if (size > BYTES_MOST)
        return dlc_fail(DLC_ERR_DATA, "%s: larger than %d MB: not a topology", name,
                        BYTES_MOST >> 20);
    dlc_xml *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_ERR_NOMEM;
    reader r = {.xml = made};
    made->name = dlc_strdup(name);
    if (made->name)
        r.parser = XML_ParserCreate(NULL);
    if (r.parser)
        status = run_parser(&r, bytes, size);
    else if (made->name)
        status = dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (r.parser)
        XML_ParserFree(r.parser);
    dlc_text_free(&r.text);
    if (status != DLC_OK) {
        dlc_xml_free(made);
        return status;
    }
    *xml = made;
    return DLC_OK;
}

static dlc_status read_document(int fd, const char *path, size_t size, char *bytes) {
    if (dlc_read_at(fd, bytes, size, 0) == size)
        return DLC_OK;
    return dlc_fail(DLC_ERR_IO, "%s: %s", path,
                    errno ? strerror(errno)
                          : "the file was truncated while it was being read");
}

static dlc_status load_document(int fd, const char *path, dlc_xml **xml) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return dlc_fail(DLC_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return dlc_fail(DLC_ERR_DATA, "%s: not a regular file", path);
    if (about.st_size == 0)
        return dlc_fail(DLC_ERR_DATA, "%s: the file is empty", path);
    if (about.st_size > BYTES_MOST)
        return dlc_fail(DLC_ERR_DATA, "%s: larger than %d MB: not a topology", path,
                        BYTES_MOST >> 20);
    char *bytes = dlc_alloc((size_t)about.st_size, 1);
    if (!bytes)
        return DLC_ERR_NOMEM;
    dlc_status status = read_document(fd, path, (size_t)about.st_size, bytes);
    if (status == DLC_OK)
        status = dlc_xml_parse(bytes, (size_t)about.st_size, path, xml);
    dlc_free(bytes);
    return status;
}

dlc_status dlc_xml_load(const char *path, dlc_xml **xml) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* don't block on a FIFO */
    if (fd < 0)
        return dlc_fail(DLC_ERR_IO, "%s: %s", path, strerror(errno));
    dlc_status status = load_document(fd, path, xml);
    close(fd);
    return status;
}

/* Frees children before parents, without recursion. */
static void free_tree(dlc_xml_element *element) {
    while (element) {
        if (element->child) {
            dlc_xml_element *child = element->child;
            element->child = NULL;
            element = child;
            continue;
        }
        dlc_xml_element *up = element->next ? element->next : element->parent;
        if (element->text[0])
            dlc_free((char *)element->text);
        dlc_free(element);
        element = up;
    }
}

void dlc_xml_free(dlc_xml *xml) {
    if (!xml)
        return;
    free_tree(xml->root);
    dlc_free(xml->name);
    dlc_free(xml);
}

/* ---- Attributes --------------------------------------------------------------------
 */

const dlc_xml_element *dlc_xml_root(const dlc_xml *xml) {
    return xml->root;
}

const char *dlc_xml_get(const dlc_xml_element *element, const char *name) {
    for (size_t i = 0; i < element->attributes; i++)
        if (strcmp(element->attribute[2 * i], name) == 0)
            return element->attribute[2 * i + 1];
    return NULL;
}

dlc_status dlc_xml_int(const dlc_xml *xml, const dlc_xml_element *element,
                       const char *name, int64_t min, int64_t max, int64_t fallback,
                       int64_t *value) {
    const char *text = dlc_xml_get(element, name);
    if (!text) {
        *value = fallback;
        return DLC_OK;
    }
    char *end = NULL;
    errno = 0;
    int base = strncmp(text, "0x", 2) == 0 ? 16 : 10;
    long long read = strtoll(text, &end, base);
    if (errno || end == text || *end || read < min || read > max)
        return dlc_xml_fail(xml, element,
                            "%s=\"%s\" of <%s> is not an integer from %" PRId64
                            " to %" PRId64,
                            name, text, element->name, min, max);
    *value = read;
    return DLC_OK;
}

dlc_status dlc_xml_fail(const dlc_xml *xml, const dlc_xml_element *element,
                        const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return dlc_fail(DLC_ERR_DATA, "%s:%d: %s", xml->name, element->line, text);
}
