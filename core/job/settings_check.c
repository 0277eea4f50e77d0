/* Finds a rank with other settings by the digests that all have told each other, and
 * the first difference by the texts, which only then are sent. */
#include "job/settings_check.h"

#include <string.h>

#include "base/memory.h"

/* "[section] key = value", or "[section]". */
typedef struct line {
    const char *text;
    int name, length; /* up to the value, and all */
} line;

static line line_at(const char *text) {
    line found = {.text = text, .length = (int)strcspn(text, "\n")};
    const char *value = memmem(text, (size_t)found.length, " = ", 3);
    found.name = value ? (int)(value - text) : found.length;
    return found;
}

static int have_same_name(const line *a, const line *b) {
    return a->name == b->name && memcmp(a->text, b->text, (size_t)a->name) == 0;
}

static int is_in(const line *wanted, const char *settings) {
    while (*settings) {
        line one = line_at(settings);
        if (have_same_name(wanted, &one))
            return 1;
        settings += one.length;
        settings += *settings == '\n';
    }
    return 0;
}

enum { SHOWN = 160 }; /* characters of a line */

static int shown(int length) {
    return length < SHOWN ? length : SHOWN;
}

static dlc_status say_difference(int rank, const char *host, const char *first,
                                 const char *other) {
    size_t begin = 0;
    for (size_t i = 0; first[i] && first[i] == other[i]; i++)
        if (first[i] == '\n')
            begin = i + 1;
    line a = line_at(first + begin), b = line_at(other + begin);
    int is_extra = a.length && !is_in(&a, other);
    const line *one = is_extra ? &a : &b;
    if (have_same_name(&a, &b) && a.length > a.name && b.length > b.name)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "rank %d (host %s) has a different net.ini or command line than "
            "rank 0: %.*s there, %.*s on rank 0",
            rank, host, shown(b.length), b.text, shown(a.length - a.name - 3),
            a.text + a.name + 3);
    return dlc_fail(
        DLC_ERR_CONFIG,
        "rank %d (host %s) has a different net.ini or command line than rank "
        "0: %.*s is %s",
        rank, host, shown(one->length), one->text,
        is_extra           ? "only on rank 0"
        : is_in(&b, first) ? "at another place"
                           : "only there");
}

dlc_status dlc_settings_check(dlc_job *job, const char *settings,
                              const dlc_rank_details *details) {
    int ranks = dlc_job_ranks(job), rank = dlc_job_rank(job), r = 1;
    while (r < ranks && details[r].settings_digest == details[0].settings_digest)
        r++;
    if (r >= ranks)
        return DLC_OK;
    size_t bytes[] = {details[0].settings_bytes, details[r].settings_bytes};
    char *first = dlc_alloc(bytes[0] + 1, 1), *other = dlc_alloc(bytes[1] + 1, 1);
    dlc_status status = first && other ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && rank == 0)
        memcpy(first, settings, bytes[0]);
    if (status == DLC_OK && rank == r)
        memcpy(other, settings, bytes[1]);
    if (status == DLC_OK)
        status = dlc_job_broadcast(job, 0, first, bytes[0]);
    if (status == DLC_OK)
        status = dlc_job_broadcast(job, r, other, bytes[1]);
    if (status == DLC_OK)
        status = say_difference(r, details[r].info.host, first, other);
    dlc_free(first);
    dlc_free(other);
    return status;
}
