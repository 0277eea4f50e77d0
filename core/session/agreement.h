/* All ranks must choose the same transports. If their choices differ, because one of
 * them lacks a transport or an adapter, each says what it cannot use. Called by
 * connection.c. */
#ifndef DLC_SESSION_AGREEMENT_H
#define DLC_SESSION_AGREEMENT_H

#include "comm/choose.h"
#include "job/job.h"

/* A choice as ranks compare it. */
typedef struct dlc_choice_label {
    char name[120];                /* "A+B"; "": there was nothing to choose from */
    char level[DLC_DOMAIN_LEVELS]; /* 'A' + dlc_domain_level within which each connects
                                    */
} dlc_choice_label;

/* The first rank whose choice differs from rank 0's; -1: all agree. */
typedef struct dlc_disagreement {
    int32_t rank;
    dlc_choice_label choice[2]; /* rank 0's, and that rank's */
} dlc_disagreement;

dlc_status dlc_choice_label_make(const dlc_transport_choice *choice,
                                 dlc_choice_label *label);

/* Collective. */
dlc_status dlc_agreement_check(dlc_job *job, const dlc_choice_label *mine,
                               dlc_disagreement *found);

/* Collective. Asks all ranks, of which `mine` is this one's choice with all verdicts,
 * whether they can use either choice. objection[i]: what the first rank that cannot use
 * choice[i] says of its first such level; its name is "" if all can. */
dlc_status dlc_agreement_ask(dlc_job *job, const dlc_transport_choice *mine,
                             const dlc_disagreement *found,
                             dlc_transport_finding objection[2]);

/* DLC_ERR_CONFIG, with both choices. */
dlc_status dlc_agreement_refuse(dlc_job *job, const dlc_disagreement *found);

#endif
