/* The choice of a transport: scores, reasons, and the sentence when none fits. */
#include "comm/choose.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static dlc_status add_verdict(dlc_choice *choice, const char *name, int32_t score,
                              const char *reason) {
    dlc_verdict *grown = dlc_grow(choice->verdict, choice->verdicts,
                                  choice->verdicts + 1, sizeof *choice->verdict);
    if (!grown)
        return DLC_ERR_NOMEM;
    choice->verdict = grown;
    dlc_verdict *v = &grown[choice->verdicts++];
    v->score = score;
    v->name = dlc_strdup(name);
    v->reason = dlc_strdup(reason);
    return v->name && v->reason ? DLC_OK : DLC_ERR_NOMEM;
}

/* Asks one usable transport. */
static dlc_status judge(const dlc_feature *feature, const char *device,
                        const dlc_transport_args *args, dlc_settings_of *settings_of,
                        void *context, dlc_choice *choice) {
    const dlc_transport_ops *ops = feature->ops;
    dlc_transport_args probe = *args;
    int32_t score = 0;
    char reason[256] = "";

    if (feature->device && strcmp(feature->device, device) != 0) {
        (void)snprintf(reason, sizeof reason, "works with %s, not with %s",
                       feature->device, device);
        return add_verdict(choice, feature->name, 0, reason);
    }
    probe.settings = NULL;
    probe.allgather = NULL;
    if (settings_of)
        DLC_TRY(settings_of(context, feature, &probe.settings));
    dlc_status status = ops->score(&probe, &score, reason, sizeof reason);
    if (status != DLC_OK)
        return add_verdict(choice, feature->name, 0, dlc_detail());
    return add_verdict(choice, feature->name, score > 0 ? score : 0, reason);
}

/* Every transport found, in the order of the registry. */
static dlc_status judge_all(const dlc_registry *registry, const char *device,
                            const dlc_transport_args *args,
                            dlc_settings_of *settings_of, void *context,
                            dlc_choice *choice, const dlc_feature **best) {
    const dlc_feature_entry *entry = NULL;
    int32_t score = 0;

    for (size_t i = 0;
         (entry = dlc_registry_feature(registry, DLC_KIND_TRANSPORT, i)) != NULL; i++) {
        if (entry->state != DLC_ENTRY_USABLE) {
            DLC_TRY(add_verdict(choice, entry->feature->name, 0, entry->reason));
            continue;
        }
        DLC_TRY(judge(entry->feature, device, args, settings_of, context, choice));
        int32_t its = choice->verdict[choice->verdicts - 1].score;
        if (its > score) {
            score = its;
            *best = entry->feature;
        }
    }
    return DLC_OK;
}

static dlc_status mark_chosen(dlc_choice *choice, const dlc_feature *feature) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        dlc_verdict *v = &choice->verdict[i];
        if (v->score == 0 || strcmp(v->name, feature->name) != 0)
            continue;
        v->chosen = 1;
        choice->feature = feature;
        return DLC_OK;
    }
    return DLC_ERR_CONFIG;
}

static dlc_status none_fits(const dlc_choice *choice) {
    dlc_text why = {0};
    for (size_t i = 0; i < choice->verdicts; i++)
        dlc_text_add(&why, "%s%s: %s", i > 0 ? "; " : "", choice->verdict[i].name,
                     choice->verdict[i].reason);
    dlc_status status = dlc_fail(DLC_ERR_CONFIG, "no transport joins these ranks: %s",
                                 choice->verdicts > 0 ? dlc_text_string(&why)
                                                      : "none is installed");
    dlc_text_free(&why);
    return status;
}

static dlc_status choose_by_name(const dlc_registry *registry, const char *wanted,
                                 const char *device, const dlc_transport_args *args,
                                 dlc_settings_of *settings_of, void *context,
                                 dlc_choice *choice) {
    const dlc_feature *feature = NULL;

    DLC_TRY(dlc_registry_find(registry, DLC_KIND_TRANSPORT, wanted, device, &feature));
    DLC_TRY(judge(feature, device, args, settings_of, context, choice));
    if (mark_chosen(choice, feature) == DLC_OK)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG, "transport %s cannot join these ranks: %s", wanted,
                    choice->verdict[0].reason);
}

dlc_status dlc_comm_choose(const dlc_registry *registry, const char *wanted,
                           const char *device, const dlc_transport_args *args,
                           dlc_settings_of *settings_of, void *context,
                           dlc_choice *choice) {
    const dlc_feature *best = NULL;

    if (strcmp(wanted, "auto") != 0)
        return choose_by_name(registry, wanted, device, args, settings_of, context,
                              choice);
    DLC_TRY(judge_all(registry, device, args, settings_of, context, choice, &best));
    return best ? mark_chosen(choice, best) : none_fits(choice);
}

void dlc_choice_text(const dlc_choice *choice, dlc_text *text) {
    int32_t best = 0;

    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_verdict *v = &choice->verdict[i];
        if (!v->chosen)
            continue;
        best = v->score;
        dlc_text_add(text, "transport: %s: %s\n", v->name, v->reason);
    }
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_verdict *v = &choice->verdict[i];
        if (v->chosen)
            continue;
        dlc_text_add(text, "    not %s: ", v->name);
        if (v->score > 0)
            dlc_text_add(text, "slower here (%d against %d): ", v->score, best);
        dlc_text_add(text, "%s\n", v->reason);
    }
}

void dlc_choice_free(dlc_choice *choice) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        dlc_free(choice->verdict[i].name);
        dlc_free(choice->verdict[i].reason);
    }
    dlc_free(choice->verdict);
    *choice = (dlc_choice){0};
}
