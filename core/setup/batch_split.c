/* Parses [parallel] batch_split, assigns samples by largest remainders, and balances a
 * split by measured throughput. */
#include "setup/batch_split.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void dlc_batch_split_free(dlc_batch_split *split) {
    dlc_free(split->proportion);
    dlc_free(split->count);
    dlc_free(split->previous);
    *split = (dlc_batch_split){0};
}

/* ---- Parsing --------------------------------------------------------------------- */

static const double most = 1e9;

/* Parses the proportion at `at`, up to a comma or the end; *end is after it. */
static dlc_status parse_one(const char *text, const char *at, int32_t place,
                            double *value, const char **end) {
    char *stop = NULL;
    const char *first = at + strspn(at, " \t");
    double number = strtod(first, &stop);
    int plain = stop > first &&
                strspn(first, "0123456789.eE+-") == (size_t)(stop - first);
    stop += strspn(stop, " \t");
    if (!plain || (*stop && *stop != ',') || !(number >= 0 && number <= most))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "batch_split: value %" PRId32 " of \"%s\" is not a number from 0 to "
            "%g; set equal, auto, or a proportion for each rank, as in 1,1,0.5",
            place, text, most);
    *value = number;
    *end = stop;
    return DLC_OK;
}

static dlc_status parse_proportions(const char *text, dlc_batch_split *split) {
    double sum = 0;
    for (const char *at = text, *end = text;; at = end + 1) {
        int32_t place = split->proportions;
        double *grown = dlc_grow(split->proportion, (size_t)place, (size_t)place + 1,
                                 sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        split->proportion = grown;
        DLC_TRY(parse_one(text, at, place + 1, &grown[place], &end));
        split->proportions++;
        sum += grown[place];
        if (!*end)
            break;
    }
    if (sum <= 0)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "batch_split: with \"%s\" no rank has any samples; give at least "
            "one rank more than 0",
            text);
    return DLC_OK;
}

dlc_status dlc_batch_split_parse(const char *text, dlc_batch_split *split) {
    dlc_batch_split made = {.is_default = !text, .is_auto = text && dlc_is_auto(text)};
    if (text && !made.is_auto && strcmp(text, "equal") != 0) {
        dlc_status status = parse_proportions(text, &made);
        if (status != DLC_OK) {
            dlc_batch_split_free(&made);
            return status;
        }
    }
    *split = made;
    return DLC_OK;
}

/* ---- Assigning ------------------------------------------------------------------- */

static double proportion_of(const dlc_batch_split *split, int32_t rank) {
    if (rank >= split->ranks - split->servers)
        return 0;
    return split->proportions ? split->proportion[rank] : 1;
}

/* The first rank with the largest `value`. */
static int32_t rank_of_most(int32_t ranks, const double *value) {
    int32_t best = 0;
    for (int32_t r = 1; r < ranks; r++)
        if (value[r] > value[best])
            best = r;
    return best;
}

/* Assigns whole samples first, and what is left to the largest remainders. */
static void assign_by_remainders(const dlc_batch_split *split, double sum, double *left,
                                 int64_t *count) {
    int64_t given = 0;
    for (int32_t r = 0; r < split->ranks; r++) {
        double quota = (double)split->batch * proportion_of(split, r) / sum;
        count[r] = (int64_t)quota;
        /* a rank with proportion 0 gets none of the rest */
        left[r] = quota > 0 ? quota - (double)count[r] : -2;
        given += count[r];
    }
    for (; given < split->batch; given++) {
        int32_t next = rank_of_most(split->ranks, left);
        count[next]++;
        left[next] = -1;
    }
}

static int32_t rank_of_largest(int32_t ranks, const int64_t *count) {
    int32_t best = 0;
    for (int32_t r = 1; r < ranks; r++)
        if (count[r] > count[best])
            best = r;
    return best;
}

/* Ranks that would get no sample take one from the rank that has most. */
static void ensure_one_sample(const dlc_batch_split *split, int64_t *count) {
    for (int32_t r = 0; r < split->ranks; r++) {
        if (count[r] || proportion_of(split, r) <= 0)
            continue;
        count[rank_of_largest(split->ranks, count)]--;
        count[r]++;
    }
}

