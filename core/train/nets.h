/* The nets of a session: what they are built with, and the order in which they come to
 * be: as far as a plan goes; timed, to share the batch out by speed; with their memory
 * and laid out as on the other ranks. */
#ifndef DLC_TRAIN_NETS_H
#define DLC_TRAIN_NETS_H

#include "train/session.h"

/* Of activations, as [train] says. */
dlc_dtype dlc_nets_precision(const dlc_setup *setup);

/* Without memory: session->net, and test_net where there is [data.test]. */
dlc_status dlc_nets_build(dlc_session *session);
/* [parallel] batch_split = auto: a training net is built, timed and thrown away, and the batch
 * shared out (dlc_setup.shares). All ranks together. */
dlc_status dlc_nets_share(dlc_session *session);
/* With their memory, and parameters laid out as the other ranks have them; all ranks
 * together. */
dlc_status dlc_nets_open(dlc_session *session);
/* A test net that has its own parameters. */
dlc_status dlc_nets_open_test(dlc_session *session);
void dlc_nets_free(dlc_session *session);

#endif
