/* The option tables of the reserved sections of net.ini: the keys that the core itself
 * reads. */
#include "setup/setup.h"

#include <math.h>

const char *const dlc_reserved_sections[] = {"net",      "data",        "data.test",
                                             "solver",   "consistency", "train",
                                             "parallel", "transport",   NULL};

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
                     "samples per iteration: of each rank (weak scaling) or of all "
                     "ranks together (strong scaling)"),
    DLC_OPTIONS_END};

const dlc_option dlc_test_section_options[] = {
    DLC_OPTION("source", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
               "where samples come from; `dlcore plugin list` shows the sources"),
    DLC_INT("batch", "100", 1, 1 << 20,
            "samples per pass; the result does not depend on it"),
    DLC_OPTIONS_END};

const dlc_option dlc_solver_section_options[] = {
    DLC_OPTION(
        "type", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
        "the update rule of the weights; `dlcore plugin list` shows the solvers"),
    DLC_OPTIONS_END};

const dlc_option dlc_consistency_section_options[] = {
    DLC_STRING(
        "type", "synchronous",
        "when the updates of one rank become visible to the others; synchronous: "
        "after each iteration all ranks have the same weights; `dlcore plugin "
        "list` shows other models"),
    DLC_OPTIONS_END};

const dlc_option dlc_transport_section_options[] = {
    DLC_STRING("type", "auto",
               "how ranks communicate; auto: the best fit for the interconnect; A+B: A "
               "within nodes, B between them; A+B+C: C between racks"),
    DLC_STRING(
        "racks", "",
        "racks, between which the network is slower: the numbers of machines in "
        "each, \"2 2\", or their hosts, \"a1 a2 / b*\"; empty: as Slurm says, or as "
        "measured"),
    DLC_BOOL(
        "probe", "yes",
        "before training, check between neighbors that what one rank writes is what "
        "the other reads, about as fast as the link should be; what fails is not "
        "used"),
    DLC_CHOICE("reduction_order", "any", "any|pairwise",
               "order in which an all-reduce adds; any: a collective library may use "
               "its own; pairwise: bitwise identical results on every transport"),
    DLC_BYTES("bucket_bytes", "0", 0, 1e12,
              "gradients are reduced in buckets of about this size; 0: chosen from the "
              "measured latency and bandwidth"),
    DLC_CHOICE(
        "shard_optimizer", "auto", "auto|yes|no",
        "each rank updates its shard of the weights, then all ranks gather them "
        "(ZeRO-1); auto: where that is one pass over memory, or measured faster"),
    DLC_CHOICE("overlap_forward", "auto", "auto|yes|no",
               "start the next forward pass before all buckets are reduced, and wait "
               "for a bucket where a layer needs it; auto: on slow interconnects"),
    DLC_OPTIONS_END};

