/* Computes the boxes of the picture, and marks common ancestors with transports. */
#include "topo_tree.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { ROWS_MOST = 9 };

/* ---- Marks --------------------------------------------------------------------- */

static int has_name(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = strstr(names, name); at; at = strstr(at + 1, name))
        if ((at == names || at[-1] == ' ') && (at[length] == '\0' || at[length] == ','))
            return 1;
    return 0;
}

static void add_pair(topo_mark *mark, const topo_pair *pair, const char *name) {
    const topo_measured *m = &pair->measured;
    if (!mark->pairs++)
        mark->class = pair->route.path.class;
    if (!has_name(mark->transports, name)) {
        size_t used = strlen(mark->transports);
        (void)snprintf(mark->transports + used, sizeof mark->transports - used, "%s%s",
                       used ? ", " : "", name);
    }
    if (!m->done || m->problem[0])
        return;
    if (mark->most <= 0 || m->gbs < mark->least)
        mark->least = m->gbs;
    mark->most = m->gbs > mark->most ? m->gbs : mark->most;
}

void topo_mark_text(const topo_mark *mark, char *text, size_t bytes) {
    if (!mark->pairs)
        text[0] = '\0';
    else if (mark->most <= 0)
        (void)snprintf(text, bytes, "%s", mark->transports);
    else if (mark->least < mark->most)
        (void)snprintf(text, bytes, "%s, %.1f to %.1f GB/s", mark->transports,
                       mark->least, mark->most);
    else
        (void)snprintf(text, bytes, "%s, %.1f GB/s", mark->transports, mark->most);
}

/* ---- Boxes ---------------------------------------------------------------------- */

static int is_leaf(dlc_topo_kind kind) {
    return kind == DLC_TOPO_GPU || kind == DLC_TOPO_NIC || kind == DLC_TOPO_OTHER ||
           kind == DLC_TOPO_RANK;
}

static int has_box(const dlc_topo *topo, const dlc_topo_node *node) {
    if (node->kind == DLC_TOPO_RANK) /* a rank on a device is written into its box */
        return node->parent >= 0 && !is_leaf(topo->node[node->parent].kind);
    return is_leaf(node->kind) || node->kind == DLC_TOPO_MACHINE ||
           node->kind == DLC_TOPO_PACKAGE || node->kind == DLC_TOPO_NUMA ||
           node->kind == DLC_TOPO_HOST_BRIDGE || node->kind == DLC_TOPO_SWITCH;
}

/* The parent in the picture: some descriptions put PCI below the machine and give its
 * NUMA node or package separately. */
static int32_t parent_of(const dlc_topo *topo, int32_t i) {
    const dlc_topo_node *node = &topo->node[i];
    int is_pci = node->kind >= DLC_TOPO_HOST_BRIDGE && node->kind <= DLC_TOPO_OTHER;
    if (!is_pci || node->numa < 0 || node->parent != node->machine)
        return node->parent;
    for (int32_t k = node->machine; k < i; k++)
        if (topo->node[k].machine == node->machine &&
            topo->node[k].kind == DLC_TOPO_NUMA && topo->node[k].numa == node->numa)
            return k;
    return node->parent;
}

/* Finds the box around each node; parents come before their children. */
static void find_parents(const dlc_topo *topo, topo_tree *tree) {
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++) {
        const dlc_topo_node *node = &topo->node[i];
        topo_box *box = &tree->box[i];
        int32_t parent = parent_of(topo, i);
        box->parent = parent >= 0 ? tree->box[parent].shown : -1;
        box->shown = has_box(topo, node) ? i : box->parent;
        box->is_leaf = box->shown == i && is_leaf(node->kind);
        if (node->kind == DLC_TOPO_CORE && box->parent >= 0)
            tree->box[box->parent].cores++;
        if (box->shown == i && box->parent >= 0) {
            box->row = tree->box[box->parent].row + 1;
            box->row = box->row < ROWS_MOST ? box->row : ROWS_MOST - 1;
        }
    }
}

static void find_columns(const dlc_topo *topo, topo_tree *tree) {
    for (int32_t i = (int32_t)topo->nodes - 1; i >= 0; i--) {
        topo_box *box = &tree->box[i];
        if (box->shown != i)
            continue;
        box->leaves += box->is_leaf || box->cores;
        if (box->parent < 0 && !box->leaves)
            box->leaves = 1; /* an empty machine */
        if (box->parent >= 0) {
            tree->box[box->parent].leaves += box->leaves;
            tree->box[box->parent].inner += !box->is_leaf && box->leaves;
            tree->box[box->parent].children += box->leaves > 0;
        }
        if (box->leaves && !box->is_leaf && box->row >= tree->rows)
            tree->rows = box->row + 1;
    }
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++) {
        topo_box *box = &tree->box[i];
        if (box->shown != i)
            continue;
        if (box->parent >= 0) {
            box->begin = tree->box[box->parent].next;
            tree->box[box->parent].next += box->leaves;
        }
        box->next = box->begin + (box->cores > 0);
    }
}

static dlc_status mark_pair(const topo_report *report, const topo_pair *pair,
                            topo_tree *tree) {
    const dlc_topo_path *path = &pair->route.path;
    int32_t machine = report->topo.node[report->end[pair->a]].machine;
    topo_mark *mark = NULL;
    dlc_text name = {0};
    if (!pair->problem)
        dlc_transport_choice_name(&pair->choice, &name);
    if (path->class == DLC_TOPO_NET)
        mark = &tree->network;
    else if (path->class == DLC_TOPO_NV)
        mark = &tree->link[machine];
    else if (path->common_ancestor >= 0 && tree->box[path->common_ancestor].shown >= 0)
        mark = &tree->box[tree->box[path->common_ancestor].shown].mark;
    else
        mark = &tree->box[machine].mark;
    add_pair(mark, pair, pair->problem ? "none" : dlc_text_string(&name));
    dlc_status status = dlc_text_status(&name);
    dlc_text_free(&name);
    return status;
}

dlc_status topo_tree_make(const topo_report *report, topo_tree *tree) {
    size_t nodes = report->topo.nodes;
    tree->box = dlc_alloc(nodes, sizeof *tree->box);
    tree->link = dlc_alloc(nodes, sizeof *tree->link);
    if (!tree->box || !tree->link)
        return DLC_ERR_NOMEM;
    find_parents(&report->topo, tree);
    find_columns(&report->topo, tree);
    for (size_t i = 0; i < report->pairs; i++)
        DLC_TRY(mark_pair(report, &report->pair[i], tree));
    return DLC_OK;
}

void topo_tree_free(topo_tree *tree) {
    dlc_free(tree->box);
    dlc_free(tree->link);
    *tree = (topo_tree){0};
}
