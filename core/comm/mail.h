/* A mailbox: messages between all ranks for a solver (dlc_mail), over a team with an
 * endpoint of its own, so that they go on beside the communicator's collectives.
 *
 * Threads: one at a time; dlc_mailbox_cancel from any.
 */
#ifndef DLC_COMM_MAIL_H
#define DLC_COMM_MAIL_H

#include <dlcore/solver.h>

#include "comm/comm.h"

typedef struct dlc_mailbox dlc_mailbox;

/* All ranks of the job together, 2 or more, as for their communicator; where that has
 * two levels, the transport between the nodes joins all ranks here, if it can. */
dlc_status dlc_mailbox_open(const dlc_comm_args *args, dlc_mailbox **mailbox);
/* Gives up what is under way. NULL allowed. */
void dlc_mailbox_close(dlc_mailbox *mailbox);

/* For the solver; valid until close. */
const dlc_mail *dlc_mailbox_table(const dlc_mailbox *mailbox);

/* Makes a call that waits, and every later one, return DLC_ERR_CANCELLED. NULL allowed.
 */
void dlc_mailbox_cancel(dlc_mailbox *mailbox);

#endif
