/* Writes the report as text: machines, matrix, routes and transports. Pairs with equal
 * results are listed together. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "topo_report.h"

enum { LABEL = 32, MAX_NAMES = 12, COLUMNS = 88 };

static void label_of(const topo_report *report, int32_t node, char text[LABEL]) {
    dlc_topo_label(&report->topo, node, text, LABEL);
}

/* ---- Machines ---------------------------------------------------------------- */

static void add_count(dlc_text *text, const dlc_topo *topo, int32_t machine,
                      dlc_topo_kind kind, const char *name, const char *plural) {
    size_t count = dlc_topo_count(topo, machine, kind);
    if (count)
        dlc_text_add(text, ", %zu %s", count, count == 1 ? name : plural);
}

static void add_machines(const topo_report *report, dlc_text *text) {
    const dlc_topo *topo = &report->topo;
    size_t number = 0, all = dlc_topo_count(topo, -1, DLC_TOPO_MACHINE);
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++) {
        if (topo->node[i].kind != DLC_TOPO_MACHINE)
            continue;
        const char *name = topo->node[i].name[0] ? topo->node[i].name : "machine";
        if (all > 1)
            dlc_text_add(text, "%zu: ", number);
        dlc_text_add(text, "%s", name);
        add_count(text, topo, i, DLC_TOPO_PACKAGE, "package", "packages");
        add_count(text, topo, i, DLC_TOPO_NUMA, "NUMA node", "NUMA nodes");
        add_count(text, topo, i, DLC_TOPO_L3, "L3 cache", "L3 caches");
        add_count(text, topo, i, DLC_TOPO_CORE, "core", "cores");
        add_count(text, topo, i, DLC_TOPO_SWITCH, "PCI switch", "PCI switches");
        add_count(text, topo, i, DLC_TOPO_GPU, "GPU", "GPUs");
        add_count(text, topo, i, DLC_TOPO_FABRIC, "NVSwitch", "NVSwitches");
        add_count(text, topo, i, DLC_TOPO_NIC, "adapter", "adapters");
        dlc_text_add(text, "\n");
        number++;
    }
    for (size_t i = 0; i < topo->notes; i++)
        dlc_text_add(text, "note: %s\n", topo->note[i]);
}

/* ---- The matrix ---------------------------------------------------------------- */

static void add_cell(dlc_text *text, const char *cell, size_t width) {
    dlc_text_add(text, "  %*s", (int)width, cell);
}

static void add_row(const topo_report *report, dlc_text *text, int32_t row,
                    const int32_t *column, size_t columns, const size_t *width,
                    size_t first) {
    char cell[LABEL];
    label_of(report, row, cell);
    dlc_text_add(text, "%-*s", (int)first, cell);
    for (size_t c = 0; c < columns; c++) {
        dlc_topo_path path = dlc_topo_path_between(&report->topo, row, column[c]);
        dlc_topo_path_text(&path, cell);
        add_cell(text, cell, width[c]);
    }
    int32_t numa = report->topo.node[dlc_topo_device_of(&report->topo, row)].numa;
    if (numa >= 0)
        dlc_text_add(text, "  %4d\n", numa);
    else
        dlc_text_add(text, "     -\n");
}

static void add_matrix(const topo_report *report, dlc_text *text, const int32_t *row,
                       size_t rows, const int32_t *column, size_t columns,
                       size_t *width) {
    char cell[LABEL];
    size_t first = 8;
    for (size_t r = 0; r < rows; r++) {
        label_of(report, row[r], cell);
        first = strlen(cell) > first ? strlen(cell) : first;
    }
    dlc_text_add(text, "\n%*s", (int)first, "");
    for (size_t c = 0; c < columns; c++) {
        label_of(report, column[c], cell);
        width[c] = strlen(cell) > 4 ? strlen(cell) : 4;
        add_cell(text, cell, width[c]);
    }
    dlc_text_add(text, "  NUMA\n");
    for (size_t r = 0; r < rows; r++)
        add_row(report, text, row[r], column, columns, width, first);
    dlc_text_add(text, "\n");
    for (dlc_topo_class c = 0; c < DLC_TOPO_CLASSES; c++)
        dlc_text_add(text, "  %-5s %s\n",
                     c == DLC_TOPO_NV ? "NV#" : dlc_topo_class_text(c),
                     dlc_topo_class_help(c));
}

