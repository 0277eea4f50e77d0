"""Plugins for `dlcore plugin check` (see mutants.py) that work, but harm quietly: the process
around them, memory beside theirs, or results that are seldom looked at.

Each deed is a line of C without headers, put in front of a line that runs in a call of each
kind."""
FORWARD = "    for (int64_t i = 0; i < layer->count; i++)\n        y[i] ="
BACKWARD = "    for (int64_t i = 0; i < layer->count; i++) {\n        float root"
VALUES = "    (void)iteration;\n    values->own[MOMENTUM]"
FINISH = "    const dlc_exchange *exchange = model->exchange;\n    dlc_rule_values values;\n"
READ = "    unsigned char *pixels = data;\n"
DECODED = "    return DLC_OK;\n}\n\nstatic dlc_status pnm_encode"
ADD = "    for (size_t i = 0; i < n; i++)\n        y[i] += x[i];"
SEND = "    r->is_send = 1;\n"

# Where a deed is done, and the check of its state, of what it leaves, and of its results.
PLACES = {
    "layer": (FORWARD, "layer.runs", "layer.leaks"),
    "solver": (VALUES, "solver.converges", "solver.leaks"),
    "consistency": (FINISH, "consistency.converges", "consistency.leaks"),
    "data": (READ, "data.order", "data.leaks"),
    "decoder": (DECODED, "decoder.whole", "decoder.leaks"),
    "device": (ADD, "device.kernels", "device.leaks"),
    "transport": (SEND, "transport.messages", "transport.leaks"),
}

THREAD = ("extern int pthread_create(unsigned long *, const void *, void *(*)(void *), void *); "
          "extern int pthread_join(unsigned long, void **); extern int pause(void); extern int getpagesize(void); "
          "unsigned long thread[64];")
STATES = {
    "rounding": "extern int fesetround(int); fesetround(0xc00);",
    "ftz": "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);",
    "mask": "unsigned long set[16] = {1ul << 9}; extern int sigprocmask(int, const void *, void *); "
            "sigprocmask(0, (void *)set, 0);",
    "handler": "extern void (*signal(int, void (*)(int)))(int); signal(10, (void (*)(int))1);",
    "umask": "extern unsigned umask(unsigned); umask(0);",
    "environment": 'extern int setenv(const char *, const char *, int); setenv("OMP_NUM_THREADS", "64", 1);',
    "locale": 'extern char *setlocale(int, const char *); setlocale(6, "C.UTF-8");',
    "alarm": "extern unsigned alarm(unsigned); alarm(1000);",
    "folder": 'extern int chdir(const char *); chdir("/tmp");',
    "stdout": "extern int close(int); close(1);",
    "fork": "extern int fork(void); fork();",
    "overrun": "char *own = host->alloc(10); own[10] = 1; host->free(own);",
    "underrun": "static char *own; if (!own) own = host->alloc(10); own[-1] = 1;",
}
LEAKS = {
    "host": "*(volatile char *)host->alloc(1) = 1;",
    "heap": "*(volatile char *)__builtin_malloc(100) = 1;",
    "map": "extern void *mmap(void *, unsigned long, int, int, int, long); "
           "*(volatile char *)mmap(0, 65536, 3, 0x22, -1, 0) = 1;",
    "file": "extern int dup(int); dup(2);",
    "thread": THREAD + " pthread_create(thread, 0, (void *(*)(void *))pause, 0);",
    "threads": THREAD + " for (int t = 0; t < 64; t++) pthread_create(&thread[t], 0, (void *(*)(void *))getpagesize, 0);"
               " for (int t = 0; t < 64; t++) pthread_join(thread[t], 0);",
    "process": "extern int fork(void); extern int pause(void); if (!fork()) for (;;) pause();",
}
# All deeds for layers, the place in which most run; for the others one of each sort.
STATES_OF = {"layer": STATES, "solver": ("rounding", "environment"), "consistency": ("ftz", "mask", "underrun"),
             "data": ("locale", "folder", "fork", "overrun"), "decoder": ("umask", "rounding", "handler"),
             "device": ("ftz", "alarm"), "transport": ("mask", "environment")}
LEAKS_OF = {"layer": LEAKS, "solver": ("heap", "file"), "consistency": ("map", "thread"), "data": ("file", "heap"),
            "decoder": ("map", "threads"), "device": ("process", "host"), "transport": ("file",)}

