/* The checks of dlc_setup_open that need more than net.ini: the data, the shapes of the
 * layers, the learning rates. Each call adds the mistakes that it finds to `problems`,
 * skips sections that are already known to be wrong, and returns DLC_OK unless memory
 * runs out. No thread is started and no device is opened, since the calling process
 * forks later.
 */
#ifndef DLC_SETUP_SETUP_CHECKS_H
#define DLC_SETUP_SETUP_CHECKS_H

#include "setup/setup.h"

/* Opens the data of these phases (DLC_PHASE_ bits), reads the first and last samples,
 * and checks as many labels of [data.test] as a quarter of a second allows. */
dlc_status dlc_setup_check_data(dlc_setup *setup, unsigned phases,
                                dlc_problems *problems);

/* Infers the shapes of all layers of these phases, and compares the number of scores
 * with the number of classes. */
dlc_status dlc_setup_check_layers(dlc_setup *setup, unsigned phases,
                                  dlc_problems *problems);

/* Makes the solver, and checks it and the consistency model with their settings, and
 * the learning rates over the whole job. */
dlc_status dlc_setup_check_solver(dlc_setup *setup, dlc_problems *problems);

/* Warns about what is allowed and rarely meant in training, and refuses a goal that
 * nothing measures. Comes last. */
void dlc_setup_check_sense(const dlc_setup *setup, dlc_problems *problems);

/* Parses the mesh, once the graph is made; if the number of ranks is not set, the mesh
 * says how many there are. */
void dlc_setup_check_mesh(dlc_setup *setup, dlc_problems *problems);

#endif
