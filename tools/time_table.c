/* Computes medians, sums, rates and types, and sorts the rows. */
#include "time_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Work that took less time wasn't done: an element-wise sum whose gradient is passed on
 * without copying moves no bytes. */
static const double shortest = 1e-6;

/* ---- Samples --------------------------------------------------------------------- */

double *dlc_time_samples_add(dlc_time_samples *samples) {
    size_t width = samples->rows * TIME_PARTS;
    if (samples->passes == samples->room) {
        size_t room = samples->room * 2 + 16;
        double *part = dlc_grow(samples->part, samples->room * width, room * width,
                                sizeof *part);
        if (!part)
            return NULL;
        samples->part = part;
        double *whole = dlc_grow(samples->whole, samples->room, room, sizeof *whole);
        if (!whole)
            return NULL;
        samples->whole = whole;
        samples->room = room;
    }
    return samples->part + samples->passes++ * width;
}

void dlc_time_samples_free(dlc_time_samples *samples) {
    dlc_free(samples->part);
    dlc_free(samples->whole);
    *samples = (dlc_time_samples){.rows = samples->rows};
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of sorted values. */
static double middle(const double *values, size_t count) {
    size_t half = count / 2;
    if (count == 0)
        return 0;
    return count % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/* The median of one part of one row; `values` has room for all passes. */
static double median_of(const dlc_time_samples *samples, size_t row, size_t part,
                        double *values) {
    size_t width = samples->rows * TIME_PARTS;
    for (size_t pass = 0; pass < samples->passes; pass++)
        values[pass] = samples->part[pass * width + row * TIME_PARTS + part];
    qsort(values, samples->passes, sizeof *values, by_value);
    return middle(values, samples->passes);
}

/* ---- Rates ----------------------------------------------------------------------- */

static double rate(double work, double seconds) {
    return work > 0 && seconds >= shortest ? work / seconds * 1e-9 : 0;
}

double dlc_time_gflops(const dlc_time_row *row, int part) {
    return rate(2 * (double)row->work[part].multiply_adds, row->seconds[part]);
}

double dlc_time_gbytes(const dlc_time_row *row, int part) {
    return rate((double)row->work[part].bytes, row->seconds[part]);
}

double dlc_time_row_gflops(const dlc_time_row *row) {
    double work = 0, seconds = 0;
    for (int part = 0; part < TIME_PARTS; part++) {
        if (dlc_time_gflops(row, part) <= 0)
            continue;
        work += 2 * (double)row->work[part].multiply_adds;
        seconds += row->seconds[part];
    }
    return rate(work, seconds);
}

double dlc_time_row_gbytes(const dlc_time_row *row) {
    double work = 0, seconds = 0;
    for (int part = 0; part < TIME_PARTS; part++) {
        if (dlc_time_gbytes(row, part) <= 0)
            continue;
        work += (double)row->work[part].bytes;
        seconds += row->seconds[part];
    }
    return rate(work, seconds);
}

double dlc_time_of_limit(const dlc_time_row *row, int part) {
    return row->seconds[part] > 0 ? row->least[part] / row->seconds[part] : 0;
}

double dlc_time_row_of_limit(const dlc_time_row *row) {
    double least = 0;
    for (int part = 0; part < TIME_PARTS; part++)
        least += row->least[part];
    return row->total > 0 ? least / row->total : 0;
}

/* The time that the limits allow a part: of its operations or of its bytes, whichever
 * is longer. */
static double least_seconds(const dlc_time_row *row, int part,
                            const dlc_time_limits *limits) {
    double operations = 0, bytes = 0;
    if (!limits || limits->gflops <= 0 || limits->gbytes <= 0)
        return 0;
    if (dlc_time_gflops(row, part) > 0)
        operations = 2e-9 * (double)row->work[part].multiply_adds / limits->gflops;
    if (dlc_time_gbytes(row, part) > 0)
        bytes = 1e-9 * (double)row->work[part].bytes / limits->gbytes;
    return operations > bytes ? operations : bytes;
}

/* ---- Rows ------------------------------------------------------------------------ */

static void add_to(dlc_time_row *sum, const dlc_time_row *row) {
    sum->layers += row->layers;
    sum->parameters += row->parameters;
    sum->total += row->total;
    for (int part = 0; part < TIME_PARTS; part++) {
        sum->work[part].multiply_adds += row->work[part].multiply_adds;
        sum->work[part].bytes += row->work[part].bytes;
        sum->seconds[part] += row->seconds[part];
        sum->least[part] += row->least[part];
    }
}

static dlc_status make_row(const dlc_net_row *from, dlc_time_row *row) {
    row->name = from->is_reorder ? dlc_format("%s -> %s", from->producer,
                                              from->reader ? from->reader : "?")
                                 : dlc_strdup(from->name);
    row->type = from->type;
    row->fused_into = from->fused_into;
    memcpy(row->choice, from->choice, sizeof row->choice);
    row->layers = 1;
    row->parameters = from->parameters;
    memcpy(row->work, from->work, sizeof from->work);
    return row->name ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status make_rows(const dlc_net_row *net, const dlc_net_work *update,
                            const dlc_time_limits *limits,
                            const dlc_time_samples *samples, dlc_time_table *table) {
    double *values = dlc_alloc(samples->passes, sizeof *values);
    dlc_status status = values ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t i = 0; status == DLC_OK && i < samples->rows; i++) {
        dlc_time_row *row = &table->row[i];
        status = make_row(&net[i], row);
        if (update)
            row->work[TIME_UPDATE] = update[i];
        for (int part = 0; part < TIME_PARTS; part++) {
            row->seconds[part] = median_of(samples, i, (size_t)part, values);
            row->least[part] = least_seconds(row, part, limits);
            row->total += row->seconds[part];
        }
        add_to(&table->sum, row);
    }
    dlc_free(values);
    return status;
}

/* Makes one row per type, in order of first occurrence. Fused layers aren't counted. */
static dlc_status group_types(dlc_time_table *table) {
    for (size_t i = 0; i < table->rows; i++) {
        const dlc_time_row *row = &table->row[i];
        size_t t = 0;
        if (row->fused_into)
            continue;
        while (t < table->types && strcmp(table->type[t].type, row->type) != 0)
            t++;
        if (t == table->types) {
            table->type[t].type = row->type;
            table->type[t].name = dlc_strdup(row->type);
            table->types++;
            if (!table->type[t].name)
                return DLC_ERR_NOMEM;
        }
        add_to(&table->type[t], row);
    }
    return DLC_OK;
}

/* Slowest first; rows with equal times in the order of the net, which is that of
 * addresses. */
static int by_time(const void *a, const void *b) {
    const dlc_time_row *x = *(const dlc_time_row *const *)a;
    const dlc_time_row *y = *(const dlc_time_row *const *)b;
    if (x->total > y->total || x->total < y->total)
        return x->total < y->total ? 1 : -1;
    return (x > y) - (x < y);
}

static dlc_status sort_rows(dlc_time_row **rows, size_t count) {
    const dlc_time_row **order = dlc_alloc(count, sizeof *order);
    dlc_time_row *sorted = dlc_alloc(count, sizeof *sorted);
    dlc_status status = order && sorted ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t i = 0; status == DLC_OK && i < count; i++)
        order[i] = &(*rows)[i];
    if (status == DLC_OK) {
        qsort(order, count, sizeof *order, by_time);
        for (size_t i = 0; i < count; i++)
            sorted[i] = *order[i];
        dlc_free(*rows);
        *rows = sorted;
        sorted = NULL;
    }
    dlc_free(order);
    dlc_free(sorted);
    return status;
}

static void set_shares(dlc_time_row *rows, size_t count, double total) {
    for (size_t i = 0; i < count; i++)
        rows[i].share = total > 0 ? rows[i].total / total : 0;
}

static dlc_status sum_passes(const dlc_time_samples *samples, dlc_time_table *table) {
    size_t count = samples->passes;
    double *sorted = dlc_alloc(count, sizeof *sorted);
    if (!sorted)
        return DLC_ERR_NOMEM;
    table->passes = count;
    if (count) {
        memcpy(sorted, samples->whole, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_value);
        table->pass_min = sorted[0];
        table->pass_median = middle(sorted, count);
        table->pass_max = sorted[count - 1];
    }
    dlc_free(sorted);
    return DLC_OK;
}

/* ---- The table ------------------------------------------------------------------- */

static dlc_status fill_table(const dlc_net_row *net, const dlc_net_work *update,
                             const dlc_time_limits *limits,
                             const dlc_time_samples *samples, dlc_time_order order,
                             dlc_time_table *table) {
    table->rows = samples->rows;
    table->row = dlc_alloc(table->rows, sizeof *table->row);
    table->type = dlc_alloc(table->rows, sizeof *table->type);
    if (!table->row || !table->type)
        return DLC_ERR_NOMEM;
    DLC_TRY(make_rows(net, update, limits, samples, table));
    DLC_TRY(group_types(table));
    DLC_TRY(sum_passes(samples, table));
    set_shares(table->row, table->rows, table->sum.total);
    set_shares(table->type, table->types, table->sum.total);
    set_shares(&table->sum, 1, table->sum.total);
    DLC_TRY(sort_rows(&table->type, table->types));
    return order == TIME_AS_IN_NET ? DLC_OK : sort_rows(&table->row, table->rows);
}

dlc_status dlc_time_table_make(const dlc_net_row *net, const dlc_net_work *update,
                               const dlc_time_limits *limits,
                               const dlc_time_samples *samples, dlc_time_order order,
                               dlc_time_table *table) {
    dlc_time_table made = {0};
    dlc_status status = fill_table(net, update, limits, samples, order, &made);
    if (status == DLC_OK)
        *table = made;
    else
        dlc_time_table_free(&made);
    return status;
}

void dlc_time_table_free(dlc_time_table *table) {
    for (size_t i = 0; table->row && i < table->rows; i++)
        dlc_free(table->row[i].name);
    for (size_t i = 0; table->type && i < table->types; i++)
        dlc_free(table->type[i].name);
    dlc_free(table->row);
    dlc_free(table->type);
    *table = (dlc_time_table){.rows = 0};
}
