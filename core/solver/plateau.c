/* Counts tests without progress and lowers the learning rate, as PyTorch's
 * ReduceLROnPlateau does. */
#include "solver/plateau.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"

dlc_lr_plateau dlc_lr_plateau_make(const dlc_settings *settings) {
    double base = dlc_settings_get_float(settings, "learning_rate");
    double least = dlc_settings_get_float(settings, "min_learning_rate");
    const char *policy = dlc_settings_get_string(settings, "policy");
    return (dlc_lr_plateau){
        .is_used = policy && strcmp(policy, "plateau") == 0,
        .gamma = dlc_settings_get_float(settings, "gamma"),
        .least = base > least ? least / base : 1,
        .threshold = dlc_settings_get_float(settings, "threshold"),
        .patience = dlc_settings_get_int(settings, "patience"),
        .factor = 1,
        .best = (double)INFINITY,
        .tested = -1,
    };
}

/* NaN is never better. */
static int is_better(const dlc_lr_plateau *plateau, double loss) {
    double margin = isinf(plateau->best) ? 0 : plateau->threshold * fabs(plateau->best);
    return loss < plateau->best - margin;
}

int dlc_lr_plateau_report(dlc_lr_plateau *plateau, int64_t iteration, double loss) {
    if (!plateau->is_used || plateau->tested == iteration)
        return 0;
    plateau->tested = iteration;
    if (is_better(plateau, loss)) {
        plateau->best = loss;
        plateau->bad = 0;
        return 0;
    }
    if (++plateau->bad <= plateau->patience)
        return 0;
    plateau->bad = 0;
    if (plateau->factor <= plateau->least)
        return 0;
    plateau->factor = fmax(plateau->factor * plateau->gamma, plateau->least);
    return 1;
}

void dlc_lr_plateau_print(const dlc_lr_plateau *plateau,
                          char text[DLC_LR_PLATEAU_TEXT]) {
    (void)snprintf(text, DLC_LR_PLATEAU_TEXT, "%.17g %.17g %" PRId64 " %" PRId64,
                   plateau->factor, plateau->best, plateau->bad, plateau->tested);
}

int dlc_lr_plateau_read(dlc_lr_plateau *plateau, const char *text) {
    dlc_lr_plateau read = *plateau;
    if (!text || sscanf(text, "%lf %lf %" SCNd64 " %" SCNd64, &read.factor, &read.best,
                        &read.bad, &read.tested) != 4)
        return 0;
    *plateau = read;
    return 1;
}