static dlc_status check_assignment(const dlc_batch_split *split, double *sum) {
    int32_t takers = 0;
    *sum = 0;
    if (split->proportions && split->proportions != split->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "batch_split has %" PRId32
                        " proportion%s, but there %s %" PRId32
                        " rank%s; give one for each rank",
                        split->proportions, split->proportions == 1 ? "" : "s",
                        split->ranks == 1 ? "is" : "are", split->ranks,
                        split->ranks == 1 ? "" : "s");
    for (int32_t r = 0; r < split->ranks; r++) {
        *sum += proportion_of(split, r);
        takers += proportion_of(split, r) > 0;
    }
    if (!takers)
        return dlc_fail(DLC_ERR_CONFIG,
                        "batch_split: of %" PRId32 " ranks %" PRId32
                        " are servers, so no rank is left to compute",
                        split->ranks, split->servers);
    if (split->batch < takers)
        return dlc_fail(DLC_ERR_CONFIG,
                        "batch_split: a batch of %" PRId64
                        " cannot be split among %" PRId32
                        " ranks: that is less than one sample for each",
                        split->batch, takers);
    return DLC_OK;
}

dlc_status dlc_batch_split_assign(dlc_batch_split *split, int64_t batch, int32_t ranks,
                                  int32_t servers) {
    dlc_batch_split made = *split;
    double sum;
    made.batch = batch;
    made.ranks = ranks;
    made.servers = servers;
    DLC_TRY(check_assignment(&made, &sum));
    double *left = dlc_alloc((size_t)ranks, sizeof *left);
    made.count = dlc_alloc((size_t)ranks, sizeof *made.count);
    made.previous = dlc_alloc((size_t)ranks, sizeof *made.previous);
    if (!left || !made.count || !made.previous) {
        dlc_free(left);
        dlc_free(made.count);
        dlc_free(made.previous);
        return DLC_ERR_NOMEM;
    }
    made.previous_seconds = made.kept_seconds = 0;
    assign_by_remainders(&made, sum, left, made.count);
    ensure_one_sample(&made, made.count);
    dlc_free(left);
    dlc_free(split->count);
    dlc_free(split->previous);
    *split = made;
    return DLC_OK;
}

/* ---- By throughput --------------------------------------------------------------- */

static int32_t count_workers(const dlc_batch_split *split) {
    return split->ranks - split->servers;
}

static double seconds_of_rank(const dlc_rank_throughput *throughput, int64_t count) {
    return throughput->fixed_seconds + (double)count / throughput->samples_per_s;
}

double dlc_batch_split_seconds(const dlc_batch_split *split,
                               const dlc_rank_throughput *throughput,
                               const int64_t *count) {
    double most_seconds = 0;
    for (int32_t r = 0; r < count_workers(split); r++)
        most_seconds = fmax(most_seconds, seconds_of_rank(&throughput[r], count[r]));
    return most_seconds;
}

/* The time at which all ranks would be done if samples could be divided; ranks that
 * need longer than that for their fixed part get none. */
static double finish_time(const dlc_batch_split *split,
                          const dlc_rank_throughput *throughput, int64_t samples) {
    double end = INFINITY;
    for (int32_t left = count_workers(split); left > 0;) {
        double speed = 0, sum = (double)samples;
        int32_t takers = 0;
        for (int32_t r = 0; r < count_workers(split); r++) {
            if (!(throughput[r].fixed_seconds < end))
                continue;
            speed += throughput[r].samples_per_s;
            sum += throughput[r].fixed_seconds * throughput[r].samples_per_s;
            takers++;
        }
        if (!takers || (takers == left && end < INFINITY))
            break;
        end = sum / speed;
        left = takers;
    }
    return end;
}

/* Assigns whole chunks of what a rank can do until then, or one sample; never more than
 * there are in total. */
