/* Writes the report as JSON. */
#include <string.h>

#include <dlcore/device.h>

#include "topo_report.h"

enum { LABEL = 32 };

static void speed(dlc_json *json, const char *key, double gbs) {
    if (gbs > 0)
        dlc_json_number(json, key, gbs);
    else
        dlc_json_string(json, key, NULL);
}

/* Adds a number, or null if it is negative. */
static void number(dlc_json *json, const char *key, int32_t value) {
    if (value >= 0)
        dlc_json_int(json, key, value);
    else
        dlc_json_string(json, key, NULL);
}

static void add_node(const dlc_topo *topo, int32_t i, dlc_json *json) {
    const dlc_topo_node *node = &topo->node[i];
    char label[LABEL];
    dlc_topo_label(topo, i, label, sizeof label);
    dlc_json_object(json, NULL);
    dlc_json_int(json, "id", i);
    dlc_json_string(json, "kind", dlc_topo_kind_text(node->kind));
    dlc_json_string(json, "label", label);
    dlc_json_string(json, "name", node->name);
    number(json, "parent", node->parent);
    dlc_json_int(json, "machine", node->machine);
    number(json, "package", node->package);
    number(json, "numa", node->numa);
    number(json, "index", node->index);
    dlc_json_string(json, "address", node->address);
    speed(json, "gbs", node->gbs);
    if (node->kind == DLC_TOPO_NIC)
        speed(json, "speed", node->speed);
    dlc_json_end_object(json);
}

static void add_device_link(const dlc_topo_link *link, dlc_json *json) {
    static const char *const kinds[] = {"?", "nvlink", "xgmi", "other"};
    dlc_json_object(json, NULL);
    dlc_json_int(json, "from", link->from);
    dlc_json_int(json, "to", link->to);
    dlc_json_string(json, "kind", kinds[link->kind <= DLC_LINK_OTHER ? link->kind : 0]);
    dlc_json_int(json, "lanes", link->count);
    speed(json, "gbs", link->gbs);
    dlc_json_end_object(json);
}

static void add_route(const topo_report *report, const dlc_topo_route *route,
                      dlc_json *json) {
    char label[LABEL];
    dlc_json_object(json, "route");
    dlc_json_string(json, "name", dlc_route_text(route->chosen));
    dlc_json_string(json, "reason",
                    route->chosen < DLC_ROUTES ? route->verdict[route->chosen].reason
                                               : NULL);
    dlc_json_array(json, "adapters");
    for (int i = 0; i < 2 && route->nic[0] >= 0 && route->nic[1] >= 0; i++) {
        dlc_topo_label(&report->topo, route->nic[i], label, sizeof label);
        dlc_json_string(json, NULL, label);
    }
    dlc_json_end_array(json);
    dlc_json_array(json, "rejected");
    for (dlc_route other = 0; other < DLC_ROUTES; other++) {
        if (other == route->chosen)
            continue;
        dlc_json_object(json, NULL);
        dlc_json_string(json, "name", dlc_route_text(other));
        dlc_json_bool(json, "possible", route->verdict[other].possible);
        dlc_json_string(json, "reason", route->verdict[other].reason);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
    dlc_json_end_object(json);
}

static void add_transports(const topo_pair *pair, dlc_json *json) {
    const dlc_transport_choice *choice = &pair->choice;
    const char *reason = pair->problem;
    dlc_text name = {0};
    if (!pair->problem)
        dlc_transport_choice_name(choice, &name);
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].chosen)
            reason = choice->verdict[i].reason;
    dlc_json_string(json, "transport", pair->problem ? NULL : dlc_text_string(&name));
    dlc_json_string(json, "reason", reason);
    dlc_json_array(json, "rejected");
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_transport_verdict *v = &choice->verdict[i];
        if (v->chosen)
            continue;
        dlc_json_object(json, NULL);
        dlc_json_string(json, "transport", v->name);
        dlc_json_number(json, "seconds", v->seconds);
        dlc_json_string(json, "reason", v->reason);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
    dlc_text_fail_with(&json->text, &name);
    dlc_text_free(&name);
}

static void add_measured(const topo_measured *m, dlc_json *json) {
    int good = m->done && !m->problem[0];
    dlc_json_object(json, "measured");
    speed(json, "gbs", good ? m->gbs : 0);
    speed(json, "us", good ? m->us : 0);
    dlc_json_bool(json, "intact", good && m->intact);
    dlc_json_string(json, "uses", m->uses);
    dlc_json_string(json, "problem", m->problem[0] ? m->problem : NULL);
    dlc_json_end_object(json);
}