PID = "extern int getpid(void);"
CLOCK = "extern long time(long *);"
FIELDS = ("    int64_t count;\n};", "    int64_t count, channels, area;\n    dlc_phase phase;\n};")
CREATES = ("    made->name = args->name;\n", "    made->name = args->name;\n    made->phase = args->phase;\n")
INFERS = ("    shapes->out[0].dtype = DLC_F32;\n",
          "    shapes->out[0].dtype = DLC_F32;\n    const dlc_shape *in = &shapes->in[0].shape;\n"
          "    layer->channels = in->rank > 1 ? in->dims[1] : 1;\n"
          "    layer->area = dlc_shape_count(in) / in->dims[0] / layer->channels;\n")
SLOPE = "dx[i] = dy[i] * root * root"
PLAIN = "#define dlc_rule_plain_gradient(s, g, w) "
CLIPPED = "#define dlc_rule_gradient(s, g, w) "
STEP = "    *weight -= step->learning_rate * slot[VELOCITY];\n"
INCLUDE = "#include <dlcore/solver.h>\n"
SOLVER_VALUES = "values->own[MOMENTUM]"
APPLIES = "end - begin, 1, model->gradients"
LOOP = "    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {"
FINISHED = "    }\n    return rc;\n}\n\n/* The ranks never differ. */"
TRANSPORT_DONE = "        r->done = r->moved == r->bytes;\n        if (r->done)"


def after(include, *lines):
    return (include, include + "".join(line + "\n" for line in lines))


# A right model: each rank makes steps of its own, and the weights are averaged every fifth time. In the other
# iterations it starts the last bucket alone, for the control words.
LOCAL = (
    ("    size_t trained;", "    size_t count;\n    size_t trained;"),
    ("    made->exchange = args->exchange;", "    made->count = args->count;\n    made->exchange = args->exchange;"),
    ("    (void)iteration;\n    return model->exchange->start(model->exchange->context, bucket);",
     "    (void)model;\n    (void)iteration;\n    (void)bucket;\n    return DLC_OK;"),
    (APPLIES, "end - begin, (float)model->exchange->ranks, model->gradients"),
    (LOOP, LOOP.replace("rc == DLC_OK &&", "rc == DLC_OK &&") + "\n        rc = update(model, &values, b);\n    }\n"
     "    return rc == DLC_OK ? agree(model, iteration % 5 == 4) : rc;\n" + LOOP),
    ("static dlc_status model_finish(", """static dlc_status agree(dlc_consistency *model, int average) {
    const dlc_exchange *exchange = model->exchange;
    dlc_status rc = DLC_OK;
    int32_t first = average ? 0 : exchange->buckets - 1;
    for (size_t i = 0; average && i < model->trained; i++)
        model->gradients[i] = model->weights[i] / (float)exchange->ranks;
    for (int32_t b = first; rc == DLC_OK && b < exchange->buckets; b++)
        rc = exchange->start(exchange->context, b);
    for (int32_t b = first; rc == DLC_OK && b < exchange->buckets; b++)
        rc = exchange->wait(exchange->context, b);
    for (size_t i = 0; average && i < model->trained; i++)
        model->weights[i] = model->gradients[i];
    return rc;
}

static dlc_status model_finish("""),
    ("    (void)model;\n    (void)iteration;\n    return DLC_OK;\n}\n\nstatic const dlc_consistency_ops",
     "    return iteration % 5 ? agree(model, 1) : DLC_OK;\n}\n\nstatic const dlc_consistency_ops"),
)
# A right model that exchanges the control words in every second iteration. In the others it gives the last sums, and
# before the first exchange its own for both.
PAIRS = LOCAL + (
    ("    size_t count;\n", "    float given[16], votes[3];\n    int has_given;\n    size_t count;\n"),
    ("    return rc == DLC_OK ? agree(model, iteration % 5 == 4) : rc;",
     "    return rc == DLC_OK ? talk(model, iteration) : rc;"),
    ("static dlc_status model_finish(", """static dlc_status talk(dlc_consistency *model, int64_t iteration) {
    float *words = model->gradients + model->trained;
    dlc_status rc = DLC_OK;
    for (int i = 0; i < 3; i++) {
        model->votes[i] += words[1 + i];
        words[1 + i] = iteration % 2 ? model->votes[i] : 0;
        model->votes[i] = iteration % 2 ? 0 : model->votes[i];
    }
    if (iteration % 2)
        rc = agree(model, iteration % 10 == 9);
    for (size_t i = 0; rc == DLC_OK && model->trained + i < model->count; i++) {
        if (i > 0 && i <= 3)
            continue;
        if (iteration % 2)
            model->given[i] = words[i];
        words[i] = model->has_given || iteration % 2 ? model->given[i] : words[i] * (float)model->exchange->ranks;
    }
    model->has_given |= iteration % 2;
    return rc;
}

static dlc_status model_finish("""),
    ("iteration % 5 ? agree(model, 1)", "iteration % 10 ? agree(model, 1)"),
)
SOUND = (("consistency", LOCAL), ("consistency", PAIRS))

