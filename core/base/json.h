/* Writes JSON (RFC 8259). Commas and quoting are automatic; correct nesting is the
 * caller's responsibility. Start with {0}; free with dlc_text_free(&json.text). */
#ifndef DLC_BASE_JSON_H
#define DLC_BASE_JSON_H

#include <stdint.h>

#include "base/text.h"

typedef struct dlc_json {
    dlc_text text;
    int comma; /* the next value follows another one */
} dlc_json;

/* `key` is NULL inside an array and at the top level. */
void dlc_json_object(dlc_json *json, const char *key);
void dlc_json_array(dlc_json *json, const char *key);
void dlc_json_end_object(dlc_json *json);
void dlc_json_end_array(dlc_json *json);
void dlc_json_string(dlc_json *json, const char *key,
                     const char *value); /* NULL: null */
void dlc_json_int(dlc_json *json, const char *key, int64_t value);
/* With 9 digits, or 17 if they are needed; null for NaN and infinity, which JSON
 * lacks. */
void dlc_json_number(dlc_json *json, const char *key, double value);
void dlc_json_bool(dlc_json *json, const char *key, int value);

#endif
