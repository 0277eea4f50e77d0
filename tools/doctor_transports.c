/* Asks every transport about two ranks of this machine, for `dlcore doctor`. */
#include "doctor_transports.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/device.h>

#include "base/memory.h"
#include "config/config.h"

/* Default settings: `doctor` reads no net.ini. */
static dlc_status settings_of(void *context, const dlc_feature *feature,
                              const dlc_settings **settings) {
    dlc_settings **made = context;
    dlc_problems problems = {0};
    const dlc_option *tables[] = {feature->options};
    dlc_settings_free(*made);
    *made = NULL;
    dlc_status status = dlc_settings_make(NULL, "transport", tables, 1, &problems,
                                          made);
    dlc_problems_free(&problems);
    *settings = *made;
    return status;
}

dlc_status doctor_transports_ask(doctor_transports *transports,
                                 const dlc_registry *registry,
                                 const dlc_feature *device, int32_t count) {
    int host = (device->caps & DLC_DEVICE_HOST) != 0;
    dlc_settings *made = NULL;
    dlc_rank_info places[2];
    doctor_choice *grown = dlc_grow_by_one(transports->choice, transports->choices,
                                           sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    transports->choice = grown;
    doctor_choice *asked = &grown[transports->choices++];
    *asked = (doctor_choice){.device = device->name};
    for (int32_t r = 0; r < 2; r++) {
        places[r] = (dlc_rank_info){.size = sizeof places[r],
                                    .pid = (uint32_t)getpid(),
                                    .uid = (uint32_t)getuid(),
                                    .device_index = host ? 0 : r,
                                    .package = -1,
                                    .numa = -1};
        snprintf(places[r].host, sizeof places[r].host, "localhost");
        snprintf(places[r].device, sizeof places[r].device, "%s", device->name);
    }
    dlc_transport_args args = {.size = sizeof args,
                               .ranks = host || count > 1 ? 2 : 1,
                               .rank_info = places,
                               .device_ops = device->ops};
    const dlc_choose_args choose = {.registry = registry,
                                    .wanted = "auto",
                                    .device = device->name,
                                    .group = &args,
                                    .settings_of = settings_of,
                                    .context = &made};
    dlc_status status = dlc_transport_choose(&choose, &asked->choice);
    dlc_settings_free(made);
    /* That no transport fits is a result, not a failure. */
    return DLC_STATUS_CLASS(status) == 4 ? DLC_OK : status;
}

const char *doctor_transports_problem(const doctor_transports *transports,
                                      const char *name) {
    const char *reason = "there is no device whose ranks it could connect";
    int found = 0;
    for (size_t i = 0; i < transports->choices; i++) {
        const dlc_transport_choice *choice = &transports->choice[i].choice;
        for (size_t v = 0; v < choice->verdicts; v++) {
            if (strcmp(choice->verdict[v].name, name) != 0)
                continue;
            if (choice->verdict[v].seconds > 0)
                return NULL;
            if (!found++)
                reason = choice->verdict[v].reason;
        }
    }
    return reason;
}

void doctor_transports_json(const doctor_transports *transports, dlc_json *json) {
    dlc_json_array(json, "transports");
    for (size_t i = 0; i < transports->choices; i++) {
        const doctor_choice *asked = &transports->choice[i];
        for (size_t v = 0; v < asked->choice.verdicts; v++) {
            const dlc_transport_verdict *verdict = &asked->choice.verdict[v];
            dlc_json_object(json, NULL);
            dlc_json_string(json, "transport", verdict->name);
            dlc_json_string(json, "device", asked->device);
            dlc_json_bool(json, "works", verdict->seconds > 0);
            dlc_json_string(json, "reason", verdict->reason);
            dlc_json_end_object(json);
        }
    }
    dlc_json_end_array(json);
}

void doctor_transports_free(doctor_transports *transports) {
    for (size_t i = 0; i < transports->choices; i++)
        dlc_transport_choice_free(&transports->choice[i].choice);
    dlc_free(transports->choice);
    *transports = (doctor_transports){0};
}
