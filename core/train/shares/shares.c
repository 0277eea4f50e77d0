/* See shares.h. */
#include "train/shares/shares.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void dlc_shares_free(dlc_shares *shares) {
    dlc_free(shares->proportion);
    dlc_free(shares->count);
    dlc_free(shares->before);
    *shares = (dlc_shares){0};
}

/* ---- What was written ------------------------------------------------------------ */

static const double most = 1e9;

/* The proportion of `text` at `at`, up to a comma or the end; *end is behind it. */
static dlc_status parse_one(const char *text, const char *at, int32_t place,
                            double *value, const char **end) {
    char *stop = NULL;
    const char *first = at + strspn(at, " \t");
    double number = strtod(first, &stop);
    int plain = stop > first &&
                strspn(first, "0123456789.eE+-") == (size_t)(stop - first);
    stop += strspn(stop, " \t");
    if (!plain || (*stop && *stop != ',') || !(number >= 0 && number <= most))
        return dlc_fail(DLC_ERR_CONFIG,
                        "shares: number %" PRId32 " of \"%s\" is no number from 0 to "
                        "%g; give equal, auto, or one proportion a rank, as in 1,1,0.5",
                        place, text, most);
    *value = number;
    *end = stop;
    return DLC_OK;
}

static dlc_status parse_list(const char *text, dlc_shares *shares) {
    double sum = 0;
    for (const char *at = text, *end = text;; at = end + 1) {
        int32_t place = shares->proportions;
        double *grown = dlc_grow(shares->proportion, (size_t)place, (size_t)place + 1,
                                 sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        shares->proportion = grown;
        DLC_TRY(parse_one(text, at, place + 1, &grown[place], &end));
        shares->proportions++;
        sum += grown[place];
        if (!*end)
            break;
    }
    if (sum <= 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "shares: with \"%s\" nobody has any samples; give one rank at "
                        "least more than 0",
                        text);
    return DLC_OK;
}

dlc_status dlc_shares_parse(const char *text, dlc_shares *shares) {
    dlc_shares made = {.open = !text, .measured = text && strcmp(text, "auto") == 0};
    if (text && !made.measured && strcmp(text, "equal") != 0) {
        dlc_status status = parse_list(text, &made);
        if (status != DLC_OK) {
            dlc_shares_free(&made);
            return status;
        }
    }
    *shares = made;
    return DLC_OK;
}

/* ---- Sharing out ----------------------------------------------------------------- */

static double proportion_of(const dlc_shares *shares, int32_t rank) {
    if (rank >= shares->ranks - shares->servers)
        return 0;
    return shares->proportions ? shares->proportion[rank] : 1;
}

/* Of all ranks the one where `value` is largest, the first of them. */
static int32_t rank_of_most(int32_t ranks, const double *value) {
    int32_t best = 0;
    for (int32_t r = 1; r < ranks; r++)
        if (value[r] > value[best])
            best = r;
    return best;
}

/* Whole samples first, then those that are left, to the largest remainders. */
static void give_by_remainders(const dlc_shares *shares, double sum, double *left,
                               int64_t *count) {
    int64_t given = 0;
    for (int32_t r = 0; r < shares->ranks; r++) {
        double quota = (double)shares->batch * proportion_of(shares, r) / sum;
        count[r] = (int64_t)quota;
        /* Who has no proportion is never the next. */
        left[r] = quota > 0 ? quota - (double)count[r] : -2;
        given += count[r];
    }
    for (; given < shares->batch; given++) {
        int32_t next = rank_of_most(shares->ranks, left);
        count[next]++;
        left[next] = -1;
    }
}

/* Who came off with nothing gets one of those who have most. */
static void give_to_the_poor(const dlc_shares *shares, int64_t *count) {
    for (int32_t r = 0; r < shares->ranks; r++) {
        if (count[r] || proportion_of(shares, r) <= 0)
            continue;
        int32_t rich = 0;
        for (int32_t other = 1; other < shares->ranks; other++)
            if (count[other] > count[rich])
                rich = other;
        count[rich]--;
        count[r]++;
    }
}

static dlc_status check_deal(const dlc_shares *shares, double *sum) {
    int32_t takers = 0;
    *sum = 0;
    if (shares->proportions && shares->proportions != shares->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "shares has %" PRId32 " proportion%s, and there %s %" PRId32
                        " rank%s; give one a rank",
                        shares->proportions, shares->proportions == 1 ? "" : "s",
                        shares->ranks == 1 ? "is" : "are", shares->ranks,
                        shares->ranks == 1 ? "" : "s");
    for (int32_t r = 0; r < shares->ranks; r++) {
        *sum += proportion_of(shares, r);
        takers += proportion_of(shares, r) > 0;
    }
    if (!takers)
        return dlc_fail(DLC_ERR_CONFIG,
                        "shares: of %" PRId32 " ranks %" PRId32
                        " are servers, and nobody is left with samples to compute on",
                        shares->ranks, shares->servers);
    if (shares->batch < takers)
        return dlc_fail(DLC_ERR_CONFIG,
                        "shares: a batch of %" PRId64
                        " cannot be shared out among %" PRId32
                        " ranks: that is less than a sample for each",
                        shares->batch, takers);
    return DLC_OK;
}

dlc_status dlc_shares_deal(dlc_shares *shares, int64_t batch, int32_t ranks,
                           int32_t servers) {
    dlc_shares made = *shares;
    double sum;
    made.batch = batch;
    made.ranks = ranks;
    made.servers = servers;
    DLC_TRY(check_deal(&made, &sum));
    double *left = dlc_alloc((size_t)ranks, sizeof *left);
    made.count = dlc_alloc((size_t)ranks, sizeof *made.count);
    made.before = dlc_alloc((size_t)ranks, sizeof *made.before);
    if (!left || !made.count || !made.before) {
        dlc_free(left);
        dlc_free(made.count);
        dlc_free(made.before);
        return DLC_ERR_NOMEM;
    }
    made.took = made.held = 0;
    give_by_remainders(&made, sum, left, made.count);
    give_to_the_poor(&made, made.count);
    dlc_free(left);
    dlc_free(shares->count);
    dlc_free(shares->before);
    *shares = made;
    return DLC_OK;
}

/* ---- By speed -------------------------------------------------------------------- */

static int32_t workers(const dlc_shares *shares) {
    return shares->ranks - shares->servers;
}

static double seconds_of(const dlc_rank_pace *pace, int64_t count) {
    return pace->fixed + (double)count / pace->speed;
}

double dlc_shares_seconds(const dlc_shares *shares, const dlc_rank_pace *pace,
                          const int64_t *count) {
    double most_seconds = 0;
    for (int32_t r = 0; r < workers(shares); r++)
        most_seconds = fmax(most_seconds, seconds_of(&pace[r], count[r]));
    return most_seconds;
}

/* When all would be done with so many samples, if these could be cut: those who are
 * not even done with what is fixed by then get none. */
static double level(const dlc_shares *shares, const dlc_rank_pace *pace,
                    int64_t samples) {
    double end = INFINITY;
    for (int32_t left = workers(shares); left > 0;) {
        double speed = 0, sum = (double)samples;
        int32_t takers = 0;
        for (int32_t r = 0; r < workers(shares); r++) {
            if (!(pace[r].fixed < end))
                continue;
            speed += pace[r].speed;
            sum += pace[r].fixed * pace[r].speed;
            takers++;
        }
        if (!takers || (takers == left && end < INFINITY))
            break;
        end = sum / speed;
        left = takers;
    }
    return end;
}

/* Whole pieces of what the speed is worth, or a sample: never more than there are. */
static int64_t give_most(const dlc_shares *shares, const dlc_rank_pace *pace,
                         int64_t piece, int64_t *count) {
    int64_t rest = shares->batch - workers(shares), left = shares->batch;
    double end = level(shares, pace, rest);
    for (int32_t r = 0; r < shares->ranks; r++) {
        int64_t whole = 0;
        if (r < workers(shares)) {
            whole = (int64_t)((end - pace[r].fixed) * pace[r].speed);
            whole = whole < piece ? 1 : whole - whole % piece;
        }
        count[r] = whole;
        left -= whole;
    }
    return left;
}

/* Then piece by piece to whoever will be done with it first. */
static void give_pieces(const dlc_shares *shares, const dlc_rank_pace *pace,
                        int64_t piece, int64_t *count) {
    int64_t left = give_most(shares, pace, piece, count);
    while (left > 0) {
        int32_t best = 0;
        double least = INFINITY;
        for (int32_t r = 0; r < workers(shares); r++) {
            /* The sample that everybody has is part of the first piece. */
            double done = seconds_of(&pace[r], (count[r] / piece + 1) * piece);
            if (done < least) {
                least = done;
                best = r;
            }
        }
        int64_t more = piece - count[best] % piece;
        more = more < left ? more : left;
        count[best] += more;
        left -= more;
    }
}

void dlc_shares_balance(const dlc_shares *shares, const dlc_rank_pace *pace,
                        int64_t *count) {
    /* Layers may take several samples at once; more than 16 is not known. */
    static const int64_t pieces[] = {16, 8, 4, 2};
    const double little = 1.1; /* speeds are known no better */
    give_pieces(shares, pace, 1, count);
    double best = dlc_shares_seconds(shares, pace, count);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        give_pieces(shares, pace, pieces[i], count);
        if (dlc_shares_seconds(shares, pace, count) <= little * best)
            return;
    }
    give_pieces(shares, pace, 1, count);
}