# Starts a process for ever that leaves the group, or doubles with each layer that is created.
STRAY = "dlcore-stray"
CREATED = "    made->name = args->name;\n"
BOMBS = (("layer", "has started 64 processes",
          ((CREATED, CREATED + "    extern int fork(void), setsid(void), pause(void), prctl(int, ...);\n"
            f'    for (int i = 0; i < 5000; i++)\n        if (!fork()) {{\n            prctl(15, "{STRAY}");\n'
            "            setsid();\n            for (;;)\n                pause();\n        }\n"),)),
         ("layer", "returns in a second process",
          ((CREATED, CREATED + f'    extern int fork(void), prctl(int, ...);\n    if (!fork())\n        prctl(15, "{STRAY}");\n'),)))


def add(mutant, weight, channels):
    """Adds the mutants; `weight` makes of the template a layer with a weight, `channels` one with many."""
    for kind, deeds in STATES_OF.items():
        for deed in deeds:
            mutant(PLACES[kind][1], kind, (PLACES[kind][0], "    {" + STATES[deed] + "}\n" + PLACES[kind][0]))
    for kind, deeds in LEAKS_OF.items():
        for deed in deeds:
            mutant(PLACES[kind][2], kind, (PLACES[kind][0], "    {" + LEAKS[deed] + "}\n" + PLACES[kind][0]))
    mutant("file.modes", "solver", flags=["-ffast-math"])
    layers(mutant, weight, channels)
    solvers(mutant)
    models(mutant)
    others(mutant)


def layers(mutant, weight, channels):
    def of(check, *changes):
        mutant(check, "layer", *changes)

    # Memory on either side.
    of("layer.runs", (FORWARD, "    y[layer->count] = 0;\n" + FORWARD))
    of("layer.runs", (FORWARD, "    ((char *)(y + layer->count))[0] = 0;\n" + FORWARD))
    of("layer.runs", (FORWARD, "    y[-1] = 0;\n" + FORWARD))
    of("layer.runs", (FORWARD, "    y[layer->count] = x[layer->count];\n" + FORWARD))
    of("layer.runs", ("        y[i] = x[i] /", "        y[i] = x[i + 1] /"))
    of("layer.runs", ("        y[i] = x[i] /", "        y[i] = x[i - 1] /"))
    of("layer.gradients", (BACKWARD, "    dx[layer->count] = 0;\n" + BACKWARD))
    of("layer.gradients", (SLOPE, "dx[i] = dy[i + 1] * root * root"))
    of("layer.gradients", *weight, ("    dw[0] = sum;", "    dw[0] = dw[1] = sum;"))
    # Few elements, in large tensors or far channels.
    of("layer.gradients", FIELDS, INFERS, (SLOPE, SLOPE + " * (i / layer->area % layer->channels >= 11 ? 0.5f : 1)"))
    of("layer.gradients", FIELDS, INFERS, (SLOPE, SLOPE + " * (i / layer->area % layer->channels == 3 ? 0 : 1)"))
    of("layer.gradients", *channels, ("        dw[i] = sum;", "        dw[i] = i / k == 5 ? 0 : sum;"))
    of("layer.large", (SLOPE, SLOPE + " * (i >= 65536 ? 0.5f : 1)"))
    of("layer.large", ("        y[i] = x[i] /", "        y[i] = (i < 65536) * x[i] /"), (SLOPE, SLOPE + " * (i < 65536)"))
    of("layer.large", (FORWARD, FORWARD.replace("int64_t i", "uint16_t i", 1).replace("< layer->count", "< (layer->count > 65535 ? "
                       "65535 : layer->count)")))
    # Later on.
    of("layer.later", (SLOPE, SLOPE.replace("= ", "= (run->iteration > 10 ? dx[i] : 0) + ", 1)))
    of("layer.later", ("        y[i] = x[i] /", "        y[i] = (run->iteration > 1000 ? 1.001f : 1) * x[i] /"))
    of("layer.later", *weight, ("    dw[0] = sum;", "    dw[0] = run->iteration == 65537 ? dw[0] + sum : sum;"))
    # Others beside it.
    of("layer.layers", ("        y[i] = x[i] /", "        y[i] = kept[i] = x[i] /"), ("    const float *y = run->out[0],",
       "    const float *y = kept,"), ("static dlc_status layer_forward", "static float kept[1 << 17];\n\nstatic dlc_status layer_forward"))
    of("layer.test_params", *weight, FIELDS, CREATES, ("*(const float *)run->param[0] * x", "(layer->phase == DLC_PHASE_TEST ? 1 : "
                                                       "*(const float *)run->param[0]) * x"))
    of("layer.test_params", *channels, ("                sum += w[c * k + i]", "                sum += (layer->phase == DLC_PHASE_TEST && "
                                        "c * k + i == channels * k - 1 ? 0 : w[c * k + i])"))
    # Processes and clocks.
    of("file.processes", after("#include <dlcore/layer.h>\n", PID),
       ("        y[i] = x[i] /", "        y[i] = (1 + 1e-3f * (float)(getpid() % 2)) * x[i] /"))
    of("file.processes", ("    float *dx = run->in_diff[0];", f"    float *dx = run->in_diff[0];\n    {CLOCK}\n    long now = time(0);"),
       (SLOPE, SLOPE + " + 1e-6f * (float)(now % 1000)"))


