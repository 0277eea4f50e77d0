/* Policy plateau: the learning rate falls when the loss of the tests has stopped
 * falling. Unlike other policies it has state, which is the same on all ranks and is
 * saved in checkpoints. Called by solver.c, and by the training loop after each test.
 */
#ifndef DLC_SOLVER_PLATEAU_H
#define DLC_SOLVER_PLATEAU_H

#include <dlcore/plugin.h>

typedef struct dlc_lr_plateau {
    int is_used;         /* 0: `factor` stays 1 */
    double gamma, least; /* what multiplies `factor`, and the least it can be */
    double threshold;    /* by which a loss must be smaller, relative to the best one */
    int64_t patience;    /* tests without a better loss before the rate falls */

    /* State. */
    double factor;  /* of the learning rate */
    double best;    /* loss; INFINITY before the first test */
    int64_t bad;    /* tests since the best one or since the rate fell */
    int64_t tested; /* iteration after which the last test was; -1: none */
} dlc_lr_plateau;

/* Reads the settings of [solver]; the state is that of a new run. */
dlc_lr_plateau dlc_lr_plateau_make(const dlc_settings *settings);

/* Takes the result of a test, once for each iteration. Returns 1 if the learning rate
 * falls. */
int dlc_lr_plateau_report(dlc_lr_plateau *plateau, int64_t iteration, double loss);

enum { DLC_LR_PLATEAU_TEXT = 128 };

/* The state as text, for checkpoints. Reading fails with 0 and changes nothing if the
 * text is of another kind. */
void dlc_lr_plateau_print(const dlc_lr_plateau *plateau,
                          char text[DLC_LR_PLATEAU_TEXT]);
int dlc_lr_plateau_read(dlc_lr_plateau *plateau, const char *text);

#endif
