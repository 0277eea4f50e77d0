/* Parses CUDA_VISIBLE_DEVICES: indices as nvidia-smi shows them, or unique prefixes of
 * UUIDs, separated by commas; an invalid entry ends the list. */
#include "visible.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { NO_SUCH = -1, NO_NUMBER = -2, TWO = -3, PART = -4 };

static int by_number(const char *text, size_t length, int count) {
    int number = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]))
            return NO_NUMBER;
        number = 10 * number + (text[i] - '0');
        if (number >= count)
            return NO_SUCH;
    }
    return length > 0 ? number : NO_NUMBER;
}

static int by_uuid(const char *text, size_t length, const char *const *uuids,
                   int count) {
    int found = NO_SUCH;
    for (int i = 0; i < count; i++)
        if (strncasecmp(uuids[i], text, length) == 0) {
            if (found >= 0)
                return TWO;
            found = i;
        }
    return found;
}

static int find(const char *text, size_t length, const char *const *uuids, int count) {
    if (strncasecmp(text, "MIG-", 4) == 0)
        return PART;
    if (strncasecmp(text, "GPU-", 4) == 0)
        return by_uuid(text, length, uuids, count);
    return by_number(text, length, count);
}

static int has(const int *chosen, int count, int which) {
    for (int i = 0; i < count; i++)
        if (chosen[i] == which)
            return 1;
    return 0;
}

static const char *problem_of(int found) {
    switch (found) {
    case NO_SUCH:
        return "there is no such GPU";
    case TWO:
        return "more than one GPU has a UUID with this prefix";
    case PART:
        return "parts of a GPU (MIG) are not supported: name whole GPUs";
    default:
        return "it is neither the index of a GPU nor a prefix of its UUID";
    }
}

int visible_choose(const char *text, const char *const *uuids, int count, int *chosen,
                   const char **problem, const char **at) {
    int visible = 0;
    *problem = NULL;
    for (int i = 0; !text && i < count; i++)
        chosen[visible++] = i;
    while (text && *text) {
        text += strspn(text, " \t");
        size_t length = strcspn(text, ",");
        const char *next = text + length;
        while (length > 0 && isspace((unsigned char)text[length - 1]))
            length--;
        int found = find(text, length, uuids, count);
        *at = text;
        if (found < 0) {
            *problem = problem_of(found);
            return visible;
        }
        if (has(chosen, visible,
                found)) { /* an error to CUDA, which then shows no GPU */
            *problem = "that GPU is named twice";
            return 0;
        }
        chosen[visible++] = found;
        text = next + (*next == ',');
    }
    return visible;
}
