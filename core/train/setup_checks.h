/* What of a job's description shows only when its data is open and its layers are made:
 * the part of dlc_setup_open that looks at more than net.ini. Each call adds all the
 * mistakes that it finds, in sections that have none so far, and returns DLC_OK unless
 * there was no memory. Nothing is started and no device is opened: the process that
 * calls it forks later.
 */
#ifndef DLC_TRAIN_SETUP_CHECKS_H
#define DLC_TRAIN_SETUP_CHECKS_H

#include "train/setup.h"

/* Opens the data of those phases (DLC_PHASE_ bits) and reads what training and a test
 * would read first: the samples at both ends, and of [data.test] as many labels as a
 * quarter of a second allows. */
dlc_status dlc_setup_check_data(dlc_setup *setup, unsigned phases,
                                dlc_problems *problems);

/* Infers the shapes of all layers of those phases, and compares scores with classes. */
dlc_status dlc_setup_check_layers(const dlc_setup *setup, unsigned phases,
                                  dlc_problems *problems);

/* The solver's settings, and the learning rates of the whole job. */
dlc_status dlc_setup_check_solver(const dlc_setup *setup, dlc_problems *problems);

#endif
