/* What the core itself reads from the standing sections of net.ini. */
#include "train/setup.h"

#include <math.h>

const char *const dlc_standing_sections[] = {"net",       "data", "data.test", "solver",
                                             "transport", "run",  NULL};

const dlc_option dlc_net_section_options[] = {
    DLC_STRING(
        "name", "net",
        "what to call the net, in logs and checkpoints: 1 to 64 letters, digits, '.', "
        "'-' and '_', not beginning with '.'"),
    DLC_OPTIONS_END};

const dlc_option dlc_data_section_options[] = {
    DLC_OPTION("source", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
               "where samples come from; `dlcore plugin list` shows the sources"),
    DLC_INT_REQUIRED("batch", 1, 1 << 20,
                     "samples an iteration: of each rank (weak scaling) or of all "
                     "ranks together (strong)"),
    DLC_OPTIONS_END};

const dlc_option dlc_test_section_options[] = {
    DLC_OPTION("source", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
               "where samples come from; `dlcore plugin list` shows the sources"),
    DLC_INT("batch", "100", 1, 1 << 20, "samples a pass; any number is exact"),
    DLC_OPTIONS_END};

const dlc_option dlc_solver_section_options[] = {
    DLC_OPTION("type", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
               "how gradients become weights; `dlcore plugin list` shows the solvers"),
    DLC_OPTIONS_END};

const dlc_option dlc_transport_section_options[] = {
    DLC_STRING("type", "auto",
               "how ranks reach each other; auto: what fits best; A+B: A inside nodes, "
               "B between them"),
    DLC_CHOICE("order", "any", "any|pairwise",
               "order of sums; any: libraries that sum in an order of their own may; "
               "pairwise: the same bits on every transport"),
    DLC_CHOICE("shards", "auto", "auto|yes|no",
               "whether each rank updates a shard of the weights and gets the others'; "
               "auto: where that is one pass over memory, or measured to be faster"),
    DLC_CHOICE(
        "ahead", "auto", "auto|yes|no",
        "whether forward begins before all gradients are summed, and waits where "
        "it needs them; auto: where ranks are joined by something slow"),
    DLC_OPTIONS_END};

const dlc_option dlc_run_section_options[] = {
    DLC_STRING("device", NULL, "where layers run; default: the first device there is"),
    DLC_STRING("gpu", NULL,
               "which of an accelerator's units, \"0,1\", or all: one rank each unless "
               "ranks says otherwise"),
    DLC_INT("ranks", "1", 1, 1024, "processes that train together on this machine"),
    DLC_CHOICE("scaling", "weak", "weak|strong",
               "weak: each rank has the whole batch; strong: ranks share it out"),
    DLC_STRING(
        "shares", NULL,
        "how the batch of all ranks is split among them: even; auto: by measured "
        "speed; or proportions, one a rank, as in 1,1,0.5; default: even, and "
        "where ranks may be ahead of each other by measured speed"),
    DLC_STRING(
        "stages", "1",
        "consecutive pieces of the net, each on ranks of its own: a number, or the "
        "first layer of each but the first; auto: one a rank"),
    DLC_INT(
        "sub_batches", "0", 0, 1 << 20,
        "pieces that a rank's batch goes through the stages in; 0: about two a stage"),
    DLC_CHOICE("split", "auto", "auto|whole|rotating|sliced",
               "how split layers get the samples of all ranks; whole: at once; "
               "rotating: one rank's after the other's; sliced: a part of every "
               "rank's at a time; auto: by time and memory"),
    DLC_INT("epochs", NULL, 0, 1e6, "passes over the training data"),
    DLC_INT("iterations", NULL, 0, 1e12, "updates of the weights; instead of epochs"),
    DLC_INT("seed", "1", 0, 0x1p53, "start of all random numbers"),
    DLC_FLOAT("rendezvous", "60", 1, 1e6,
              "seconds that ranks started by others may take to come together"),
    DLC_FLOAT("deadline", "30", 0, 1e6,
              "seconds without progress after which a rank counts as hung; 0: never"),
    DLC_INT("threads", "0", 0, 4096, "compute threads of a rank; 0: one a core"),
    DLC_BOOL("bind", "true", "bind each rank to its own cores"),
    DLC_CHOICE(
        "precision", "float32", "float32|tf32|bf16|fp16",
        "number format of activations and products; weights, sums and losses stay "
        "float32; tf32: products of float32 rounded to 10 bits, where the device can"),
    DLC_BOOL(
        "record", "true",
        "capture an iteration's work once and run it as a whole, where all of it is "
        "work for the device"),
    DLC_BOOL(
        "tune", "false",
        "time what layers can choose from, once, and take the fastest, where the "
        "device's layers do so; other runs may choose otherwise, with results that "
        "differ in their last bits"),
    DLC_CHOICE("memory", "normal", "normal|low",
               "low: recompute cheap activations in backward instead of keeping them"),
    DLC_BOOL(
        "overcommit", "false",
        "train though more memory is planned than the machine, or its cgroup, has"),
    DLC_INT("display", "0", 0, 1e9,
            "iterations between progress lines; 0: one every two seconds"),
    DLC_INT("test_interval", "0", 0, 1e12,
            "iterations between tests; 0: once an epoch"),
    DLC_BOOL("test_first", "false", "test before training, too"),
    DLC_FLOAT("target_accuracy", "0", 0, 1,
              "stop when a test reaches this accuracy; 0: never"),
    DLC_OPTION("run_dir", DLC_OPT_PATH, 0, NULL, 0, 0, NULL,
               "folder of this run's checkpoints, a new one unless the run resumes; "
               "default: runs/NET-TIME in the current folder"),
    DLC_INT("checkpoint_interval", "0", 0, 1e12,
            "iterations between checkpoints; 0: none by their number"),
    DLC_FLOAT("checkpoint_minutes", "10", 0, 1e6,
              "minutes between checkpoints; 0: none by the time"),
    DLC_BOOL("checkpoint_last", "true", "write a checkpoint at the end"),
    DLC_INT("keep", "3", 0, 1e9, "how many of the last checkpoints stay; 0: all"),
    DLC_BOOL("keep_best", "true",
             "write a checkpoint when a test is the best so far, and keep it; where no "
             "other checkpoint is asked for: only if this is set"),
    DLC_BYTES("bucket", "0", 0, 1e12,
              "gradients are exchanged in pieces of about this size; 0: by measured "
              "latency and bandwidth"),
    DLC_OPTIONS_END};
