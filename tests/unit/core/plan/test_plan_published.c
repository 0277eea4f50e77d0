/* Compares the planner with published scaling: every case of published.txt must be
 * within its tolerance. `test_plan_published --table` prints the table of
 * docs/results/planner.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/exchange.h"
#include "support/test.h"

enum { NAME = 32, LAYERS = 64, CASES = 64, IN_A_NET = 64 };

typedef struct row {
    char net[NAME], name[NAME];
    int count; /* number of equal layers; the following is of all of them together */
    double parameters, share;
} row;

typedef struct published {
    char system[NAME], net[NAME];
    double alone, batch, bucket;
    dlc_plan_cluster cluster;
    dlc_plan_exchange exchange;
    double speedup, tolerance;
} published;

static row rows[LAYERS];
static published cases[CASES];
static size_t row_count, case_count;

/* ---- The file -------------------------------------------------------------------- */

static int way_of(const char *text) {
    static const char *const name[DLC_PLAN_ALGORITHMS] = {"direct", "ring", "tree",
                                                          "server"};
    for (int way = 0; way < DLC_PLAN_ALGORITHMS; way++)
        if (strcmp(name[way], text) == 0)
            return way;
    return -1;
}

static int overlap_of(const char *text) {
    for (int overlap = 0; overlap <= DLC_PLAN_OVERLAP_BEST; overlap++)
        if (strcmp(dlc_plan_overlap_text(overlap), text) == 0)
            return overlap;
    return -1;
}

static int read_layer(const char *line) {
    row *r = &rows[row_count];
    if (row_count == LAYERS ||
        sscanf(line, "layer %31s %31s %d %lf %lf", r->net, r->name, &r->count,
               &r->parameters, &r->share) != 5)
        return 0;
    row_count++;
    return 1;
}

static int read_case(const char *line) {
    published *p = &cases[case_count];
    char way[NAME], overlap[NAME];
    double inside, between, latency;
    int nodes, each;
    if (case_count == CASES ||
        sscanf(line, "case %31s %31s %lf %lf %31s %31s %lf %d %d %lf %lf %lf %lf %lf",
               p->system, p->net, &p->alone, &p->batch, way, overlap, &p->bucket,
               &nodes, &each, &inside, &between, &latency, &p->speedup,
               &p->tolerance) != 14 ||
        way_of(way) < 0 || overlap_of(overlap) < 0)
        return 0;
    p->cluster = (dlc_plan_cluster){
        .nodes = nodes,
        .ranks_per_node = each,
        .inside = {.latency = latency * 1e-6, .bandwidth = inside * 1e9},
        .between = {.latency = latency * 1e-6, .bandwidth = between * 1e9}};
    p->exchange = (dlc_plan_exchange){.algorithm = (dlc_plan_algorithm)way_of(way),
                                      .overlap = (dlc_plan_overlap)overlap_of(overlap),
                                      .bucket = p->bucket * 1e6};
    case_count++;
    return 1;
}

static int read_file(void) {
    const char *path = getenv("DLCORE_PUBLISHED");
    FILE *file = fopen(path ? path : "tests/unit/core/plan/published.txt", "r");
    char line[256];
    int good = file != NULL;
    while (good && fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        good = line[0] == 'l' ? read_layer(line) : read_case(line);
        if (!good)
            fprintf(stderr, "cannot read this line: %s", line);
    }
    if (file)
        fclose(file);
    return good && case_count > 0;
}

/* ---- A prediction ---------------------------------------------------------------- */

static int is_of(const row *r, const published *p) {
    return strcmp(r->net, p->net) == 0;
}

/* Forward takes a third of a pass, backward two thirds. */
static size_t make_layers(const published *p, dlc_plan_layer *layer) {
    size_t count = 0;
    for (size_t i = 0; i < row_count; i++)
        for (int k = 0; is_of(&rows[i], p) && k < rows[i].count && count < IN_A_NET;
             k++) {
            const row *r = &rows[i];
            double each = r->share / r->count / p->alone;
            layer[count++] = (dlc_plan_layer){.name = r->name,
                                              .parameter_bytes = r->parameters /
                                                                 r->count * 4e6,
                                              .forward = {0, each / 3},
                                              .backward = {0, each * 2 / 3}};
        }
    return count;
}

