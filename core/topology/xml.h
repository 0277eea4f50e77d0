/* Parses small XML documents into trees, with the line of every element for messages.
 * Documents that define entities are refused. Used by the readers of topologies. */
#ifndef DLC_TOPOLOGY_XML_H
#define DLC_TOPOLOGY_XML_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_xml dlc_xml;

typedef struct dlc_xml_element {
    const char *name;
    int line;
    size_t attributes;
    const char *const *attribute; /* name, value, name, value, ... */
    const char *text;             /* of an element without children; "" if none */
    struct dlc_xml_element *parent, *child, *next, *last; /* last: the last child */
} dlc_xml_element;

/* Parses a document. Mistakes are DLC_ERR_DATA, with `name` and line in the detail. */
dlc_status dlc_xml_parse(const char *bytes, size_t size, const char *name,
                         dlc_xml **xml);
/* Parses a file; DLC_ERR_IO or DLC_ERR_DATA if it can't be read. */
dlc_status dlc_xml_load(const char *path, dlc_xml **xml);
void dlc_xml_free(dlc_xml *xml); /* NULL is allowed */

const dlc_xml_element *dlc_xml_root(const dlc_xml *xml); /* never NULL */

/* The value of an attribute; NULL: the element has no such attribute. */
const char *dlc_xml_get(const dlc_xml_element *element, const char *name);
/* Reads an integer attribute (also 0x...), min .. max; `fallback` if it is absent. */
dlc_status dlc_xml_int(const dlc_xml *xml, const dlc_xml_element *element,
                       const char *name, int64_t min, int64_t max, int64_t fallback,
                       int64_t *value);
/* Sets the detail to "file:line: ..." and returns DLC_ERR_DATA. */
dlc_status dlc_xml_fail(const dlc_xml *xml, const dlc_xml_element *element,
                        const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
