/* Learning rate policies for solvers: the learning rate as a function of the iteration,
 * with the options that configure it. */
#ifndef DLC_SHARED_POLICY_H
#define DLC_SHARED_POLICY_H

#include <dlcore/solver.h>

typedef enum policy_kind {
    POLICY_FIXED,
    POLICY_STEP,
    POLICY_MULTISTEP,
    POLICY_EXP,
    POLICY_INV,
    POLICY_POLY,
    POLICY_SIGMOID,
    POLICY_COSINE,
} policy_kind;

typedef struct lr_policy {
    policy_kind kind;
    double base_rate, gamma, power, min_rate;
    double step; /* policy step: its length; policy sigmoid: its centre */
    const int64_t
        *values; /* multistep: iterations of the steps; owned by the settings */
    size_t nvalues;
    double end;    /* poly, cosine: iterations until the last value; -1: unknown */
    double warmup; /* in iterations; 0: none */
    double warmup_rate;
    int is_resumed; /* `schedule` maps iterations to those of the policy */
    int ends;       /* at the job's last iteration, not at one that the settings give */
    dlc_lr_schedule schedule;
} lr_policy;

/* The policy's rows for a solver's option table. */
#define POLICY_OPTIONS \
    DLC_FLOAT("learning_rate", "0.01", 0, 1e9, "base learning rate"), \
        DLC_CHOICE("policy", "fixed", \
                   "fixed|step|multistep|exp|inv|poly|sigmoid|cosine", \
                   "schedule of the learning rate over iterations i"), \
        DLC_FLOAT("gamma", "0.1", -1e9, 1e9, \
                  "step, multistep: factor of each step; exp: gamma^i; inv: " \
                  "(1 + gamma * i)^-power; sigmoid: steepness, negative to fall"), \
        DLC_FLOAT("power", "1", 0, 1e3, "exponent of inv and poly"), \
        DLC_INT("step_size", NULL, 1, 0x1p53, \
                "step: iterations between steps; sigmoid: iteration of its centre"), \
        DLC_INTS("step_values", NULL, 0, 0x1p53, \
                 "multistep: the iterations of the steps, increasing"), \
        DLC_INT("max_iterations", NULL, 1, 0x1p53, \
                "poly, cosine: iteration where they end; default: the job's last"), \
        DLC_FLOAT("min_learning_rate", "0", 0, 1e9, \
                  "cosine: learning rate at the end"), \
        DLC_INT( \
            "warmup", "0", 0, 0x1p53, \
            "iterations over which the learning rate rises linearly to the policy's"), \
        DLC_FLOAT("warmup_epochs", "0", 0, 1e9, "length of the warm-up in epochs"), \
        DLC_FLOAT("warmup_learning_rate", "0", 0, 1e9, \
                  "learning rate of the first iteration of a warm-up")

/* Option rows of every solver with momentum. */
#define MOMENTUM_OPTIONS \
    DLC_FLOAT("momentum", "0.9", 0, 1, \
              "fraction of the last step that the next one keeps"), \
        DLC_BOOL("nesterov", "no", "look ahead along the momentum (Nesterov)"), \
        DLC_FLOAT("weight_decay", "0", 0, 1e9, \
                  "L2 penalty; multiplied by the parameter's own decay_mult"), \
        DLC_INT("accumulation_steps", "1", 1, 65536, \
                "micro-batches whose mean gradient makes one iteration")

/* Checks the settings as far as possible without the length of the job. DLC_ERR_CONFIG
 * with a sentence where they contradict each other. */
dlc_status policy_check(const dlc_host *host, const dlc_settings *settings);

/* Makes the policy from settings that policy_check has accepted and that must outlive
 * it. `max_iterations` and `epoch_iterations` as in dlc_solver_args. */
dlc_status policy_make(const dlc_host *host, const dlc_settings *settings,
                       int64_t max_iterations, int64_t epoch_iterations,
                       lr_policy *made);

/* Implements dlc_solver_ops.check_schedule. */
dlc_status policy_check_schedule(const dlc_host *host, const dlc_settings *settings,
                                 int64_t iterations, int64_t epoch_iterations,
                                 char *warning, size_t bytes);

/* Makes the policy of a solver. In a run that was resumed with another batch size or
 * length the learning rate continues from where it was (dlc_solver_args.schedule). */
dlc_status policy_from_args(const dlc_host *host, const dlc_solver_args *args,
                            lr_policy *made);

double policy_learning_rate(const lr_policy *policy, int64_t iteration);

#endif
