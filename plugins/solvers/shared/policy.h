/* The learning rate as a function of the iteration. */
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

typedef struct rate_policy {
    policy_kind kind;
    double rate, gamma, power, min_rate;
    double step;           /* step: length; sigmoid: centre */
    const int64_t *values; /* multistep; the settings' own */
    size_t nvalues;
    double end;    /* poly, cosine: iterations until the last value; 0: not known */
    double warmup; /* iterations; 0: none */
    double warmup_rate;
    int is_resumed; /* iterations count as `schedule` says */
    int ends;       /* with the run, not where the settings say */
    dlc_rate_schedule schedule;
} rate_policy;

/* The rows that the policy reads from the solver's option table. */
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
                "step: iterations between steps; sigmoid: its centre"), \
        DLC_INTS("step_values", NULL, 0, 0x1p53, \
                 "multistep: the iterations where a step is, increasing"), \
        DLC_INT("max_iterations", NULL, 1, 0x1p53, \
                "poly, cosine: iteration where they end; default: the job's last"), \
        DLC_FLOAT("min_learning_rate", "0", 0, 1e9, \
                  "cosine: learning rate at the end"), \
        DLC_INT("warmup", "0", 0, 0x1p53, \
                "iterations in which the learning rate rises linearly to the policy's"), \
        DLC_FLOAT("warmup_epochs", "0", 0, 1e9, "length of the warm-up in epochs"), \
        DLC_FLOAT("warmup_learning_rate", "0", 0, 1e9, \
                  "learning rate of the first iteration of a warm-up")

/* The rows of every solver that has a momentum. */
#define MOMENTUM_OPTIONS \
    DLC_FLOAT("momentum", "0.9", 0, 1, \
              "share of the last step that the next one keeps"), \
        DLC_BOOL("nesterov", "no", "look ahead along the momentum (Nesterov)"), \
        DLC_FLOAT("weight_decay", "0", 0, 1e9, \
                  "pulls weights to zero; times the parameter's own multiplier"), \
        DLC_INT("accumulation_steps", "1", 1, 65536, \
                "batches whose mean gradient makes one iteration")

/* Everything that can be checked without knowing how long the job is. */
dlc_status policy_check(const dlc_host *host, const dlc_settings *settings);

/* As dlc_solver_args has them; the settings were checked and must outlive it. */
dlc_status policy_make(const dlc_host *host, const dlc_settings *settings,
                       int64_t max_iterations, int64_t epoch_iterations,
                       rate_policy *made);

/* dlc_solver_ops.check_schedule. */
dlc_status policy_look(const dlc_host *host, const dlc_settings *settings,
                       int64_t iterations, int64_t epoch_iterations, char *warning,
                       size_t bytes);

/* Of a solver: where its run was resumed with another batch or length, the rate goes on
 * from where it was. */
dlc_status policy_make_for(const dlc_host *host, const dlc_solver_args *args,
                           rate_policy *made);

double policy_rate(const rate_policy *policy, int64_t iteration);

#endif