def solvers(mutant):
    def of(check, *changes):
        mutant(check, "solver", *changes)

    of("solver.step", after(INCLUDE, PLAIN + "((g) + (s)->weight_decay * (w))", CLIPPED + "dlc_rule_plain_gradient(s, g, w)"))
    of("solver.step", after(INCLUDE, CLIPPED + "dlc_rule_plain_gradient(s, g, w)"))
    of("solver.step", after(INCLUDE, PLAIN + "((s)->grad_scale * (g))", CLIPPED + "((s)->grad_scale * (g))"))
    of("solver.step", after(INCLUDE, PLAIN + "(2 * (s)->grad_scale * (g) + (s)->weight_decay * (w))"))
    of("solver.step", (STEP, "    *weight -= 0.01f * slot[VELOCITY];\n"))
    of("solver.decay_mult", (VALUES, VALUES.replace(SOLVER_VALUES, "values->own[5] = values->weight_decay;\n    values->weight_decay = 0;\n"
                                                    "    " + SOLVER_VALUES)),
       (STEP, "    *weight -= step->own[5] * step->learning_rate * *weight;\n" + STEP))
    of("solver.decay_mult", (VALUES, VALUES.replace(SOLVER_VALUES, "values->weight_decay = 0;\n    " + SOLVER_VALUES)))
    of("solver.many", after(INCLUDE, PLAIN + "((i < 65536) * ((s)->grad_scale * (g) + (s)->weight_decay * (w)))"))
    of("solver.moves", (STEP, "    if (gradient > 0 || gradient < -0.5f)\n    " + STEP))
    of("solver.nan", (VALUES, "    {" + STATES["fork"] + "}\n" + VALUES))
    of("file.processes", (VALUES, f"    {PID}\n    values->own[7] = 1e-4f * (float)(getpid() % 2);\n" + VALUES),
       (STEP, "    *weight -= step->own[7] * gradient;\n" + STEP))
    of("file.processes", (VALUES, f"    {CLOCK}\n    values->own[7] = 1e-6f * (float)(time(0) % 100);\n" + VALUES),
       (STEP, "    *weight -= step->own[7] * gradient;\n" + STEP))


def late(ranks):
    """The end of finish with more ranks than this, where the first control word comes from the iteration before."""
    return ("    }\n    static float kept;\n    float now = model->gradients[model->trained];\n"
            f"    if (exchange->ranks > {ranks} && iteration > 0)\n        model->gradients[model->trained] = kept;\n"
            "    kept = now;\n" + FINISHED.removeprefix("    }\n"))


