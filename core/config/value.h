/* The value of one option, parsed from text and checked against the option's row. Used
 * by dlc_settings_make, and by whoever has options inside a value, as the list of
 * transforms has. */
#ifndef DLC_CONFIG_VALUE_H
#define DLC_CONFIG_VALUE_H

#include <dlcore/plugin.h>

typedef union dlc_option_value {
    int64_t i; /* INT, BYTES, BOOL */
    double f;  /* FLOAT */
    char *s;   /* STRING, CHOICE, PATH, FILLER; own */
    struct {
        size_t count;
        void *memory; /* int64_t or double; own */
    } list;           /* INTS, FLOATS */
} dlc_option_value;

/* Parses the whole text and checks the range. DLC_ERR_CONFIG: `why` says what is wrong;
 * else DLC_ERR_NOMEM. `folder` is prepended to a relative path. */
dlc_status dlc_value_parse(const dlc_option *option, const char *text,
                           const char *folder, dlc_option_value *value, char *why,
                           size_t room);
void dlc_value_free(const dlc_option *option, dlc_option_value *value);

int dlc_type_is_text(uint32_t type);

/* The i-th choice of "max|average" and its length; NULL beyond the last. */
const char *dlc_choice(const char *choices, size_t i, size_t *length);

/* Copies a value for a message: cut to 60 bytes, without control characters. */
#define DLC_SHOWN 80
const char *dlc_show(const char *text, char shown[DLC_SHOWN]);

#endif
