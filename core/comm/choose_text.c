/* Writes a choice and its verdicts as text. */
#include <stdio.h>

#include "base/memory.h"
#include "comm/choose.h"

static const char *plural(int32_t level) {
    static const char *const text[DLC_DOMAIN_LEVELS] = {
        "devices",    "NVLink islands", "PCIe switches", "host bridges",
        "NUMA nodes", "nodes",          "racks",         "jobs"};
    return text[level];
}

void dlc_comm_scope_text(dlc_comm_scope scope, char text[48]) {
    if (scope.below != DLC_SCOPE_RANKS)
        (void)snprintf(text, 48, " between the %s", plural(scope.below));
    else if (scope.within != DLC_DOMAIN_JOB)
        (void)snprintf(text, 48, " inside the %s", plural(scope.within));
    else
        text[0] = '\0';
}

void dlc_transport_choice_name(const dlc_transport_choice *choice, dlc_text *text) {
    for (int32_t i = 0; i < choice->levels; i++)
        dlc_text_add(text, "%s%s", i > 0 ? "+" : "", choice->level[i].feature->name);
}

/* The verdict that was chosen in a scope; NULL: the choice has no such level. */
static const dlc_transport_verdict *chosen_in(const dlc_transport_choice *choice,
                                              dlc_comm_scope scope) {
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].chosen &&
            dlc_comm_scope_is_same(choice->verdict[i].scope, scope))
            return &choice->verdict[i];
    return NULL;
}

/* The seconds of the choice in a scope: of all of it for all ranks. -1: the choice has
 * no such level. */
static double chosen_seconds(const dlc_transport_choice *choice, dlc_comm_scope scope) {
    const dlc_transport_verdict *chosen = chosen_in(choice, scope);
    if (scope.below == DLC_SCOPE_RANKS && scope.within == DLC_DOMAIN_JOB)
        return choice->seconds;
    return chosen ? chosen->seconds : -1;
}

static void add_seconds(dlc_text *text, double seconds) {
    if (seconds >= 1)
        dlc_text_add(text, "%.3g s", seconds);
    else if (seconds >= 1e-3)
        dlc_text_add(text, "%.3g ms", seconds * 1e3);
    else
        dlc_text_add(text, "%.3g us", seconds * 1e6);
}

static void add_prediction(const dlc_transport_choice *choice, dlc_text *text) {
    if (!(choice->seconds > 0))
        return;
    dlc_text_add(text, "    predicted ");
    add_seconds(text, choice->seconds);
    dlc_text_add(text, " to reduce %.3g MB", choice->bytes / 1e6);
    if (choice->next) {
        dlc_text_add(text, "; next best: %s, ", choice->next);
        add_seconds(text, choice->next_seconds);
    }
    dlc_text_add(text, "\n");
}

void dlc_transport_choice_text(const dlc_transport_choice *choice, dlc_text *text) {
    char scope[48];
    for (int32_t i = 0; i < choice->levels; i++) {
        const dlc_transport_verdict *v = chosen_in(choice, choice->level[i].scope);
        dlc_comm_scope_text(v->scope, scope);
        dlc_text_add(text, "transport: %s%s: %s\n", v->name, scope, v->reason);
    }
    add_prediction(choice, text);
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_transport_verdict *v = &choice->verdict[i];
        double against = chosen_seconds(choice, v->scope);
        if (v->chosen || against < 0)
            continue;
        dlc_comm_scope_text(v->scope, scope);
        dlc_text_add(text, "    not %s%s: ", v->name, scope);
        if (v->seconds > 0 && against > 0) {
            dlc_text_add(text, "slower, ");
            add_seconds(text, v->seconds);
            dlc_text_add(text, " against ");
            add_seconds(text, against);
            dlc_text_add(text, ": ");
        }
        dlc_text_add(text, "%s\n", v->reason);
    }
}

void dlc_transport_choice_free(dlc_transport_choice *choice) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        dlc_free(choice->verdict[i].name);
        dlc_free(choice->verdict[i].reason);
    }
    dlc_free(choice->verdict);
    dlc_free(choice->next);
    *choice = (dlc_transport_choice){0};
}