static void add_domains(const dlc_domains *domains, dlc_json *json) {
    dlc_json_array(json, "domains");
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++) {
        if (!domains->ranks || !dlc_domains_differ(domains, (dlc_domain_level)level))
            continue;
        dlc_json_object(json, NULL);
        dlc_json_string(json, "level", dlc_domain_text((dlc_domain_level)level));
        dlc_json_array(json, "of_rank");
        for (int32_t r = 0; r < domains->ranks; r++)
            dlc_json_int(json, NULL, domains->domain[level][r]);
        dlc_json_end_array(json);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

/* Adds the levels of a job of all ends, the innermost first. */
static void add_levels(const dlc_transport_choice *choice, dlc_json *json) {
    dlc_json_array(json, "levels");
    for (int32_t i = 0; i < choice->levels; i++) {
        const dlc_transport_level *its = &choice->level[i];
        dlc_json_object(json, NULL);
        dlc_json_string(json, "within",
                        dlc_domain_text((dlc_domain_level)its->scope.within));
        dlc_json_string(json, "transport", its->feature->name);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

static void add_pair(const topo_report *report, const topo_pair *pair, dlc_json *json) {
    char label[LABEL], class[8];
    dlc_json_object(json, NULL);
    dlc_topo_label(&report->topo, report->end[pair->a], label, sizeof label);
    dlc_json_string(json, "a", label);
    dlc_topo_label(&report->topo, report->end[pair->b], label, sizeof label);
    dlc_json_string(json, "b", label);
    dlc_topo_path_text(&pair->route.path, class);
    dlc_json_string(json, "class", class);
    speed(json, "nominal_gbs", pair->route.path.gbs);
    add_route(report, &pair->route, json);
    add_transports(pair, json);
    if (report->measured)
        add_measured(&pair->measured, json);
    dlc_json_end_object(json);
}

/* Adds an end with its nearest adapter. */
static void add_end(const topo_report *report, int32_t end, dlc_json *json) {
    const dlc_topo *topo = &report->topo;
    dlc_topo_path path = {0};
    char label[LABEL], class[8];
    int32_t nic = dlc_topo_route_nic(topo, end, &path);
    dlc_json_object(json, NULL);
    dlc_topo_label(topo, end, label, sizeof label);
    dlc_json_string(json, "end", label);
    dlc_json_int(json, "node", end);
    if (nic >= 0) {
        dlc_topo_label(topo, nic, label, sizeof label);
        dlc_topo_path_text(&path, class);
        dlc_json_string(json, "adapter", label);
        dlc_json_string(json, "class", class);
    } else {
        dlc_json_string(json, "adapter", NULL);
    }
    dlc_json_end_object(json);
}

static void add_legend(dlc_json *json) {
    dlc_json_object(json, "legend");
    for (dlc_topo_class c = 0; c < DLC_TOPO_CLASSES; c++)
        dlc_json_string(json, c == DLC_TOPO_NV ? "NV#" : dlc_topo_class_text(c),
                        dlc_topo_class_help(c));
    dlc_json_end_object(json);
}

void topo_json(const topo_report *report, dlc_json *json) {
    const dlc_topo *topo = &report->topo;
    dlc_json_object(json, NULL);
    dlc_json_string(json, "source", report->source);
    dlc_json_array(json, "nodes");
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++)
        add_node(topo, i, json);
    dlc_json_end_array(json);
    dlc_json_array(json, "joins");
    for (size_t i = 0; i < topo->links; i++)
        add_device_link(&topo->link[i], json);
    dlc_json_end_array(json);
    dlc_json_array(json, "links");
    for (size_t i = 0; i < report->pairs; i++)
        add_pair(report, &report->pair[i], json);
    dlc_json_end_array(json);
    add_domains(&report->domains, json);
    add_levels(&report->choice, json);
    dlc_json_array(json, "ends");
    for (size_t i = 0; i < report->ends; i++)
        add_end(report, report->end[i], json);
    dlc_json_end_array(json);
    add_legend(json);
    dlc_json_array(json, "notes");
    for (size_t i = 0; i < topo->notes; i++)
        dlc_json_string(json, NULL, topo->note[i]);
    dlc_json_end_array(json);
    dlc_json_end_object(json);
}