/* ---- Routes and transports
 * ---------------------------------------------------------------------- */

static void add_routes(const dlc_topo_route *route, dlc_text *text) {
    dlc_text_add(text, "    route: %s: %s\n", dlc_route_text(route->chosen),
                 route->chosen < DLC_ROUTES ? route->verdict[route->chosen].reason
                                            : "nothing connects them");
    for (dlc_route other = 0; other < DLC_ROUTES; other++)
        if (other != route->chosen)
            dlc_text_add(text, "        not %s: %s%s\n", dlc_route_text(other),
                         route->verdict[other].possible ? "slower: " : "",
                         route->verdict[other].reason);
}

/* Adds the lines of dlc_transport_choice_text, indented. */
static void add_transports(const topo_pair *pair, dlc_text *text) {
    dlc_text lines = {0};
    dlc_transport_choice_text(&pair->choice, &lines);
    if (pair->problem)
        dlc_text_add(text, "    transport: none can connect them\n");
    dlc_text_fail_with(text, &lines);
    const char *at = dlc_text_string(&lines);
    while (*at) {
        size_t length = strcspn(at, "\n");
        dlc_text_add(text, "    %.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
    dlc_text_free(&lines);
}

/* What a job of all ends would use: its domains, levels, adapters and transports. */
static void add_job(const topo_report *report, dlc_text *text) {
    if (report->ends < 2)
        return;
    dlc_text_add(text, "\nJob\n");
    dlc_domains_text(&report->domains, &report->topo, text);
    if (report->problem)
        dlc_text_add(text, "transport: %s\n", report->problem);
    else
        dlc_transport_choice_text(&report->choice, text);
}

/* Pairs with equal results. */
typedef struct group {
    dlc_text result; /* owned */
    dlc_text names;  /* owned */
    char class[8];
    size_t count, line;
} group;

static void add_name(const topo_report *report, const topo_pair *pair, group *to) {
    char a[LABEL], b[LABEL];
    if (to->count++ >= MAX_NAMES)
        return;
    label_of(report, report->end[pair->a], a);
    label_of(report, report->end[pair->b], b);
    if (!to->names.length)
        dlc_text_add(&to->names, "\n%s: ", to->class);
    size_t length = strlen(a) + strlen(b) + 4;
    if (to->count > 1)
        dlc_text_add(&to->names, to->line + length > COLUMNS ? ",\n    " : ", ");
    if (to->line + length > COLUMNS)
        to->line = 4;
    dlc_text_add(&to->names, "%s - %s", a, b);
    to->line += length;
}

/* Finds the group of a pair, or adds one, which takes over `result`. */
static group *find_group(group **groups, size_t *count, const topo_pair *pair,
                         dlc_text *result) {
    char class[8];
    dlc_topo_path_text(&pair->route.path, class);
    for (size_t g = 0; g < *count; g++) {
        group *one = &(*groups)[g];
        if (strcmp(one->class, class) == 0 && one->result.length == result->length &&
            strcmp(dlc_text_string(&one->result), dlc_text_string(result)) == 0)
            return one;
    }
    group *grown = dlc_grow_by_one(*groups, *count, sizeof **groups);
    if (!grown)
        return NULL;
    *groups = grown;
    group *made = &grown[(*count)++];
    made->result = *result;
    memcpy(made->class, class, sizeof class);
    *result = (dlc_text){0};
    return made;
}

static dlc_status group_pairs(const topo_report *report, group **groups,
                              size_t *count) {
    for (size_t p = 0; p < report->pairs; p++) {
        dlc_text result = {0};
        add_routes(&report->pair[p].route, &result);
        add_transports(&report->pair[p], &result);
        group *its = result.failed
                         ? NULL
                         : find_group(groups, count, &report->pair[p], &result);
        dlc_text_free(&result);
        if (!its)
            return DLC_ERR_NOMEM;
        add_name(report, &report->pair[p], its);
    }
    return DLC_OK;
}

static void add_pairs(const topo_report *report, dlc_text *text) {
    group *groups = NULL;
    size_t count = 0;
    if (group_pairs(report, &groups, &count) != DLC_OK)
        dlc_text_fail(text);
    for (size_t g = 0; g < count; g++) {
        dlc_text_append_text(text, &groups[g].names);
        if (groups[g].count > MAX_NAMES)
            dlc_text_add(text, " and %zu more pairs", groups[g].count - MAX_NAMES);
        dlc_text_add(text, "\n");
        dlc_text_append_text(text, &groups[g].result);
        dlc_text_free(&groups[g].names);
        dlc_text_free(&groups[g].result);
    }
    dlc_free(groups);
}

/* ---- Measurements --------------------------------------------------------- */

static void add_measured(const topo_report *report, dlc_text *text) {
    if (report->measured && report->pairs)
        dlc_text_add(text,
                     "\nMeasured one way: bandwidth of 8 MiB, latency of 8 bytes\n");
    for (size_t i = 0; i < report->pairs; i++) {
        const topo_pair *pair = &report->pair[i];
        const topo_measured *m = &pair->measured;
        char a[LABEL], b[LABEL];
        if (!m->done)
            continue;
        label_of(report, report->end[pair->a], a);
        label_of(report, report->end[pair->b], b);
        dlc_text_add(text, "  %-8s - %-8s ", a, b);
        if (m->problem[0])
            dlc_text_add(text, "FAILED: %s\n", m->problem);
        else
            dlc_text_add(text, "%7.2f GB/s %8.2f us  %s%s%s\n", m->gbs, m->us,
                         m->intact ? "intact" : "BYTES CHANGED",
                         m->uses[0] ? "  by " : "", m->uses);
    }
}

/* ---- Adapters ------------------------------------------------------------------ */

static void add_adapters(const topo_report *report, dlc_text *text) {
    int begun = 0;
    for (size_t i = 0; i < report->ends; i++) {
        dlc_topo_path path = {0};
        int32_t nic = dlc_topo_route_nic(&report->topo, report->end[i], &path);
        char end[LABEL], its[LABEL], class[8];
        if (nic < 0)
            continue;
        if (!begun++)
            dlc_text_add(text, "\nTo other nodes\n");
        label_of(report, report->end[i], end);
        label_of(report, nic, its);
        dlc_topo_path_text(&path, class);
        dlc_text_add(text, "  %-8s %s (%s) %s\n", end, its, class,
                     report->topo.node[nic].address);
    }
}

void topo_ascii(const topo_report *report, dlc_text *text) {
    int32_t *row = dlc_alloc(TOPO_MAX_ENDS, sizeof *row);
    int32_t *column = dlc_alloc(2 * (size_t)TOPO_MAX_ENDS, sizeof *column);
    size_t *width = dlc_alloc(2 * (size_t)TOPO_MAX_ENDS, sizeof *width);
    if (row && column && width) {
        size_t rows = topo_report_rows(report, row);
        memcpy(column, row, rows * sizeof *row);
        size_t columns = rows + topo_report_adapters(report, column + rows);
        add_machines(report, text);
        if (rows)
            add_matrix(report, text, row, rows, column, columns, width);
        add_job(report, text);
        add_pairs(report, text);
        add_measured(report, text);
        add_adapters(report, text);
    } else {
        dlc_text_fail(text);
    }
    dlc_free(width);
    dlc_free(column);
    dlc_free(row);
}