static dlc_status predict(const published *p, dlc_plan_step *step, double *speedup) {
    dlc_plan_layer layer[IN_A_NET];
    size_t layers = make_layers(p, layer);
    if (layers == 0)
        return dlc_fail(DLC_ERR_CONFIG, "there are no layers of %s", p->net);
    DLC_TRY(dlc_plan_step_of(layer, layers, NULL, &p->cluster, &p->exchange, p->batch,
                             step));
    *speedup = dlc_plan_ranks(&p->cluster) * p->batch / step->seconds / p->alone;
    return DLC_OK;
}

static int print_table(void) {
    printf(
        "| system | net | GPUs | batch | step alone | bytes | exchange | published | "
        "predicted | off by |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < case_count; i++) {
        const published *p = &cases[i];
        int ranks = dlc_plan_ranks(&p->cluster);
        dlc_plan_step step;
        double speedup;
        if (predict(p, &step, &speedup) != DLC_OK)
            return EXIT_FAILURE;
        printf(
            "| %s | %s | %d x %d | %.0f | %.0f ms | %.0f MB | %.0f ms | %.4gx (%.0f %%) "
            "| %.4gx (%.0f %%) | %+.0f %% |\n",
            p->system, p->net, (int)p->cluster.nodes, (int)p->cluster.ranks_per_node,
            p->batch, p->batch / p->alone * 1e3, step.bytes / 1e6, step.exchange * 1e3,
            p->speedup, 100 * p->speedup / ranks, speedup, 100 * speedup / ranks,
            100 * (speedup / p->speedup - 1));
    }
    return EXIT_SUCCESS;
}

/* ---- Tests ----------------------------------------------------------------------- */

static void replay(const published *p) {
    dlc_plan_step step;
    double speedup = 0;
    ck_assert_int_eq(predict(p, &step, &speedup), DLC_OK);
    double off = speedup / p->speedup - 1;
    ck_assert_msg(fabs(off) <= p->tolerance,
                  "%s, %s on %d GPUs: %.3g-fold predicted, %.3g-fold published, off by "
                  "%.0f %%",
                  p->system, p->net, (int)dlc_plan_ranks(&p->cluster), speedup,
                  p->speedup, 100 * off);
    ck_assert_double_le(speedup, dlc_plan_ranks(&p->cluster) * (1 + 1e-9));
}

static int begin(int argc, char **argv) {
    if (!read_file())
        return EXIT_FAILURE;
    return argc > 1 && strcmp(argv[1], "--table") == 0 ? print_table() : TESTS_RUN;
}

TEST_SETTINGS(.begin = begin);

TEST(within_tolerance) {
    for (size_t i = 0; i < case_count; i++)
        replay(&cases[i]);
}

/* Nets that scale much better in the publication do so in the prediction, too. */
TEST(order_of_nets) {
    for (size_t i = 0; i < case_count; i++)
        for (size_t j = i + 1; j < case_count; j++) {
            const published *a = &cases[i], *b = &cases[j];
            dlc_plan_step step;
            double speed_a = 0, speed_b = 0;
            if (strcmp(a->system, b->system) != 0 ||
                dlc_plan_ranks(&a->cluster) != dlc_plan_ranks(&b->cluster) ||
                fabs(a->speedup - b->speedup) < 0.2 * a->speedup)
                continue;
            ck_assert_int_eq(predict(a, &step, &speed_a), DLC_OK);
            ck_assert_int_eq(predict(b, &step, &speed_b), DLC_OK);
            ck_assert_msg((speed_a < speed_b) == (a->speedup < b->speedup),
                          "%s on %d GPUs: %s %.3g, %s %.3g", a->system,
                          (int)dlc_plan_ranks(&a->cluster), a->net, speed_a, b->net,
                          speed_b);
        }
}