static int64_t assign_most(const dlc_batch_split *split,
                           const dlc_rank_throughput *throughput, int64_t chunk,
                           int64_t *count) {
    int64_t rest = split->batch - count_workers(split), left = split->batch;
    double end = finish_time(split, throughput, rest);
    for (int32_t r = 0; r < split->ranks; r++) {
        int64_t whole = 0;
        if (r < count_workers(split)) {
            whole = (int64_t)((end - throughput[r].fixed_seconds) *
                              throughput[r].samples_per_s);
            whole = whole < chunk ? 1 : whole - whole % chunk;
        }
        count[r] = whole;
        left -= whole;
    }
    return left;
}

/* Assigns the rest chunk by chunk to the rank that will be done with it first. */
static void assign_chunks(const dlc_batch_split *split,
                          const dlc_rank_throughput *throughput, int64_t chunk,
                          int64_t *count) {
    int64_t left = assign_most(split, throughput, chunk, count);
    while (left > 0) {
        int32_t best = 0;
        double least = INFINITY;
        for (int32_t r = 0; r < count_workers(split); r++) {
            /* The one sample that every rank has is part of its first chunk. */
            double done = seconds_of_rank(&throughput[r],
                                          (count[r] / chunk + 1) * chunk);
            if (done < least) {
                least = done;
                best = r;
            }
        }
        int64_t more = chunk - count[best] % chunk;
        more = more < left ? more : left;
        count[best] += more;
        left -= more;
    }
}

void dlc_batch_split_balance(const dlc_batch_split *split,
                             const dlc_rank_throughput *throughput, int64_t *count) {
    /* layers may process several samples at once, rarely more than 16 */
    static const int64_t chunk_sizes[] = {16, 8, 4, 2};
    const double close_enough = 1.1; /* the accuracy of measured throughput */
    assign_chunks(split, throughput, 1, count);
    double best = dlc_batch_split_seconds(split, throughput, count);
    for (size_t i = 0; i < sizeof chunk_sizes / sizeof *chunk_sizes; i++) {
        assign_chunks(split, throughput, chunk_sizes[i], count);
        if (dlc_batch_split_seconds(split, throughput, count) <= close_enough * best)
            return;
    }
    assign_chunks(split, throughput, 1, count);
}

void dlc_batch_split_set(dlc_batch_split *split, const int64_t *count, double seconds) {
    size_t bytes = (size_t)split->ranks * sizeof *count;
    memcpy(split->previous, split->count, bytes);
    memcpy(split->count, count, bytes);
    split->previous_seconds = seconds;
}

int dlc_batch_split_verify(dlc_batch_split *split, double seconds) {
    const double noise = 1.1;
    double took = split->previous_seconds;
    split->previous_seconds = 0;
    if (!(took > 0) || seconds <= noise * took)
        return 0;
    memcpy(split->count, split->previous, (size_t)split->ranks * sizeof *split->count);
    split->kept_seconds = took;
    return 1;
}

int dlc_batch_split_is_kept(const dlc_batch_split *split, double seconds) {
    const double clearly = 1.25;
    return split->kept_seconds > 0 && seconds < clearly * split->kept_seconds;
}

/* ---- Results --------------------------------------------------------------------- */

void dlc_batch_split_range(const dlc_batch_split *split, int32_t rank, int64_t *offset,
                           int64_t *count) {
    *offset = 0;
    for (int32_t r = 0; r < rank; r++)
        *offset += split->count[r];
    *count = split->count[rank];
}

int32_t dlc_batch_split_most(const dlc_batch_split *split) {
    return rank_of_largest(split->ranks, split->count);
}

int dlc_batch_split_is_equal(const dlc_batch_split *split) {
    int64_t least = split->batch / count_workers(split);
    for (int32_t r = 0; r < count_workers(split); r++)
        if (split->count[r] < least || split->count[r] > least + 1)
            return 0;
    return 1;
}

void dlc_batch_split_print(const dlc_batch_split *split, dlc_text *text) {
    for (int32_t r = 0; r < split->ranks; r++)
        dlc_text_add(text, "%s%" PRId64, r ? "," : "", split->count[r]);
}