const dlc_option dlc_train_section_options[] = {
    DLC_STRING("device", NULL,
               "where layers run; default: the accelerator that has the most layers, "
               "or the CPU if there is none"),
    DLC_STRING("gpu", NULL,
               "which GPUs to use, as in 0,1, or all: one rank each unless "
               "[parallel] ranks says otherwise"),
    DLC_INT("threads", "0", 0, 4096, "compute threads of a rank; 0: one per core"),
    DLC_BOOL("bind", "true", "bind each rank to its own cores"),
    DLC_INT("epochs", NULL, 0, 1e6,
            "passes over the training data, each rounded up to whole iterations"),
    DLC_INT("iterations", NULL, 0, 1e12, "updates of the weights; instead of epochs"),
    DLC_INT("seed", "1", 0, 0x1p53, "seed of all random numbers"),
    DLC_CHOICE(
        "precision", "float32", "float32|tf32|bf16|fp16",
        "number format of activations and products; weights, reductions and losses "
        "stay float32; tf32: products of float32 rounded to 10 bits, if the device can"),
    DLC_BOOL("capture", "true",
             "capture an iteration as a graph and launch it as a whole, if all of its "
             "work is on the device"),
    DLC_BOOL("autotune", "false",
             "time the algorithms that layers can choose from, and use the fastest; "
             "another run may choose differently, and its last bits may differ"),
    DLC_BOOL(
        "recompute", "false",
        "recompute cheap activations in the backward pass instead of keeping them, "
        "and read no batch ahead"),
    DLC_BOOL("overcommit", "false",
             "train even if more memory is planned than the machine, or its cgroup, "
             "has"),
    DLC_INT("display", "0", 0, 1e9,
            "iterations between progress lines; 0: one every two seconds"),
    DLC_INT("test_interval", "0", 0, 1e12,
            "iterations between tests; 0: once per epoch"),
    DLC_BOOL("test_first", "false", "also test before training"),
    DLC_BOOL(
        "test_ema", "false",
        "tests, of `dlcore test` too, use the average of the weights ([solver] ema)"),
    DLC_FLOAT("target_accuracy", "0", 0, 1,
              "stop when a test reaches this accuracy; 0: never"),
    DLC_OPTION("run_dir", DLC_OPT_PATH, 0, NULL, 0, 0, NULL,
               "folder of this run's checkpoints, a new one unless the run resumes; "
               "default: runs/NET-TIME in the current folder"),
    DLC_INT("checkpoint_interval", "0", 0, 1e12,
            "iterations between checkpoints; 0: none by iteration"),
    DLC_FLOAT("checkpoint_minutes", "10", 0, 1e6,
              "minutes between checkpoints; 0: none by time"),
    DLC_BOOL("checkpoint_last", "true", "write a checkpoint at the end"),
    DLC_INT("keep", "3", 0, 1e9, "how many of the last checkpoints to keep; 0: all"),
    DLC_BOOL("keep_best", "true",
             "write a checkpoint when a test is the best so far, and keep it; if no "
             "other checkpoint is asked for, only when this is set"),
    DLC_OPTIONS_END};

const dlc_option dlc_parallel_section_options[] = {
    DLC_INT("ranks", "1", 1, 1024,
            "processes that train together on this machine; default: data x tensor x "
            "pipeline"),
    DLC_CHOICE(
        "scaling", "weak", "weak|strong",
        "weak: [data] batch is the batch of each rank (of the first pipeline stage); "
        "strong: it is the batch of all ranks, split among them"),
    DLC_STRING(
        "batch_split", NULL,
        "how the batch of all ranks is split among them, or among those of each "
        "pipeline stage: equal; auto: by measured speed; or proportions, one per rank, "
        "as in 1,1,0.5; default: equal, or auto if ranks may run ahead of each other "
        "(bounded staleness)"),
    DLC_CHOICE("tensor_schedule", "auto", "auto|whole_batch|by_rank|chunked",
               "how tensor-parallel layers get the samples of all ranks; whole_batch: "
               "all at once; by_rank: one rank's after another's; chunked: a chunk of "
               "every rank's at a time; auto: by predicted time and memory"),
    DLC_STRING(
        "data", "auto",
        "ranks that split the samples and have the same layers; auto: those that "
        "tensor and pipeline leave"),
    DLC_STRING(
        "tensor", "auto",
        "ranks that divide the tensor-parallel layers, neighbours in one stage; "
        "with a number above 1 and no layer with parallel = tensor or auto: the "
        "layers that send fewer bytes so; auto: all ranks of a stage, if a layer "
        "asks for it"),
    DLC_STRING("pipeline", "1",
               "pipeline stages, consecutive parts of the net on ranks of their own: a "
               "number, or the first layer of each stage but the first; auto: as many "
               "as data and tensor leave ranks for"),
    DLC_STRING("pipeline_ranks", "equal",
               "ranks of each stage: equal, or a number for each, as in 3,1"),
    DLC_INT("micro_batches", "0", 0, 1 << 20,
            "micro-batches that the batch goes through the pipeline in; 0: the fewest "
            "of about the least work"),
    DLC_FLOAT("rendezvous_timeout", "60", 1, 1e6,
              "seconds that ranks started by another launcher may take to connect"),
    DLC_FLOAT("hang_timeout", "30", 0, 1e6,
              "seconds without progress after which a rank counts as hung; 0: never"),
    DLC_OPTIONS_END};
