/* Writing JSON (RFC 8259). Commas and quoting are taken care of; nesting is the
 * caller's duty. Start with {0}; free with dlc_text_free(&json.text). */
#ifndef DLC_BASE_JSON_H
#define DLC_BASE_JSON_H

#include <stdint.h>

#include "base/text.h"

typedef struct dlc_json {
    dlc_text text;
    int comma; /* the next value follows another one */
} dlc_json;

/* `key` is NULL inside an array or at the top. */
void dlc_json_object(dlc_json *json, const char *key);
void dlc_json_array(dlc_json *json, const char *key);
void dlc_json_end_object(dlc_json *json);
void dlc_json_end_array(dlc_json *json);
void dlc_json_string(dlc_json *json, const char *key,
                     const char *value); /* NULL: null */
void dlc_json_int(dlc_json *json, const char *key, int64_t value);
/* Shortest of 9 or 17 digits; null where JSON has no such number (NaN, inf). */
void dlc_json_number(dlc_json *json, const char *key, double value);
void dlc_json_bool(dlc_json *json, const char *key, int value);

#endif
