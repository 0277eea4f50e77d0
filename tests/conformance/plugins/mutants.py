#!/usr/bin/env python3
"""Tests that `dlcore plugin check` finds faults.

The plugin that `dlcore plugin new` makes for each kind must pass every check. Each mutant, a
plugin in which one rule is broken, must fail the check that it was made for.

    mutants.py                for each check one mutant of each kind, and all that is sound
    mutants.py --all          every mutant; takes twice as long
    mutants.py CHECK...       all mutants for checks whose name begins with CHECK
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import device_mutants
import layer_mutants
import quiet_mutants

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
DLCORE = os.environ["DLCORE_BIN"]
HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("device", "transport", "layer", "solver", "consistency", "data", "decoder")

# Checks without a mutant: --set is not the plugin's.
NO_MUTANT = {"file.settings"}

# (check, kind or "accelerator", [(text of the template or of that example, replacement)...], additional compiler flags)
MUTANTS = []


def mutant(check, kind, *changes, flags=()):
    MUTANTS.append((check, kind, changes, flags))


# ---- The file ----------------------------------------------------------------------
END = 'DLC_PLUGIN("sample", '
mutant("file.exports", "solver", (END, "DLC_EXPORT int stray = 1;\n" + END))
mutant("file.data", "solver", ("#include <dlcore/solver.h>", "#define dlc_plugin_v0 moved\n#include <dlcore/solver.h>"),
       (END, '__asm__(".globl dlc_plugin_v0\\n.type dlc_plugin_v0, @function\\n'
             'dlc_plugin_v0 = solver_needs");\n' + END))
mutant("file.independent", "solver", (END, "int dlc_registry_open(void **);\nint (*const use)(void **) "
                                     "__attribute__((visibility(\"hidden\"))) = dlc_registry_open;\n" + END))
mutant("file.safe", "solver", flags=["-Wl,-z,execstack"])
mutant("file.descriptor", "solver", ("PLUGIN_VERSION", '""'))
mutant("file.descriptor", "solver", ("DLC_FEATURES_END,", "{.size = 8, .name = NULL},"))
mutant("file.accepted", "solver", ("    {.size = sizeof(dlc_feature),\n     .kind = DLC_KIND_SOLVER,",
                                   "    {.size = sizeof(dlc_feature),\n     .needs = 16,\n     .kind = DLC_KIND_SOLVER,"))
mutant("file.constant", "solver", ("static const dlc_solver_ops ops", "static dlc_solver_ops ops"))
ROW = """    {.size = sizeof(dlc_feature), .kind = DLC_KIND_SOLVER, .name = "sample", .help = "again",
     .options = options, .ops = &ops},
    DLC_FEATURES_END,"""
mutant("file.duplicates", "solver", ("    DLC_FEATURES_END,", ROW))
mutant("feature.descriptor", "solver", ('.help = "gradient descent with momentum"', ".help = NULL"))
mutant("feature.descriptor", "solver", ("    .needs = solver_needs,\n", ""))
mutant("feature.descriptor", "layer", ('    .name = "sample",\n', ""))
mutant("feature.descriptor", "consistency", ("    .finish = model_finish,\n", ""))
mutant("feature.calls", "consistency", ("    .synchronize = model_synchronize,\n", "    .synchronize = model_synchronize,\n"
                                        "    .save = (void *)model_synchronize,\n"))
mutant("feature.help", "solver", ('that a step keeps"', 'that a step keeps."'))
mutant("feature.keys", "solver", ('DLC_FLOAT("momentum", "0.9"', 'DLC_FLOAT("type", "0.9"'))
mutant("solver.keys", "solver", ('    DLC_FLOAT("momentum"', '    DLC_INT("learning_rate", "1", 0, 9, "a whole number"),\n'
                                 '    DLC_FLOAT("momentum"'))

# ---- load() ------------------------------------------------------------------------
LOAD = "    host = services;\n"
mutant("load.reports", "solver", (LOAD, LOAD + "    return DLC_ERR_UNAVAILABLE;\n"))
mutant("load.threads", "solver",
       ("static dlc_status solver_load", "#include <pthread.h>\n#include <unistd.h>\nstatic void *idle(void *x) {\n"
                                         "    pause();\n    return x;\n}\nstatic dlc_status solver_load"),
       (LOAD, LOAD + "    pthread_t thread;\n    pthread_create(&thread, NULL, idle, NULL);\n"))
mutant("load.fork", "solver", ("static dlc_status solver_load", "#include <pthread.h>\n#include <stdlib.h>\n"
                                                                "static dlc_status solver_load"),
       (LOAD, LOAD + "    pthread_atfork(NULL, NULL, abort);\n"))
mutant("load.process", "solver", ("static dlc_status solver_load", "#include <signal.h>\nstatic dlc_status solver_load"),
       (LOAD, LOAD + "    signal(SIGUSR2, SIG_IGN);\n"))
mutant("load.process", "solver", ("static dlc_status solver_load",
                                  "#include <sys/stat.h>\nstatic dlc_status solver_load"),
       (LOAD, LOAD + "    umask(0);\n"))
mutant("load.stdout", "solver", ("static dlc_status solver_load", "#include <stdio.h>\nstatic dlc_status solver_load"),
       (LOAD, LOAD + '    puts("hello");\n'))
mutant("load.process", "solver", ("static dlc_status solver_load", "#include <unistd.h>\nstatic dlc_status solver_load"),
       (LOAD, LOAD + "    close(2);\n"))
mutant("load.memory", "solver", (LOAD, LOAD + "    *(volatile char *)host->alloc(1) = 1;\n"))
mutant("load.reports", "data", (LOAD, LOAD + "    const char *end = (const char *)services + services->size;\n"
                                          "    if (*(const volatile char *)end)\n        return DLC_ERR_UNAVAILABLE;\n"))

# ---- Lifecycle ---------------------------------------------------------------------
mutant("lifecycle.leaks", "consistency", ("    host->free(model);", "    (void)model;"))
mutant("lifecycle.leaks", "data", ("    host->free(source);", "    (void)source;"))
mutant("lifecycle.two", "data", ("    made->seed = args->seed;", "    static int open_now;\n    if (open_now++)\n        "
                            'return host->fail(DLC_ERR_IO, "busy");\n    made->seed = args->seed;'))
mutant("lifecycle.settings", "data", ('host->get_int(settings, "side")', '(int64_t)host->get_float(settings, "side")'))
mutant("lifecycle.settings", "solver", ('host->get_float(settings, "momentum")', 'host->get_int(settings, "momentum")'))
mutant("lifecycle.settings", "solver", ('host->get_float(settings, "momentum")', 'host->get_float(settings, "inertia")'))
mutant("lifecycle.null", "consistency", ("    host->free(model);", "    model->trained = 0;\n    host->free(model);"))
mutant("lifecycle.no_memory", "consistency", ("    if (!made)\n        return DLC_ERR_NOMEM;\n", ""))
mutant("lifecycle.no_memory", "layer", ("    if (!made)\n        return DLC_ERR_NOMEM;\n", ""))

mutant("lifecycle.exit", "consistency", (END, "__attribute__((destructor)) static void end(void) {\n    __builtin_trap();\n}\n" + END))
mutant("lifecycle.exit", "solver", ("static dlc_status solver_load", "#include <stdlib.h>\n#include <unistd.h>\n"
                                    "static void end(void) {\n    pause();\n}\nstatic dlc_status solver_load"),
       (LOAD, LOAD + "    atexit(end);\n"))
mutant("lifecycle.exit", "data", ("static dlc_status bars_open", "#include <stdlib.h>\n#include <unistd.h>\n"
                                  "static void end(void) {\n    _exit(3);\n}\nstatic dlc_status bars_open"),
       ("    made->seed = args->seed;", "    atexit(end);\n    made->seed = args->seed;"))

# ---- Solvers -----------------------------------------------------------------------
NEEDS = "    (void)settings;\n    needs->rule = &update;\n"
STEP = "    *weight -= step->learning_rate * slot[VELOCITY];\n"
VALUES = "    (void)iteration;\n    values->own[MOMENTUM]"
mutant("solver.needs", "solver", (NEEDS, "    (void)settings;\n"))
mutant("solver.needs", "solver", ("needs->slot_saved = 1u", "needs->slot_saved = 2u"))
mutant("solver.needs", "solver", ('    needs->slot_name[VELOCITY] = "velocity";\n', ""))
mutant("solver.values", "solver", (VALUES, "    static int asked;\n    values->own[1] = (float)++asked;\n" + VALUES))
mutant("solver.values", "solver", (VALUES, "    values->own[1] = 1e38f * 1e38f;\n" + VALUES))
mutant("solver.norms", "solver", (NEEDS, NEEDS + "    needs->norms = DLC_NORMS_GRADIENT;\n"),
       (STEP, "    *weight -= step->learning_rate * step->weight_norm / step->norm * slot[VELOCITY];\n"))
mutant("solver.elements", "solver", (STEP, "    static int turn;\n    *weight += 1e-3f * (float)(++turn % 3);\n" + STEP))
mutant("solver.nan", "solver", (STEP, "    if (slot[VELOCITY] == slot[VELOCITY])\n    " + STEP))
mutant("solver.padding", "solver", (STEP, "    *weight += 1e-3f;\n" + STEP))
mutant("solver.converges", "solver", ("*weight -= step", "*weight += step"))
mutant("solver.repeats", "solver", (VALUES, "    static float asked;\n    values->learning_rate /= ++asked;\n" + VALUES))
mutant("solver.resume", "solver", ("    needs->slot_saved = 1u << VELOCITY;\n", ""))

# ---- Consistency models ------------------------------------------------------------
MODEL_NEEDS = "    (void)needs;\n"
WAITS = "        rc = exchange->wait(exchange->context, b);\n"
FINISH = "    const dlc_exchange *exchange = model->exchange;\n    dlc_rule_values values;\n"
SAVES = ("static dlc_status model_save(dlc_consistency *model, void *blob, size_t *bytes) {\n    (void)model;\n    if (blob)\n"
         "        *(char *)blob = 1;\n    *bytes = 1;\n    return DLC_OK;\n}\n"
         "static dlc_status model_load_state(dlc_consistency *model, const void *blob, size_t bytes) {\n    (void)model;\n"
         "    (void)blob;\n    (void)bytes;\n    return DLC_OK;\n}\nstatic const dlc_consistency_ops ops = {\n"
         "    .save = model_save,\n    .load = model_load_state,")
DEFERRED = ("static dlc_status model_update(dlc_consistency *model, int64_t iteration, int32_t bucket) {\n    (void)model;\n"
        "    (void)iteration;\n    (void)bucket;\n    return DLC_OK;\n}\nstatic const dlc_consistency_ops ops = {\n"
        "    .update = model_update,")
mutant("consistency.needs", "consistency", (MODEL_NEEDS, "    needs->deferred_update = 1;\n"))
mutant("consistency.needs", "consistency", (MODEL_NEEDS, "    needs->servers = -1;\n"))
mutant("consistency.converges", "consistency", ("1, model->gradients + begin", "-1, model->gradients + begin"))
mutant("consistency.untouched", "consistency", (FINISH, FINISH + "    for (size_t i = 0; i < model->trained; i++)\n"
                                                "        model->weights[i] += 1e-3f;\n"))
mutant("consistency.control_words", "consistency", (FINISH, FINISH + "    model->gradients[model->trained] *= 2;\n"))
mutant("consistency.control_words", "consistency", (FINISH, FINISH + "    model->gradients[model->trained + 1] = 0;\n"))
mutant("consistency.exchange", "consistency", (WAITS, ""))
mutant("consistency.ranks", "consistency", ("    return model->exchange->start(", "    if (model->exchange->ranks > 1)\n"
                                            "        return DLC_OK;\n    return model->exchange->start("))
mutant("consistency.ranks", "consistency", ("exchange->context, bucket);", "exchange->context,\n        model->exchange->rank ? "
                                            "model->exchange->buckets - 1 - bucket : bucket);"))
mutant("consistency.ranks", "consistency", (FINISH, FINISH + "    if (model->exchange->ranks > 1)\n"
                                            "        model->weights[0] += (float)model->exchange->rank;\n"))
mutant("consistency.order", "consistency", ("    return model->exchange->start(", "    model->weights[bucket * 100] += 1;\n"
                                            "    return model->exchange->start("))
COUNTS = ("    size_t trained;", "    int64_t steps;\n    size_t trained;")
SCALES = "    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {"
mutant("consistency.repeats", "consistency", (SCALES, "    static float calls;\n    values.learning_rate /= ++calls;\n" + SCALES))
mutant("consistency.resume", "consistency", COUNTS, (SCALES, "    values.learning_rate /= (float)++model->steps;\n" + SCALES))
mutant("consistency.damage", "consistency", ("static const dlc_consistency_ops ops = {", SAVES))
mutant("consistency.deferred_update", "consistency", (MODEL_NEEDS, "    needs->deferred_update = 1;\n"),
       ("static const dlc_consistency_ops ops = {", DEFERRED))
mutant("consistency.close", "consistency", ("    host->free(model);", "    if (model->trained > 0)\n        host->free(model);"))

# ---- Decoders ----------------------------------------------------------------------
mutant("feature.calls", "decoder", ("static const dlc_feature features[]", 'static const dlc_option options[] = {\n'
                                    '    DLC_BOOL("fast", "no", "decode faster"), DLC_OPTIONS_END};\n'
                                    "static const dlc_feature features[]"),
       ("     .ops = &ops},", "     .options = options,\n     .ops = &ops},"))
mutant("feature.descriptor", "decoder", ("    .endings = endings,\n", ""))
mutant("feature.descriptor", "decoder", ('{"pgm", "ppm", NULL}', '{"pgm", ".ppm", NULL}'))
mutant("feature.descriptor", "decoder", ('{"pgm", "ppm", NULL}', "{NULL}"))
mutant("decoder.example", "decoder", ("info->shrink_max = 1", "info->shrink_max = 3"))
mutant("decoder.matches", "decoder", ("    return count >= 3 && bytes[0] == 'P'", "    return count >= 3 || bytes[0] == 'P'"))
mutant("decoder.whole", "decoder", ("x < args->x + args->width; x++)", "x < args->x + args->width - 1; x++)"))
DECODED = "    return DLC_OK;\n}\n\nstatic dlc_status pnm_encode"
mutant("decoder.whole", "decoder", (DECODED, "    *pixels = 1;\n" + DECODED))
mutant("decoder.regions", "decoder", ("* read.width + x;", "* read.width + x - args->x;"))
mutant("decoder.grey", "decoder", ("        to[c] = from[have == 1 ? 0 : c];", "        to[c] = (unsigned char)"
                                   "(from[have == 1 ? 0 : c] + 2 * want);"))
mutant("decoder.cut", "decoder", ("if (r.end - picture->pixels < bytes_needed)", "if (bytes_needed < 0)"))
mutant("decoder.damaged", "decoder", ("if (r.end - picture->pixels < bytes_needed)",
                                      "if (r.end - picture->pixels < bytes_needed && picture->width < 17)"))
mutant("decoder.threads", "decoder", ("    pnm read;\n    dlc_status status = read_header(args->bytes",
                                      "    static _Atomic int busy;\n    struct timespec pause = {0, 1000};\n"
                                      "    int before = busy++;\n    nanosleep(&pause, NULL);\n    busy--;\n"
                                      '    if (before)\n        return host->fail(DLC_ERR_IO, "busy");\n'
                                      "    pnm read;\n    dlc_status status = read_header(args->bytes"),
       ("#include <dlcore/decoder.h>", "#include <dlcore/decoder.h>\n#include <time.h>"))

# ---- Encoders ----------------------------------------------------------------------
COPIES = "    memcpy(made + begin, args->pixels, pixels);\n"
ALLOCATES = "    unsigned char *made = host->alloc((size_t)begin + pixels);\n"
CHECKS = ALLOCATES + "    if (!made)\n        return DLC_ERR_NOMEM;\n"
LOSSY = ("     .caps = DLC_DECODER_LOSSLESS,\n", "")


def rounded(bits):
    return COPIES, COPIES + f"    for (size_t i = 0; i < pixels; i++)\n        made[(size_t)begin + i] &= {0xff & -1 << bits};\n"


mutant("encoder.pixels", "decoder", ("(int)args->width,\n                         (int)args->height);",
                                     "(int)args->height,\n                         (int)args->width);"))
mutant("encoder.pixels", "decoder", (COPIES, COPIES.replace("pixels);", "pixels - 1);")))
mutant("encoder.pixels", "decoder", (COPIES, COPIES + "    made[begin] ^= 1;\n"))
mutant("encoder.pixels", "decoder", (COPIES, COPIES + "    ((unsigned char *)args->pixels)[0] = 0;\n"))
mutant("encoder.pixels", "decoder", (COPIES, COPIES + "    (void)*(const volatile char *)(args->pixels + pixels);\n"))
mutant("encoder.pixels", "decoder", ("    *count = (size_t)begin + pixels;\n", "    *count = (size_t)begin + pixels + 4096;\n"))
mutant("encoder.pixels", "decoder", ("P%d %d %d 255\\n", "P%d%d %d 255\\n"))
mutant("encoder.pixels", "decoder", ("args->channels == 1 ? 5 : 6, (int)", "args->channels == 1 ? 5 : 4, (int)"))
mutant("encoder.pixels", "decoder", LOSSY, rounded(4))
mutant("encoder.pixels", "decoder", ("    .encode = pnm_encode,\n", ""))
mutant("encoder.repeats", "decoder", (COPIES, COPIES + "    static unsigned char calls;\n    made[begin] ^= ++calls;\n"))
mutant("encoder.repeats", "decoder", (COPIES, COPIES + "    *(volatile char *)host->alloc(1) = 1;\n"))
mutant("encoder.repeats", "decoder", (ALLOCATES, ALLOCATES.replace("host->alloc", "malloc")),
       ("#include <stdio.h>", "#include <stdio.h>\n#include <stdlib.h>"))
mutant("encoder.quality", "decoder", (CHECKS, "    if (args->quality < 1 || args->quality > 100)\n"
                                      '        return host->fail(DLC_ERR_CONFIG, "no such quality");\n' + CHECKS))
mutant("encoder.quality", "decoder", (COPIES, COPIES + "    made[begin] ^= args->quality < 50;\n"))
mutant("encoder.quality", "decoder", LOSSY, ("    *count = (size_t)begin + pixels;\n",
                                             "    *count = (size_t)begin + pixels - (args->quality > 50);\n"))
mutant("encoder.no_memory", "decoder", (CHECKS, ALLOCATES))
mutant("encoder.no_memory", "decoder", (CHECKS, CHECKS + "    void *more = host->alloc(8);\n    if (!more)\n"
                                        "        return DLC_ERR_NOMEM;\n    host->free(more);\n"))
mutant("encoder.no_memory", "decoder", (CHECKS, CHECKS.replace("DLC_ERR_NOMEM", "DLC_ERR_DATA")))
mutant("encoder.no_memory", "decoder", (CHECKS, ALLOCATES + "    if (!made) {\n        *count = 1;\n"
                                        "        return DLC_ERR_NOMEM;\n    }\n"))
mutant("encoder.threads", "decoder", (ALLOCATES, "    static _Atomic int busy;\n    struct timespec pause = {0, 1000};\n"
                                      "    int before = busy++;\n    nanosleep(&pause, NULL);\n    busy--;\n"
                                      '    if (before)\n        return host->fail(DLC_ERR_IO, "busy");\n' + ALLOCATES),
       ("#include <stdio.h>", "#include <stdio.h>\n#include <time.h>"))

# ---- Data --------------------------------------------------------------------------
READ = "    unsigned char *pixels = data;\n"
mutant("feature.calls", "data", ("    .read = bars_read,", "    .read = bars_read,\n    .read_sample = (void *)bars_read,"))
mutant("data.describe", "data", ("info->samples = source->samples", "info->samples = 0"))
mutant("data.labels", "data", ("    return label;", "    return label + source->classes - 1;"))
mutant("data.finite", "data", ("{3, {1, source->side, source->side}}", "{3, {1, source->side, source->side / 4}}"),
       ("info->dtype = DLC_U8", "info->dtype = DLC_F32"), ("pixels[i] = (unsigned char)(noise + (bright ? 128 : 0))",
                                                           "pixels[i] = (unsigned char)(noise | bright | 255)"))
FIELDS = ((".read = bars_read,", ".read_sample = bars_sample,"),
          ("    info->classes = source->classes;\n", "    info->classes = source->classes;\n    info->fields = fields;\n"
           "    info->field_count = 3;\n"),
          ("static dlc_status bars_describe(", "static const dlc_field fields[] = {\n"
           '    {sizeof(dlc_field), DLC_ROLE_IMAGE, 0, DLC_U8, "image", {3, {1, 4, 4}}},\n'
           '    {sizeof(dlc_field), DLC_ROLE_CLASS, 0, DLC_I32, "label", {1, {1}}, 4},\n'
           '    {sizeof(dlc_field), DLC_ROLE_VECTOR, 0, DLC_F32, "angles", {1, {4}}}};\n'
           "static dlc_status bars_sample(dlc_source *source, dlc_sample *sample) {\n    (void)source;\n"
           "    static const uint64_t bytes[] = {16, 4, 16};\n    for (int32_t f = 0; f < 3; f++)\n"
           "        if (sample->wanted >> f & 1) {\n            void *value = sample->memory(sample, f, bytes[f]);\n"
           "            if (!value)\n                return DLC_ERR_NOMEM;\n            memset(value, 0, bytes[f]);\n"
           "        }\n    return DLC_OK;\n}\nstatic dlc_status bars_describe("))
mutant("data.fields", "data", *FIELDS, ("{16, 4, 16}", "{16, 4, 12}"))
mutant("data.fields", "data", *FIELDS, ("memset(value, 0, bytes[f])", "memset(value, 0, bytes[f]);\n            if (f == 2)\n"
                                        "                *(float *)value = __builtin_inff()"))
mutant("data.describe", "data", *FIELDS, ('"angles"', '"label"'))
mutant("data.describe", "data", *FIELDS, ('"angles"', '"the angles"'))
mutant("data.describe", "data", *FIELDS, ("{sizeof(dlc_field), DLC_ROLE_VECTOR", "{8, DLC_ROLE_VECTOR"))
MEMORY = "void *value = sample->memory(sample, f, bytes[f]);"
mutant("data.stays", "data", *FIELDS, (MEMORY, "static char values[3][16];\n            void *value = values[f];\n"
                                       "            sample->value[f].data = value;\n            sample->value[f].bytes = bytes[f];"),
       ("memset(value, 0, bytes[f])", "memset(value, f == 0 ? (int)sample->index : 0, bytes[f])"))
mutant("data.bounds", "data", *FIELDS, ("memset(value, 0, bytes[f])", "memset(value, 0, bytes[f] + (f == 0))"))
mutant("data.bounds", "data", *FIELDS, (MEMORY, "void *value = sample->memory(sample, f, f == 2 ? 8 : bytes[f]);\n"
                                        "            sample->value[f].bytes = bytes[f];"),
       ("memset(value, 0, bytes[f])", "memset(value, 0, f == 2 ? 8 : bytes[f])"))
mutant("data.name", "data", ("static const dlc_data_ops ops = {", "static void bars_name(dlc_source *source, int64_t index, "
       "char *text, size_t room) {\n    (void)source;\n    (void)index;\n    memset(text, 'x', room);\n}\n"
       "static const dlc_data_ops ops = {\n    .name = bars_name,"))
mutant("data.order", "data", (READ, READ + "    static int64_t turn;\n    turn++;\n"),
       ("source->first + index[i], pixels)", "source->first + index[i] + turn, pixels)"))
mutant("data.bounds", "data", ("    return DLC_OK;\n}\n\nstatic const dlc_option", "    *pixels = 1;\n    return DLC_OK;\n}"
                             "\n\nstatic const dlc_option"))
mutant("data.several", "data", ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
                                "        labels[i] = make_sample(source, source->first + index[0], pixels);"))
mutant("data.whole", "data", ("for (int64_t i = 0; i < side * side; i++)", "for (int64_t i = 1; i < side * side; i++)"))
mutant("data.identical", "data", ("    made->seed = args->seed;", "    static uint64_t count;\n    made->seed = "
                              "args->seed + count++;"))
mutant("data.threads", "data", (READ, READ + "    static _Thread_local int mine;\n    static int threads;\n    if (!mine++ &&"
                                " threads++)\n        return host->fail(DLC_ERR_IO, \"another thread\");\n"))
mutant("data.concurrent", "data", ("#include <string.h>", "#include <string.h>\n#include <unistd.h>"),
       ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
        "    {\n        static volatile int64_t at;\n        at = index[i];\n        usleep(1);\n"
        "        labels[i] = make_sample(source, source->first + at, pixels);\n    }"))
mutant("data.concurrent", "data", ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
                                   "    {\n        static unsigned char shared[16 * 16];\n"
                                   "        labels[i] = (int32_t)(index[i] % source->classes);\n"
                                   "        memset(shared, (int)(index[i] & 255), sizeof shared);\n"
                                   "        usleep(1);\n        memcpy(pixels, shared, (size_t)(source->side * source->side));\n    }"),
       ("#include <string.h>", "#include <string.h>\n#include <unistd.h>"))
mutant("data.fork", "data", ("#include <string.h>", "#include <string.h>\n#include <unistd.h>"),
       (READ, READ + "    static int owner;\n    if (!owner)\n        owner = getpid();\n    if (owner != getpid())\n"
        "        memset(data, 0, 16);\n"),
       ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
        "        labels[i] = make_sample(source, source->first + index[i] + (owner != getpid()), pixels);"))

# ---- Layers ------------------------------------------------------------------------
FORWARD = "    for (int64_t i = 0; i < layer->count; i++)\n        y[i] ="
mutant("layer.runs", "layer", (FORWARD, "    for (int64_t i = 0; i <= layer->count; i++)\n        y[i] ="))
mutant("layer.test_phase", "layer", ("    made->name = args->name;", "    made->name = args->name;\n    if (args->phase == "
                               "DLC_PHASE_TEST)\n        made->name = NULL;"),
       (FORWARD, "    if (!layer->name)\n        y[0] = NAN;\n    for (int64_t i = layer->name ? 0 : 1; i < layer->count; "
        "i++)\n        y[i] ="))
mutant("layer.infer", "layer", ("    shapes->out[0].dtype = DLC_F32;", "    static int64_t asked;\n    shapes->multiply_adds = "
                                "++asked;\n    shapes->out[0].dtype = DLC_F32;"))
mutant("layer.repeats", "layer", (FORWARD, "    static float turn;\n    turn += 0.001f;\n    for (int64_t i = 0; i < "
                                  "layer->count; i++)\n        y[i] = turn +"))
mutant("layer.gradients", "layer", ("dx[i] = dy[i] * root * root", "dx[i] = dy[i] * root"))
mutant("layer.gradients", "layer", ("dx[i] = dy[i] * root * root", "dx[i] = i ? dy[i] * root * root : 1.5f * dy[i]"))
mutant("layer.accumulate", "layer", ("    memory->in_place = 1;\n", "    memory->accumulates_gradient = memory->shared_gradient;\n"))
mutant("layer.accumulate", "layer", ("    memory->in_place = 1;\n", "    memory->accumulates_gradient = 2;\n"))
# A right layer with a weight, y = w x / (1 + slope |x|), of which the mutants below break one rule each.
WEIGHT = (("    shapes->out[0].dtype = DLC_F32;", "    shapes->out[0].dtype = DLC_F32;\n    shapes->params = 1;\n"
           '    shapes->param[0].name = "weight";\n    shapes->param[0].shape = (dlc_shape){1, {1}};'),
          ("    memory->in_place = 1;\n    memory->reads_out = 1;", "    memory->param_count[0] = 1;\n    memory->reads_in = 1;"),
          ("y[i] = x[i] /", "y[i] = *(const float *)run->param[0] * x[i] /"),
          ("    const float *y = run->out[0], *dy", "    float *dw = run->param_diff[0], w = *(float *)run->param[0], sum = 0;\n"
           "    const float *x = run->in[0], *dy"),
          ("    if (!dx)\n", "    for (int64_t i = 0; i < layer->count; i++)\n        sum += dy[i] * x[i] / (1 + layer->slope * "
           "fabsf(x[i]));\n    dw[0] = sum;\n    if (!dx)\n"),
          ("        float root = 1 - layer->slope * fabsf(y[i]);", "        float root = 1 / (1 + layer->slope * fabsf(x[i]));"),
          ("dx[i] = dy[i] * root * root", "dx[i] = w * dy[i] * root * root"))
mutant("layer.unwanted", "layer", *WEIGHT, ("    if (!dx)\n        return DLC_OK; /* the gradient is not wanted */\n", ""))
INFERS = "    shapes->out[0].dtype = DLC_F32;\n"
mutant("layer.runs", "layer", *WEIGHT, ('.name = "weight"', '.name = "a/b"'))
mutant("layer.runs", "layer", *WEIGHT, ("shapes->params = 1;", "shapes->params = 1;\n    shapes->param[0].lr_mult = -1;"))
mutant("layer.runs", "layer", *WEIGHT, ("    .backward = layer_backward,\n", ""))
mutant("layer.runs", "layer", (INFERS, INFERS + "    shapes->no_gradient = 2;\n"))
mutant("layer.runs", "layer", (INFERS, INFERS + "    shapes->out[0].shape.dims[1] = INT64_MAX / 16;\n"))
mutant("layer.runs", "layer", ("    memory->reads_out = 1;", "    memory->reads_out = 3;"))
START = "    const float *x = run->in[0];\n"
STATE = ("    int64_t count;\n};", "    int64_t count;\n    float kept[4096];\n    const float *x;\n    const float *w;\n};")
mutant("layer.read_only", "layer", ("    memory->in_place = 1;\n", ""),
       (FORWARD, "    ((float *)(uintptr_t)x)[0] = 0.25f + 2 * x[0];\n" + FORWARD))
mutant("layer.read_only", "layer", (FORWARD, FORWARD.replace("y[i] =", "y[i] = ((float *)(uintptr_t)x)[i] =")))
mutant("layer.read_only", "layer", *WEIGHT, (START, START + "    *(float *)run->param[0] *= 0.99f;\n"))
mutant("layer.read_only", "layer", ("        dx[i] = dy[i] * root * root;", "        dx[i] = dy[i] * root * root;\n"
                                    "        ((float *)run->out[0])[i] = 0;"))
mutant("layer.overwrites", "layer", ("dx[i] = dy[i] * root * root", "dx[i] += dy[i] * root * root"),
       ("    memory->in_place = 1;\n", ""))
mutant("layer.overwrites", "layer", *WEIGHT, ("    dw[0] = sum;", "    dw[0] += sum;"))
mutant("layer.scratch", "layer", ("    memory->reads_out = 1;", "    memory->scratch_bytes = 4 * (size_t)dlc_shape_count("
                                  "&memory->in[0].shape);"),
       ("        y[i] = x[i] /", "        y[i] = ((float *)run->scratch)[i] = x[i] /"),
       ("const float *y = run->out[0],", "const float *y = run->scratch,"))
mutant("layer.undeclared", "layer", ("    memory->reads_out = 1;\n", ""))
mutant("layer.undeclared", "layer", *WEIGHT, (";\n    memory->reads_in = 1;", ";"))
mutant("layer.moved", "layer", STATE, (START, START + "    if (!layer->x)\n        layer->x = x;\n    x = layer->x;\n"))
mutant("layer.moved", "layer", *WEIGHT, STATE,
       (START, START + "    if (!layer->w)\n        layer->w = run->param[0];\n"), ("*(const float *)run->param[0] * x", "*layer->w * x"))
mutant("layer.in_place", "layer", ("y[i] = x[i] / (1 + layer->slope * fabsf(x[i]));", "y[i] = i ? x[i] - x[i - 1] : x[i];"),
       ("        float root = 1 - layer->slope * fabsf(y[i]);\n", "        (void)y;\n        float next = i + 1 < layer->count ? "
        "dy[i + 1] : 0;\n"), ("dx[i] = dy[i] * root * root", "dx[i] = dy[i] - next"))
mutant("layer.in_place", "layer", ("dx[i] = dy[i] * root * root;", "dx[i] = 0;\n        dx[i] = dy[i] * root * root;"))
mutant("layer.passes", "layer", STATE, ("        y[i] = x[i] /", "        y[i] = layer->kept[i] = x[i] /"),
       ("const float *y = run->out[0],", "const float *y = layer->kept,"), ("    memory->reads_out = 1;\n", ""))
mutant("layer.recompute", "layer", ("        y[i] = x[i] /", "        y[i] = (1 + (float)run->recompute) * x[i] /"))
DESCRIBE = ("static void layer_describe(dlc_layer *layer, char *text, size_t bytes) {\n    (void)layer;\n    (void)bytes;\n"
            "    for (int i = 0; i < 7; i++)\n        text[i] = 'x';\n    text[7] = 0;\n}\n"
            "static const dlc_layer_ops ops = {\n    .describe = layer_describe,")
mutant("layer.describe", "layer", ("static const dlc_layer_ops ops = {", DESCRIBE))
PARAMS = ("static dlc_status import(dlc_layer *layer, int32_t index, const float *plain, float *own) {\n    (void)layer;\n"
          "    (void)index;\n    own[0] = plain[0];\n    return DLC_OK;\n}\n"
          "static dlc_status export(dlc_layer *layer, int32_t index, const float *own, float *plain) {\n    (void)layer;\n"
          "    (void)index;\n    plain[0] = own[0];\n    plain[1] = own[0];\n    return DLC_OK;\n}\n"
          "static const dlc_layer_ops ops = {\n    .param_import = import,\n    .param_export = export,")
mutant("layer.params", "layer", ("static const dlc_layer_ops ops = {", PARAMS),
       ("    shapes->out[0].dtype = DLC_F32;", "    shapes->out[0].dtype = DLC_F32;\n    shapes->params = 1;\n"
        '    shapes->param[0].name = "weight";\n    shapes->param[0].shape = (dlc_shape){1, {4}};'),
       ("    memory->reads_out = 1;", "    memory->reads_out = 1;\n    memory->param_count[0] = 4;"))
layer_mutants.add(mutant, WEIGHT)
quiet_mutants.add(mutant, WEIGHT, layer_mutants.CHANNELS)

# ---- Devices -----------------------------------------------------------------------
mutant("device.describe", "device", ("info->compute_units = 1", "info->compute_units = 0"))
mutant("device.fork", "device", ("    *count = 1;\n", "    static int asked;\n    if (!asked)\n        asked = getpid();\n"
                                 "    *count = asked == getpid() ? 1 : 0;\n"))
mutant("device.fork", "device", ("    made->threads = args->threads;", "    static int first;\n    if (!first)\n        first"
                                 " = loader;\n    if (first != getpid())\n        return host->fail(DLC_ERR_DEVICE, "
                                 '"not after a fork");\n    made->threads = args->threads;'),
       ("const dlc_host *host;", "const dlc_host *host;\nstatic int loader;"),
       (LOAD, LOAD + "    loader = getpid();\n"))
mutant("device.memory", "device", ("    memory->base = base;", "    memory->base = (char *)base + 16;"),
       ("host->alloc(bytes)", "host->alloc(bytes + 64)"))
mutant("device.memory", "device", ("        memset(dst, byte, bytes);", "        memset(dst, byte, bytes - 1);"))
mutant("device.too_much", "device", ("    void *base = host->alloc(bytes);",
                                     "    void *base = host->alloc(bytes > 1 << 30 ? 64 : bytes);"))
mutant("device.kernels", "device", ("        y[i] += x[i];", "        y[i] += i ? x[i] : 0;"))
mutant("device.kernels", "device", ("        y[i] += alpha * x[i];", "        y[i] += alpha * y[i];"))
mutant("device.sum", "device", ("        dst[i] = pairwise(sources, 0, count, i);",
                                "        for (int32_t j = 0; j < count; j++)\n            dst[i] = (j ? dst[i] : 0) + "
                                "sources[j][i];"))
mutant("device.update", "device", ("run(&step, n, gradient", "run(&step, n - n % 2, gradient"))
mutant("device.update_values", "device", ("    if (dlc_rule_step_make(update, &step))",
                                          "    if (dlc_rule_step_make(update, &step) || 1)"))
mutant("device.update_values", "device", ("    if (dlc_rule_step_make(update, &step))",
                                          "    dlc_update at = *update;\n    at.values_at = NULL;\n"
                                          "    if (dlc_rule_step_make(&at, &step))"))
UPDATE_TO = ("static dlc_status to(dlc_device *d, dlc_queue *q, size_t n, const dlc_update *u,\n"
             "                     const float *const *g, int32_t count, float *const *s, float *const *w,\n"
             "                     int32_t copies) {\n"
             "    (void)count;\n    dlc_status status = device_update(d, q, n, u, g[0], s, w[0]);\n"
             "    for (int32_t i = 1; i < copies; i++)\n        memcpy(w[i], w[0], n * sizeof(float));\n"
             "    return status;\n}\nstatic const dlc_device_ops ops = {\n    .update_to = to,")
mutant("device.update_to", "device", ("static const dlc_device_ops ops = {", UPDATE_TO))
mutant("device.norms", "device", ("*sum = before + (double)x[i] * (double)x[i];", "*sum = before + (double)x[i];"))
mutant("device.update_norms", "device", ("    if (dlc_rule_step_make(update, &step))",
                                         "    dlc_update blind = *update;\n    blind.weight_square = NULL;\n"
                                         "    if (dlc_rule_step_make(&blind, &step))"))
mutant("device.convert", "device", ("    if (from != DLC_U8 || to != DLC_F32)", "    if (to == DLC_BF16)\n        return "
                                    "DLC_OK;\n    if (from == DLC_BF16)\n        return device_fill(device, queue, dst, 0, "
                                    "4 * n);\n    if (from != DLC_U8 || to != DLC_F32)"))
IPC_CALLS = ("static dlc_status give(dlc_device *d, const dlc_memory *m, dlc_ipc_handle *handle) {\n    (void)d;\n"
          "    handle->bytes = m->bytes;\n    return DLC_OK;\n}\n"
          "static dlc_status get(dlc_device *d, const dlc_ipc_handle *handle, dlc_memory *m) {\n"
          "    return device_alloc(d, handle->bytes, 0, m);\n}\nstatic const dlc_device_ops ops = {\n"
          "    .ipc_export = give,\n    .ipc_import = get,")
WITH_IPC = ("static const dlc_device_ops ops = {", IPC_CALLS)
mutant("device.ipc", "device", WITH_IPC)
mutant("device.ipc_flag", "device", WITH_IPC)
device_mutants.add(mutant)

# ---- Transports --------------------------------------------------------------------
PREDICTS = "    *prediction = dlc_predict(args, 10e-6, 0.1, 0.1);"
mutant("transport.predict", "transport", (PREDICTS, "    static int32_t asked;\n    *prediction = dlc_predict(args, 10e-6 * ++asked, 0.1, 0.1);"))
mutant("transport.predict", "transport", (PREDICTS, "    *prediction = dlc_predict(args, 10e-6, 0.1, -0.1);"))
mutant("transport.reason", "transport", ('    (void)snprintf(reason, room, "Unix sockets, %d ranks on one node", args->ranks);',
                                         '    (void)room;\n    (void)sprintf(reason, "Unix sockets, %d ranks", '
                                         "args->ranks);"))
mutant("transport.messages", "transport", ("    r->moved += n;\n", "    r->moved += n;\n    if (r->bytes == 1000003 && "
                                           "r->moved == n)\n        r->buffer[n] ^= 1;\n"))
mutant("transport.messages", "transport", ("        r->done = r->moved == r->bytes;\n        if (r->done)",
                                           "        r->done = r->moved == r->bytes && r->bytes > 0;\n        if (r->done)"))
mutant("transport.tags", "transport", ("while (arrived && arrived->tag != tag)", "while (arrived && arrived->bytes != bytes)"))
mutant("transport.flood", "transport", ("    r->is_send = 1;", "    static int count;\n    if (++count > 250)\n        return"
                                        ' host->fail(DLC_ERR_IO, "too many");\n    r->is_send = 1;'))
mutant("transport.large", "transport", ("&packet, MSG_DONTWAIT | MSG_NOSIGNAL)", "&packet, MSG_NOSIGNAL)"),
       ("    append(&e->peers[rank].sends, r);", "    append(&e->peers[rank].sends, r);\n    if (push(&e->peers[rank]) != "
        "DLC_OK)\n        return DLC_ERR_PEER;"))
mutant("transport.test", "transport", ("    dlc_status rc = r->done ? DLC_OK : progress(e);", "    dlc_status rc = r->done || "
                                       "*done == 0 ? DLC_OK : progress(e);"),
       ("    for (int done = 0;;) {", "    for (int done = 1;; done = 1) {"))
mutant("transport.idle", "transport", ("    (void)poll(e->polls, (nfds_t)e->args->ranks, SLEEP_MS);", "    (void)e;"))
BLIND = (("            rc = e->args->check(e->args->job);", "            rc = DLC_OK;"),
         ("    if (rc == DLC_OK && !r->done && p->fd < 0)\n        return host->fail(DLC_ERR_PEER, \"rank %d has closed its "
          "connection\", r->peer);\n", ""))
mutant("transport.death", "transport", *BLIND)
mutant("transport.tags", "transport", ("    r->tag = tag;\n", "    r->tag = (uint16_t)tag;\n"),
       ("while (arrived && arrived->tag != tag)", "while (arrived && arrived->tag != (uint16_t)tag)"))
mutant("transport.tags", "transport", ("    r->tag = tag;\n", "    r->tag = (uint32_t)tag;\n"),
       ("while (arrived && arrived->tag != tag)", "while (arrived && arrived->tag != (uint32_t)tag)"))
mutant("transport.check", "transport", ("            rc = e->args->check(e->args->job);", "            rc = DLC_OK;"))
mutant("transport.check", "transport", ("SLEEP_MS = 50", "SLEEP_MS = 900"))
WAIT_ANY = ("static dlc_status wait_any(dlc_endpoint *e, dlc_request *const *requests, int32_t count, double seconds,\n"
            "        int32_t *which) {\n    (void)count;\n    (void)seconds;\n    *which = 1;\n"
            "    return transport_wait(e, requests[1]);\n}\nstatic void wakeup(dlc_endpoint *e) {\n    (void)e;\n}\n"
            "static const dlc_transport_ops ops = {\n    .wait_any = wait_any,\n    .wakeup = wakeup,")
mutant("transport.check", "transport", ("static const dlc_transport_ops ops = {", WAIT_ANY))
mutant("transport.second", "transport", ("    e->args = args;\n", "    static int opened;\n    if (opened++)\n        return "
                                         'host->fail(DLC_ERR_UNSUPPORTED, "one is open");\n    e->args = args;\n'))
mutant("transport.second", "transport", ("int32_t rank, dlc_tag tag, size_t bytes, size_t own) {", "int32_t rank, dlc_tag tag, "
                                         "size_t bytes, size_t own) {\n    static int count;\n    tag += ++count == 2;"))
mutant("transport.leaks", "transport", ("    if (listener >= 0)\n        close(listener);\n", ""))
mutant("transport.leaks", "transport", ("        take_out(r->is_send ? &p->sends : &p->recvs, r);\n        host->free(r);",
                                        "        take_out(r->is_send ? &p->sends : &p->recvs, r);"))
mutant("transport.leaks", "transport", ("    dlc_request *r = host->alloc(sizeof *r + own);", "    dlc_request *r = calloc(1, sizeof"
                                        " *r + own);"), ("        host->free(list);", "        free(list);"),
       ("        take_out(r->is_send ? &p->sends : &p->recvs, r);\n        host->free(r);",
        "        take_out(r->is_send ? &p->sends : &p->recvs, r);"), ("    host->free(arrived);", "    free(arrived);"),
       ("#include <unistd.h>", "#include <unistd.h>\n#include <stdlib.h>"))
mutant("transport.sizes", "transport", ("host->fail(DLC_ERR_CONFIG,\n                            \"rank", "host->fail(DLC_ERR_INTERNAL,\n"
                                        '                            "rank'))
mutant("transport.sizes", "transport", ("host->fail(DLC_ERR_CONFIG,\n                          \"rank", "host->fail(DLC_ERR_INTERNAL,\n"
                                        '                          "rank'))
mutant("transport.close_alone", "transport", ("        if (e->peers[r].fd >= 0)\n            close(e->peers[r].fd);",
                                              "        while (e->peers[r].fd >= 0 && pull(e, r) == DLC_OK)\n            ;"))
mutant("transport.close", "transport", ("    if (!e)\n        return;\n", "    if (!e)\n        return;\n    for (int32_t r ="
                                        " 0; r < e->args->ranks; r++)\n        while (e->peers[r].recvs)\n            "
                                        "progress(e);\n"))
mutant("transport.leftovers", "transport", ("#include <unistd.h>", "#include <unistd.h>\n#include <stdlib.h>"),
       ("    e->args = args;\n", '    e->args = args;\n    char left[] = "/dev/shm/dlcore-mutant-XXXXXX";\n'
        "    (void)!mkstemp(left);\n"))
ALL_REDUCE = ("static const dlc_transport_ops ops = {", f'#include "{HERE}/all_reduce.h"\nstatic const dlc_transport_ops ops = {{\n'
                                                  "    .all_reduce = template_all_reduce,")
PAIRWISE = ("     .ops = &ops},", "     .caps = DLC_TRANSPORT_PAIRWISE,\n     .ops = &ops},")
mutant("transport.collectives", "transport", ALL_REDUCE, PAIRWISE,
       ("    r->done = r->moved == r->bytes;\n    return DLC_OK;",
        "    if (r->tag == 77 && r->bytes > 4 && !r->is_send)\n        return DLC_OK;\n"
        "    if (r->tag == 77 && n > 8)\n        r->buffer[7] ^= 1;\n    r->done = r->moved == r->bytes;\n    return DLC_OK;"))
mutant("transport.skew", "transport", ALL_REDUCE, PAIRWISE, (".all_reduce = template_all_reduce", ".all_reduce = in_time"),
       ("static const dlc_transport_ops ops = {", "static dlc_status in_time(dlc_endpoint *e, float *buffer, size_t count);\n"
        "static const dlc_transport_ops ops = {"),
       ("static const dlc_feature features[]", "static dlc_status in_time(dlc_endpoint *e, float *buffer, size_t count) {\n"
        "    uint64_t start = host->now_ns();\n    dlc_status rc = template_all_reduce(e, buffer, count);\n"
        "    if (host->now_ns() - start > 300000)\n        buffer[0] = 0;\n    return rc;\n}\n"
        "static const dlc_feature features[]"))
mutant("transport.mixed", "transport", ALL_REDUCE, PAIRWISE, ("    r->tag = tag;\n", "    static int sums;\n    sums += tag == 77;\n"
                                                        "    r->tag = sums > 4 && tag != 77 ? tag + 1 + (dlc_tag)"
                                                        "rank : tag;\n"))
mutant("transport.register_buffer", "transport", ALL_REDUCE, PAIRWISE,
       ("static const dlc_transport_ops ops = {", "static const char *registered;\nstatic dlc_status register_buffer(dlc_endpoint *e, const "
        "dlc_memory *memory) {\n    (void)e;\n    registered = memory->base;\n    return DLC_OK;\n}\n"
        "static dlc_status in_registered(dlc_endpoint *e, float *buffer, size_t count);\n"
        "static const dlc_transport_ops ops = {\n    .register_buffer = register_buffer,"),
       (".all_reduce = template_all_reduce", ".all_reduce = in_registered"),
       ("static const dlc_feature features[]", "static dlc_status in_registered(dlc_endpoint *e, float *buffer, size_t count) {\n"
        "    if (registered && (const char *)buffer > registered)\n        buffer[count - 1] = 0;\n"
        "    return template_all_reduce(e, buffer, count);\n}\nstatic const dlc_feature features[]"))
mutant("transport.death_in_collective", "transport", ALL_REDUCE, PAIRWISE, (".all_reduce = template_all_reduce", ".all_reduce = calm"),
       ("static const dlc_transport_ops ops = {", "static dlc_status calm(dlc_endpoint *e, float *buffer, size_t count);\n"
        "static const dlc_transport_ops ops = {"),
       ("static const dlc_feature features[]", "static dlc_status calm(dlc_endpoint *e, float *buffer, size_t count) {\n"
        "    (void)template_all_reduce(e, buffer, count);\n    return DLC_OK;\n}\nstatic const dlc_feature features[]"))


def compile_plugin(folder, sources, kind, flags, out):
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O0", "-w", "-shared", "-fPIC", "-fvisibility=hidden",
               "-DPLUGIN_VERSION=\"1.0\"", f"-I{SOURCE}/include", f"-I{folder}",
               *(str(path) for path in sources if path.suffix == ".c"), "-o", str(out),
               "-lm", "-lpthread", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a mutant of the {kind} template does not compile: {done.stderr[-800:]}")
    out.chmod(0o755)


def check(path, only=None):
    # A layer has 30 s, others have minutes; other tests need the cores, too.
    scale = "0.15" if only and not only.startswith("layer.") else "3"
    environment = {**os.environ, "DLCORE_CONFORMANCE_TIMEOUT_SCALE": scale}
    done = subprocess.run([DLCORE, "plugin", "check", str(path), *(["--only", only] if only else [])],
                          capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def make_templates(folder):
    templates = {}
    for kind in KINDS:
        made = folder / kind
        subprocess.run([DLCORE, "plugin", "new", kind, "sample", "--dir", str(made)], check=True, capture_output=True)
        templates[kind] = sorted(made.glob("*.[ch]"))
    templates["accelerator"] = sorted((SOURCE / "examples/accelerator").glob("*.[ch]"))
    return templates


def try_whole(folder, kind, sources):
    """The template must pass, and every check that runs on it must have a mutant."""
    out = folder / f"{kind}.so"
    compile_plugin(folder / kind, sources, kind, (), out)
    done = subprocess.run([DLCORE, "plugin", "check", str(out), "--json"], capture_output=True, text=True)
    warnings = subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
                               "-Wshadow", "-Wconversion", "-DPLUGIN_VERSION=\"1.0\"", f"-I{SOURCE}/include",
                               *(str(path) for path in sources if path.suffix == ".c")],
                              capture_output=True, text=True).stderr
    checks = json.loads(done.stdout)["checks"]
    failures = [f"the {kind} template fails {what['check']}: {what['reason']}" for what in checks
                if what["verdict"] == "failed"]
    untested = {what["check"] for what in checks} - {what[0] for what in MUTANTS} - NO_MUTANT
    failures += [f"the {kind} template has warnings:\n{warnings}"] if warnings else []
    return failures + [f"there is no mutant for {name}" for name in sorted(untested)]


def try_sound(folder, kind, sources, changes):
    """A template with changes that break no rule must pass every check too."""
    own = pathlib.Path(tempfile.mkdtemp(prefix=f"sound-{kind}-", dir=folder))
    own.chmod(0o755)
    for file, text in mutate(sources, changes).items():
        (own / file).write_text(text)
    out = own / "sound.so"
    compile_plugin(folder / kind, sorted(own.glob("*.c")), kind, (), out)
    code, text = check(out)
    return [] if code == 0 else [f"a {kind} without a fault fails:\n{text}"]


def try_endless(folder, sources):
    """Tables that dlcore refuses are not walked: they may have no end."""
    failures = []
    for number, change in enumerate((("    DLC_OPTIONS_END,", '    {.name = "odd"},\n    DLC_OPTIONS_END,'),
                                     ("    {.size = sizeof(dlc_feature),", "    {.size = 0,"))):
        own = folder / f"endless-{number}"
        own.mkdir()
        for file, text in mutate(sources, [change]).items():
            (own / file).write_text(text)
        out = own / "endless.so"
        compile_plugin(folder / "layer", sorted(own.glob("*.c")), "layer", (), out)
        try:
            done = subprocess.run([DLCORE, "plugin", "check", str(out), "--set=slope=1"], capture_output=True, text=True,
                                  timeout=100)
        except subprocess.TimeoutExpired:
            failures.append(f"the check of the layer without {change[0].strip()} does not end")
            continue
        if done.returncode != 3 or "it hangs" in done.stdout:
            failures.append(f"plugin check ends with {done.returncode}:\n{done.stdout}")
    return failures


def build_layer(folder, name, sources, changes):
    own = folder / name
    own.mkdir()
    for file, text in mutate(sources, changes).items():
        (own / file).write_text(text)
    compile_plugin(folder / "layer", sorted(own.glob("*.c")), "layer", (), own / "layer.so")
    return own / "layer.so"


def verdicts(out, *options, scale="1"):
    """The exit code, and the verdict and reason of each check of layers."""
    done = subprocess.run([DLCORE, "plugin", "check", str(out), "--json", *options], capture_output=True, text=True,
                          env={**os.environ, "DLCORE_CONFORMANCE_TIMEOUT_SCALE": scale})
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, [(what["verdict"], what["reason"] or "") for what in checks
                             if what["check"].startswith("layer.")]


def try_picky(folder, sources):
    """A layer that refuses all that is tried has passed nothing; --inputs gives it what it takes."""
    out = build_layer(folder, "picky", sources, layer_mutants.PICKY)
    code, found = verdicts(out)
    failures = []
    if code != 2 or any(verdict == "passed" for verdict, _ in found) or not any("--inputs" in why for _, why in found):
        failures.append(f"a layer that accepts no inputs: exit code {code}, {found}")
    code, found = verdicts(out, "--inputs=7x3x2")
    if code != 0 or sum(verdict == "passed" for verdict, _ in found) < 8:
        failures.append(f"a layer that accepts what --inputs gives: exit code {code}, {found}")
    for wrong in ("7x", "7x0", "1,2,3,4", "7:float"):
        code, found = verdicts(out, f"--inputs={wrong}")
        if code != 2 or not any("must be 1 to 3 shapes" in why for _, why in found):
            failures.append(f"--inputs={wrong}: exit code {code}, {found}")
    return failures


def try_hanging(folder, sources):
    """What hangs is waited for once."""
    code, found = verdicts(build_layer(folder, "hanging", sources, layer_mutants.HANGS), scale="0.2")
    hung = [why for _, why in found if "it hangs" in why]
    later = [verdict for verdict, why in found if why == "it hung in layer.runs"]
    good = code == 3 and len(hung) == 1 and len(later) == len(found) - 1 and set(later) == {"not run"}
    return [] if good else [f"a layer that hangs: exit code {code}, {found}"]


def strays():
    """The processes that plugins have started and named."""
    names = []
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:
            continue
    return names.count(quiet_mutants.STRAY)


def try_bombs(folder, templates):
    """Plugins that start processes without end fail, and all that they have started is ended."""
    failures = []
    for number, (kind, words, changes) in enumerate(quiet_mutants.BOMBS):
        out = build_layer(folder, f"bomb-{number}", templates[kind], changes)
        code, text = check(out, "layer.runs")
        if code != 3 or words not in text or strays():
            failures.append(f"bomb {number}: exit code {code}, {strays()} processes are left:\n{text}")
    return failures


def try_settings(folder):
    """What was not run is told apart from what has passed, and is no success."""
    out = folder / "data.so"
    failures = []

    def expect(code, words, *options):
        done = subprocess.run([DLCORE, "plugin", "check", str(out), "--only=file", *options], capture_output=True,
                              text=True)
        if done.returncode != code or not re.search(words, done.stdout + done.stderr):
            failures.append(f"plugin check {options} ends with {done.returncode}:\n{done.stdout}{done.stderr}")

    expect(0, r" passed, 0 failed, 0 skipped, 0 not run", "--set=side=8")
    expect(2, r"not run +file\.settings.*\n +--set sides=8: no feature has this setting; there are: .*side",
           "--set=sides=8")
    expect(2, r"not run +data\.order.*\n +--set: .*side", "--set=side=none", "--only=data.order")
    out.chmod(0o666)
    expect(3, r"FAILED +file\.accepted.*\n +dlcore refuses it: .*writable(.|\n)*features were not run")
    out.chmod(0o755)
    return failures


def mutate(sources, changes):
    texts = {path.name: path.read_text() for path in sources}
    for old, new in changes:
        found = [name for name, text in texts.items() if old in text]
        if not found:
            raise RuntimeError(f"no template contains {old!r}")
        texts[found[0]] = texts[found[0]].replace(old, new, 1)
    return texts


def try_mutant(folder, number, sources, what):
    name, kind, changes, flags = what
    try:
        own = folder / f"mutant-{number}"
        own.mkdir()
        for file, text in mutate(sources, changes).items():
            (own / file).write_text(text)
        out = own / "mutant.so"
        compile_plugin(folder / kind, sorted(own.glob("*.c")), kind, flags, out)
        code, text = check(out, name)
    except RuntimeError as error:
        return [f"mutant {number} ({name}): {error}"]
    caught = [line for line in text.splitlines() if line.startswith("FAILED") and line.split()[1] == name]
    return [] if code == 3 and caught else [f"mutant {number} of a {kind} passes {name} (exit code {code}):\n{text}"]


def choose(words):
    """The numbers and mutants that the command line asks for."""
    numbered = list(enumerate(MUTANTS))
    if words == ["--all"]:
        return numbered
    if words:
        return [(number, what) for number, what in numbered if any(what[0].startswith(word) for word in words)]
    first = {}
    for number, what in numbered:
        first.setdefault(what[:2], (number, what))
    return list(first.values())


def main():
    chosen = choose(sys.argv[1:])
    wanted = sys.argv[1:] not in ([], ["--all"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        templates = make_templates(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            jobs = [] if wanted else [pool.submit(try_whole, folder, kind, templates[kind]) for kind in KINDS]
            jobs += [] if wanted else [pool.submit(try_sound, folder, kind, templates[kind], changes)
                                       for kind, changes in (*(("layer", sound) for sound in (WEIGHT, *layer_mutants.SOUND)),
                                                             ("data", FIELDS),
                                                             ("decoder", (LOSSY, rounded(2))),
                                                             *quiet_mutants.SOUND)]
            jobs += [pool.submit(try_mutant, folder, number, templates[what[1]], what) for number, what in chosen]
            failures = [line for job in jobs for line in job.result()]
            failures += [] if wanted else (try_settings(folder) + try_endless(folder, templates["layer"]) +
                                           try_picky(folder, templates["layer"]) +
                                           try_hanging(folder, templates["layer"]) +
                                           try_bombs(folder, templates))
        for left in pathlib.Path("/dev/shm").glob("dlcore-mutant-*"):
            left.unlink()
    print(*failures, sep="\n")
    print(f"{len(chosen)} mutants of {len({what[0] for _, what in chosen})} checks, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