void dlc_shares_take(dlc_shares *shares, const int64_t *count, double seconds) {
    size_t bytes = (size_t)shares->ranks * sizeof *count;
    memcpy(shares->before, shares->count, bytes);
    memcpy(shares->count, count, bytes);
    shares->took = seconds;
}

int dlc_shares_prove(dlc_shares *shares, double seconds) {
    const double noise = 1.1;
    double took = shares->took;
    shares->took = 0;
    if (!(took > 0) || seconds <= noise * took)
        return 0;
    memcpy(shares->count, shares->before,
           (size_t)shares->ranks * sizeof *shares->count);
    shares->held = took;
    return 1;
}

int dlc_shares_are_held(const dlc_shares *shares, double seconds) {
    const double clearly = 1.25;
    return shares->held > 0 && seconds < clearly * shares->held;
}

/* ---- What came of it ------------------------------------------------------------- */

void dlc_shares_of(const dlc_shares *shares, int32_t rank, int64_t *offset,
                   int64_t *count) {
    *offset = 0;
    for (int32_t r = 0; r < rank; r++)
        *offset += shares->count[r];
    *count = shares->count[rank];
}

int dlc_shares_are_even(const dlc_shares *shares) {
    int64_t least = shares->batch / workers(shares);
    for (int32_t r = 0; r < workers(shares); r++)
        if (shares->count[r] < least || shares->count[r] > least + 1)
            return 0;
    return 1;
}

void dlc_shares_print(const dlc_shares *shares, dlc_text *text) {
    for (int32_t r = 0; r < shares->ranks; r++)
        dlc_text_add(text, "%s%" PRId64, r ? "," : "", shares->count[r]);
}
