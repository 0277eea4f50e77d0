/* Fillers: how parameters start, as text. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "config/internal.h"
#include "config/value.h"

static const struct form {
    const char *name, *form;
    size_t least, most; /* numbers that it takes */
} forms[] = {
    [DLC_FILL_CONSTANT] = {"constant", "constant(value)", 1, 1},
    [DLC_FILL_GAUSSIAN] = {"gaussian", "gaussian(std) or gaussian(std, mean)", 1, 2},
    [DLC_FILL_UNIFORM] = {"uniform", "uniform(low, high)", 2, 2},
    [DLC_FILL_XAVIER] = {"xavier", "xavier", 0, 0},
    [DLC_FILL_MSRA] = {"msra", "msra", 0, 0},
};
#define NFORMS (sizeof forms / sizeof forms[0])

static const struct form *find_form(const char *name, size_t length) {
    for (size_t i = 0; i < NFORMS; i++)
        if (strlen(forms[i].name) == length && memcmp(name, forms[i].name, length) == 0)
            return &forms[i];
    return NULL;
}

static dlc_status unknown_name(const char *text, size_t length) {
    char name[64], shown[DLC_SHOWN];
    const char *names[NFORMS];
    for (size_t i = 0; i < NFORMS; i++)
        names[i] = forms[i].name;
    const char *nearest = NULL;
    if (length < sizeof name) {
        memcpy(name, text, length);
        name[length] = '\0';
        nearest = dlc_nearest(name, names, NFORMS);
    }
    if (nearest)
        return dlc_fail(DLC_ERR_CONFIG, "\"%s\" is not a filler; did you mean %s?",
                        dlc_show(text, shown), nearest);
    return dlc_fail(
        DLC_ERR_CONFIG,
        "\"%s\" is not a filler: constant, gaussian, uniform, xavier or msra",
        dlc_show(text, shown));
}

/* The numbers between '(' and ')' at the text's end; 0 where they are none. */
static int parse_numbers(const char *text, double numbers[2], size_t *count) {
    size_t length = strlen(text);
    if (length < 2 || text[0] != '(' || text[length - 1] != ')')
        return 0;
    const char *at = text + 1, *end = text + length - 1;
    for (*count = 0; *count < 2; (*count)++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end, *last = stop;
        while (at < last && *at == ' ')
            at++;
        while (at < last && last[-1] == ' ')
            last--;
        double *number = &numbers[*count];
        if (dlc_parse_float(at, (size_t)(last - at), number) != DLC_NUMBER ||
            !isfinite(*number))
            return 0;
        if (!comma) {
            (*count)++;
            return 1;
        }
        at = comma + 1;
    }
    return 0; /* a third one */
}

dlc_status dlc_filler_parse(const char *text, dlc_filler *filler) {
    char shown[DLC_SHOWN];
    size_t length = strcspn(text, "( ");
    const struct form *form = find_form(text, length);
    if (!form)
        return unknown_name(text, length);
    const char *rest = text + length;
    while (*rest == ' ')
        rest++;
    double numbers[2] = {0, 0};
    size_t count = 0;
    if ((*rest && !parse_numbers(rest, numbers, &count)) || count < form->least ||
        count > form->most)
        return dlc_fail(DLC_ERR_CONFIG, "\"%s\": write %s", dlc_show(text, shown),
                        form->form);
    dlc_filler parsed = {
        .kind = (dlc_filler_kind)(form - forms), .a = numbers[0], .b = numbers[1]};
    if (parsed.kind == DLC_FILL_GAUSSIAN && parsed.a < 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "\"%s\": the standard deviation must not be negative",
                        dlc_show(text, shown));
    if (parsed.kind == DLC_FILL_UNIFORM && parsed.a > parsed.b)
        return dlc_fail(DLC_ERR_CONFIG, "\"%s\": low is above high",
                        dlc_show(text, shown));
    *filler = parsed;
    return DLC_OK;
}
