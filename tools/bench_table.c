/* Computes rates, writes the table and the JSON, and parses sizes and names. */
#include "bench_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct op_info {
    const char *name;
    const char *redop;
    int root;
    int twice;  /* all_reduce transfers everything twice */
    int shared; /* a rank already has its share */
} op_info;

static const op_info infos[BENCH_OPS] = {
    [BENCH_ALL_REDUCE] = {"all_reduce", "sum", -1, 1, 1},
    [BENCH_BROADCAST] = {"broadcast", "none", 0, 0, 0},
    [BENCH_ALL_GATHER] = {"all_gather", "none", -1, 0, 1},
    [BENCH_REDUCE_SCATTER] = {"reduce_scatter", "sum", -1, 0, 1},
    [BENCH_SEND_RECV] = {"send_recv", "none", -1, 0, 0},
    [BENCH_PING_PONG] = {"ping_pong", "none", -1, 0, 0},
    [BENCH_STREAM] = {"stream", "none", -1, 0, 0},
};

const char *dlc_bench_op_name(int op) {
    return op >= 0 && op < BENCH_OPS ? infos[op].name : NULL;
}

/* ---- Rates ----------------------------------------------------------------------- */

double dlc_bench_algbw(const dlc_bench_row *row) {
    return row->seconds > 0 ? (double)row->bytes / row->seconds * 1e-9 : 0;
}

double dlc_bench_busbw(const dlc_bench_row *row, int32_t ranks) {
    const op_info *info = &infos[row->op];
    double factor = info->shared ? (double)(ranks - 1) / ranks : 1;
    return dlc_bench_algbw(row) * factor * (info->twice ? 2 : 1);
}

/* ---- Text ------------------------------------------------------------------------ */

void dlc_bench_text_head(const dlc_bench_head *head, dlc_bench_op op, dlc_text *text) {
    dlc_text_add(text, "# %s, %" PRId32 " ranks, %s, %s memory (%s), in place\n",
                 infos[op].name, head->ranks, head->transport,
                 head->arena ? "registered" : "plain", head->device);
    dlc_text_add(text, "#%12s %13s %7s %7s %5s %10s %8s %8s %7s\n", "size", "count",
                 "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
    dlc_text_add(text, "#%12s %13s %7s %7s %5s %10s %8s %8s\n", "(B)", "(elements)", "",
                 "", "", "(us)", "(GB/s)", "(GB/s)");
}

void dlc_bench_text_row(const dlc_bench_head *head, const dlc_bench_row *row,
                        dlc_text *text) {
    const op_info *info = &infos[row->op];
    double us = row->seconds * 1e6;
    dlc_text_add(text, " %12" PRIu64 " %13" PRIu64 " %7s %7s %5d %10.*f %8.*f %8.*f ",
                 row->bytes, row->bytes / sizeof(float), "float", info->redop,
                 info->root, us < 100 ? 2 : 1, us, dlc_bench_algbw(row) < 10 ? 3 : 2,
                 dlc_bench_algbw(row), dlc_bench_busbw(row, head->ranks) < 10 ? 3 : 2,
                 dlc_bench_busbw(row, head->ranks));
    if (row->wrong < 0)
        dlc_text_add(text, "%7s\n", "N/A");
    else
        dlc_text_add(text, "%7" PRId64 "\n", row->wrong);
}

/* ---- JSON ------------------------------------------------------------------------ */

static void add_row(const dlc_bench_head *head, const dlc_bench_row *row,
                    dlc_json *json) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "op", infos[row->op].name);
    dlc_json_string(json, "transport", head->transport);
    dlc_json_int(json, "ranks", head->ranks);
    dlc_json_int(json, "bytes", (int64_t)row->bytes);
    dlc_json_int(json, "count", (int64_t)(row->bytes / sizeof(float)));
    dlc_json_string(json, "type", "float");
    dlc_json_string(json, "redop", infos[row->op].redop);
    dlc_json_int(json, "root", infos[row->op].root);
    dlc_json_bool(json, "arena", head->arena);
    dlc_json_int(json, "iterations", (int64_t)row->iterations);
    dlc_json_number(json, "us", row->seconds * 1e6);
    dlc_json_number(json, "algbw", dlc_bench_algbw(row));
    dlc_json_number(json, "busbw", dlc_bench_busbw(row, head->ranks));
    if (row->wrong < 0)
        dlc_json_string(json, "wrong", NULL);
    else
        dlc_json_int(json, "wrong", row->wrong);
    dlc_json_end_object(json);
}

void dlc_bench_json(const dlc_bench_head *head, const dlc_bench_row *row, size_t rows,
                    dlc_json *json) {
    dlc_json_array(json, NULL);
    for (size_t i = 0; i < rows; i++)
        add_row(head, &row[i], json);
    dlc_json_end_array(json);
}

/* ---- Parsing -----------------------------------------------------------------------
 */

uint64_t dlc_bench_parse_size(const char *text) {
    static const char units[] = "KMG";
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > UINT64_C(1) << 40)
            return 0;
    }
    if (at == text)
        return 0;
    const char *unit = *at ? strchr(units, *at >= 'a' ? *at - 'a' + 'A' : *at) : NULL;
    if (*at && (!unit || at[1]))
        return 0;
    if (unit)
        value <<= 10 * (unit - units + 1);
    return value <= UINT64_C(1) << 40 ? value : 0;
}

void dlc_bench_format_size(uint64_t bytes, char *text) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text, 16, "%.3g %s", value, units[unit]);
}

const char *dlc_bench_parse_ops(const char *text, unsigned *ops, char *bad) {
    unsigned found = 0;
    if (strcmp(text, "all") == 0) {
        *ops = (1u << BENCH_OPS) - 1;
        return NULL;
    }
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        int op = 0;
        while (op < BENCH_OPS && (strlen(infos[op].name) != length ||
                                  strncmp(infos[op].name, at, length) != 0))
            op++;
        if (op == BENCH_OPS) {
            (void)snprintf(bad, 32, "%.*s", length < 31 ? (int)length : 31, at);
            return bad;
        }
        found |= 1u << op;
        at += length;
        if (!*at)
            break;
    }
    *ops = found;
    return NULL;
}
