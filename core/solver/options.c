/* The keys of [solver] that the core reads for every update rule. A solver whose own
 * option table has a row of the same name replaces it: it gives another default. */
#include "solver/solver.h"

const dlc_option dlc_solver_options[] = {
    DLC_FLOAT("learning_rate", "0.01", 0, 1e9, "base learning rate"),
    DLC_CHOICE(
        "scale_learning_rate", "none", "none|linear|sqrt",
        "the learning rate is multiplied by the effective batch (of all ranks and "
        "accumulation steps) over [data] batch, or by the square root of that; "
        "a warm-up rises to the product"),
    DLC_CHOICE("policy", "fixed",
               "fixed|step|multistep|exp|inv|poly|sigmoid|cosine|cosine_restarts|"
               "one_cycle|plateau",
               "schedule of the learning rate over iterations i"),
    DLC_FLOAT("gamma", "0.1", -1e9, 1e9,
              "step, multistep, plateau: factor of each step; exp: gamma^i; inv: "
              "(1 + gamma * i)^-power; sigmoid: steepness, negative to fall"),
    DLC_FLOAT("power", "1", 0, 1e3, "exponent of inv and poly"),
    DLC_INT("step_size", NULL, 1, 0x1p53,
            "step: iterations between steps; sigmoid: iteration of its centre; "
            "cosine_restarts: iterations of the first period"),
    DLC_INTS("step_values", NULL, 0, 0x1p53,
             "multistep: the iterations of the steps, increasing"),
    DLC_INT("max_iterations", NULL, 1, 0x1p53,
            "poly, cosine, one_cycle: iteration where they end; default: the job's "
            "last"),
    DLC_FLOAT("min_learning_rate", "0", 0, 1e9,
              "cosine, cosine_restarts, one_cycle: learning rate at the end; plateau: "
              "the smallest one"),
    DLC_FLOAT("period_mult", "1", 1, 1e3,
              "cosine_restarts: length of a period over that of the one before"),
    DLC_FLOAT("cycle_rise", "0.3", 0, 0.999,
              "one_cycle: fraction of the iterations in which the learning rate rises"),
    DLC_FLOAT("cycle_divisor", "25", 1, 1e9,
              "one_cycle: it begins at learning_rate / cycle_divisor"),
    DLC_BOOL("cycle_momentum", "no",
             "one_cycle: momentum (beta1 of adam, adamw and lamb) falls from "
             "max_momentum to base_momentum and rises again while the learning rate "
             "does the opposite"),
    DLC_FLOAT("base_momentum", "0.85", 0, 0.9999999,
              "cycle_momentum: at the highest learning rate"),
    DLC_FLOAT("max_momentum", "0.95", 0, 0.9999999,
              "cycle_momentum: at the beginning and at the end"),
    DLC_INT("patience", "10", 0, 0x1p31,
            "plateau: tests without a lower loss after which the learning rate still "
            "stays"),
    DLC_FLOAT("threshold", "0.0001", 0, 1,
              "plateau: a loss counts as lower if it is so by this fraction"),
    DLC_INT("warmup", "0", 0, 0x1p53,
            "iterations over which the learning rate rises linearly to the policy's"),
    DLC_FLOAT("warmup_epochs", "0", 0, 1e9, "length of the warm-up in epochs"),
    DLC_FLOAT("warmup_learning_rate", "0", 0, 1e9,
              "learning rate of the first iteration of a warm-up"),
    DLC_FLOAT("weight_decay", "0", 0, 1e9,
              "L2 penalty; multiplied by the parameter's own decay_mult"),
    DLC_FLOAT("l1_decay", "0", 0, 1e9,
              "L1 penalty; multiplied by the parameter's own decay_mult"),
    DLC_FLOAT("clip_gradients", "0", 0, 1e30,
              "largest L2 norm of the gradient over all parameters; 0: no clipping"),
    DLC_FLOAT("clip_value", "0", 0, 1e30,
              "largest magnitude of each element of the gradient; 0: no clipping"),
    DLC_FLOAT("ema", "0", 0, 0.9999999,
              "decay of an exponential moving average of the weights, as 0.9999, which "
              "is saved beside them; 0: none"),
    DLC_INT("accumulation_steps", "1", 1, 65536,
            "micro-batches whose mean gradient makes one iteration"),
    DLC_OPTIONS_END};