def models(mutant):
    def of(check, *changes):
        mutant(check, "consistency", *changes)

    of("consistency.alone", (LOOP, LOOP.replace("rc == DLC_OK", "(iteration % 7 != 6 || exchange->wait(exchange->context, b)) && rc == DLC_OK")))
    of("consistency.alone", ("        end = model->trained;\n", "        end = model->trained - 256;\n"))
    of("consistency.alone", (APPLIES, "end - begin, bucket == 1 ? 0.9f : 1, model->gradients"))
    of("consistency.alone", (APPLIES, "end - begin - (bucket == 0), 1, model->gradients"))
    of("consistency.ranks", (APPLIES, "end - begin, 1.0f / (float)model->exchange->ranks, model->gradients"))
    of("consistency.ranks", (APPLIES, "end - begin, model->exchange->ranks > 1 && bucket == 0 ? 2 : 1, model->gradients"))
    of("consistency.ranks", ("    return model->exchange->start(", "    if (bucket == 1)\n        return DLC_OK;\n    return model->exchange->start("),
       ("        rc = exchange->wait(exchange->context, b);\n", "        if (b != 1)\n            rc = exchange->wait(exchange->context, b);\n"))
    of("consistency.ranks", (FINISH, FINISH + "    if (exchange->ranks > 1)\n        model->gradients[model->trained] = 0;\n"))
    # The last iteration's control words, though it exchanges new ones; and a rank that stands for both.
    of("consistency.control_words", (FINISHED, late(0)))
    of("consistency.ranks", (FINISHED, late(1)))
    of("consistency.ranks", ("    (void)iteration;\n    return model->exchange->start(", "    if (bucket == model->exchange->buckets - 1)\n"
       "        model->own = model->gradients[model->trained];\n    (void)iteration;\n    return model->exchange->start("),
       ("    size_t trained;", "    float own;\n    size_t trained;"),
       (FINISHED, "    }\n    if (exchange->ranks > 1 && iteration < 2)\n        model->gradients[model->trained] = 2 * model->own;\n"
        + FINISHED.removeprefix("    }\n")))
    of("consistency.exchange", ("    return model->exchange->start(", "    if (bucket == 1)\n        return DLC_OK;\n"
                                "    return model->exchange->start("))
    of("consistency.converges", (FINISH, FINISH + "    model->weights[-1] = 0;\n"))
    of("consistency.converges", (FINISH, FINISH + "    model->slots[0][model->trained + 16] = 0;\n"))
    of("consistency.converges", (FINISH, FINISH + "    model->gradients[model->trained + 16] = 0;\n"))
    of("file.processes", (APPLIES, "end - begin, 1 + 1e-4f * (float)(getpid() % 2), model->gradients"),
       after("#include <dlcore/consistency.h>\n", PID))


def others(mutant):
    mutant("data.order", "data", (READ, READ + "    static int64_t last = -9;\n    int follows = index[0] == last + 1;\n    last = index[0];\n"),
           ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
            "        labels[i] = make_sample(source, source->first + index[i] + follows * 4, pixels);"))
    mutant("data.place", "data", ("    return DLC_OK;\n}\n\nstatic const dlc_option", "    if ((uintptr_t)data % 4)\n        *(unsigned char *)data ^= 1;\n"
                                  "    return DLC_OK;\n}\n\nstatic const dlc_option"))
    mutant("file.processes", "data", ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
                                      f"    {{\n        {PID}\n        labels[i] = make_sample(source, source->first + index[i] + getpid() % 2, pixels);\n    }}"))
    mutant("file.processes", "data", (READ, READ + f"    {CLOCK}\n    int64_t now = time(0);\n"),
           ("        labels[i] = make_sample(source, source->first + index[i], pixels);",
            "        labels[i] = make_sample(source, source->first + index[i] + now % 1000, pixels);"))
    START = "static dlc_status pnm_decode(const dlc_decode_args *args, unsigned char *pixels) {\n"
    mutant("decoder.whole", "decoder", (START, START + "    unsigned char *first = pixels;\n"),
           (DECODED, "    if ((uintptr_t)first % 4)\n        *first ^= 1;\n" + DECODED))
    mutant("decoder.whole", "decoder", (START, START + "    pixels[-1] = 0;\n"))
    mutant("decoder.whole", "decoder", (START, START + "    unsigned char *first = pixels;\n"),
           (DECODED, "    if ((uintptr_t)args->bytes % 2)\n        *first ^= 1;\n" + DECODED))
    mutant("file.processes", "decoder", (START, START + f"    {PID}\n    unsigned char *first = pixels;\n"),
           (DECODED, "    *first ^= getpid() % 2;\n" + DECODED))
    mutant("file.processes", "device", (ADD, ADD.replace("x[i];", "x[i] * (1 + 1e-4f * (float)(getpid() % 2));")))
    mutant("transport.messages", "transport", (TRANSPORT_DONE, "        if (r->moved == r->bytes && r->bytes % 4 == 1)\n"
                                               "            r->buffer[r->bytes] = 9;\n" + TRANSPORT_DONE))
    mutant("transport.messages", "transport", (TRANSPORT_DONE, "        r->buffer[-1] = 9;\n" + TRANSPORT_DONE))
