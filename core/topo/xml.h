/* Small XML documents as trees, with the line of every element for messages. Entities
 * of a document's own are refused. */
#ifndef DLC_TOPO_XML_H
#define DLC_TOPO_XML_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_xml dlc_xml;

typedef struct dlc_xml_element {
    const char *name;
    int line;
    size_t attributes;
    const char *const *attribute; /* name, value, name, value, ... */
    const char *text;             /* of one without children; "" if there is none */
    struct dlc_xml_element *parent, *child, *next, *last; /* last: of its children */
} dlc_xml_element;

/* Reads a document. What is wrong with it is DLC_ERR_DATA with `name` and line. */
dlc_status dlc_xml_parse(const char *bytes, size_t size, const char *name,
                         dlc_xml **xml);
/* The same for a file; DLC_ERR_IO or DLC_ERR_DATA where there is no such. */
dlc_status dlc_xml_load(const char *path, dlc_xml **xml);
void dlc_xml_free(dlc_xml *xml); /* NULL allowed */

const dlc_xml_element *dlc_xml_root(const dlc_xml *xml); /* never NULL */

/* The value of an attribute; NULL: it has none of this name. */
const char *dlc_xml_get(const dlc_xml_element *element, const char *name);
/* A whole number (also 0x...), min .. max. Without the attribute `fallback`. */
dlc_status dlc_xml_int(const dlc_xml *xml, const dlc_xml_element *element,
                       const char *name, int64_t min, int64_t max, int64_t fallback,
                       int64_t *value);
/* Fails with "file:line: ...". */
dlc_status dlc_xml_fail(const dlc_xml *xml, const dlc_xml_element *element,
                        const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
