/* Writes JSON values into a growing text, with commas and quoting. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"

static void add_quoted(dlc_text *text, const char *value) {
    size_t left = strlen(value), bytes;
    dlc_text_add(text, "\"");
    for (; left; value += bytes, left -= bytes) {
        uint32_t code;
        bytes = dlc_utf8_next(value, left, &code);
        bytes += !bytes;
        if (*value == '"' || *value == '\\')
            dlc_text_add(text, "\\%c", *value);
        else if (*value == '\n')
            dlc_text_add(text, "\\n");
        else if (code == UINT32_MAX) /* JSON is UTF-8 */
            dlc_text_add(text, "\\ufffd");
        else if (!dlc_is_printable(code) && code < 0x10000)
            dlc_text_add(text, "\\u%04x", (unsigned)code);
        else
            dlc_text_append(text, value, bytes);
    }
    dlc_text_add(text, "\"");
}

static void begin_value(dlc_json *json, const char *key) {
    if (json->comma)
        dlc_text_add(&json->text, ",");
    if (key) {
        add_quoted(&json->text, key);
        dlc_text_add(&json->text, ":");
    }
    json->comma = 1;
}

void dlc_json_object(dlc_json *json, const char *key) {
    begin_value(json, key);
    dlc_text_add(&json->text, "{");
    json->comma = 0;
}

void dlc_json_array(dlc_json *json, const char *key) {
    begin_value(json, key);
    dlc_text_add(&json->text, "[");
    json->comma = 0;
}

void dlc_json_end_object(dlc_json *json) {
    dlc_text_add(&json->text, "}");
    json->comma = 1;
}

void dlc_json_end_array(dlc_json *json) {
    dlc_text_add(&json->text, "]");
    json->comma = 1;
}

void dlc_json_string(dlc_json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value)
        add_quoted(&json->text, value);
    else
        dlc_text_add(&json->text, "null");
}

void dlc_json_int(dlc_json *json, const char *key, int64_t value) {
    begin_value(json, key);
    dlc_text_add(&json->text, "%" PRId64, value);
}

void dlc_json_number(dlc_json *json, const char *key, double value) {
    begin_value(json, key);
    if (!isfinite(value)) {
        dlc_text_add(&json->text, "null");
        return;
    }
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", value);
    if (strtod(digits, NULL) != value)
        snprintf(digits, sizeof digits, "%.17g", value);
    dlc_text_add(&json->text, "%s", digits);
}

void dlc_json_bool(dlc_json *json, const char *key, int value) {
    begin_value(json, key);
    dlc_text_add(&json->text, "%s", value ? "true" : "false");
}
