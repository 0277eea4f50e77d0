"""Mutants of devices: of examples/accelerator, which has all that a device with queues has, and of
the device template, which is given optional kernels."""

WITH_OPS = "static const dlc_device_ops ops = {"


def describe_mutants(mutant):
    end = "    return DLC_OK;\n}\n\n/* One link"
    for change in ('memset(info->address, 55, sizeof info->address)', "info->size = 8", "info->numa = -2"):
        mutant("device.describe", "accelerator", (end, f"    {change};\n" + end), ("#include <stdio.h>", "#include <stdio.h>\n"
                                                                               "#include <string.h>"))
    mutant("device.describe", "accelerator", ('"0000:a%d:00.0"', '"number %d"'))
    mutant("device.describe", "accelerator", ('"0000:a%d:00.0", (int)index', '"0000:a%d:00.0", 0 * index'))
    check = "dlc_status status = check_index(args->index);"
    mutant("device.open", "accelerator", (check, "dlc_status status = DLC_OK;"))
    mutant("device.open", "accelerator", (check, "dlc_status status = args->index >> 1 ? DLC_ERR_CONFIG : DLC_OK;"))
    mutant("device.open", "accelerator", ("    *device = made;", "    *device = NULL;\n    host->free(made);"))
    for old, new in (("    *count = 1;", "    *count = -1;"), ("width = 1", "width = 0"), ("links->gbs = 2", "links->gbs = -1"),
                     ("write_address(1 - index", "write_address(index"), ("    if (capacity < 1)\n        return DLC_OK;\n",
                                                                          "    if (!links)\n        return DLC_OK;\n"),
                     ("    links->width", "    links->size = 0;\n    links->width"), ("DLC_LINK_TO_DEVICE", "9")):
        mutant("device.links", "accelerator", (old, new))


def memory_mutants(mutant):
    base = "    memory->base = flags & DLC_MEM_STAGING ? mapped :"
    mutant("device.memory", "accelerator", (base, "    memory->base = 0 ? mapped :"))
    mutant("device.memory", "accelerator", (base, "    if (flags == 3)\n        memset(mapped, 3, bytes);\n" + base))
    mutant("device.memory", "accelerator", ("    memory->bytes = bytes;", "    memory->bytes = bytes / 2;"))
    mutant("device.memory", "accelerator", ("    memory->flags = flags;", "    memory->size = 0;"))
    mutant("device.free", "accelerator", ("        atomic_fetch_sub(&used[gone->owner], gone->bytes);", "        (void)0;"))
    mutant("device.free", "accelerator", ("    host->free(gone);\n    *memory", "    *memory"))
    mutant("device.ipc", "accelerator", ("handle->pid = (uint32_t)getpid()", "handle->pid = 1"))
    mutant("device.ipc", "accelerator", ("    return map(file, (size_t)handle->bytes", "    return map(file, 4096"))
    mutant("device.peers", "accelerator", ("*can_access = 1;", "*can_access = 42;"))
    mutant("device.peers", "accelerator", ("    return map(file,", "    if (device->index)\n        return device_alloc(device, "
                                           "handle->bytes, 0, memory);\n    return map(file,"))


def copy_mutants(mutant):
    move = "        memmove(k->y, k->x, k->n);"
    for new in ("memmove(k->y, k->x, k->n / 4 * 4);", "memmove(k->y, k->x, k->n > 1 << 20 ? 1 << 20 : k->n);",
                "memmove((void *)k->x, k->y, k->n);"):
        mutant("device.copy", "accelerator", (move, "        " + new))
    call = "    const kernel k = {.n = bytes, .x = view(src), .y = view(dst)};"
    for when in ("!queue", "is_device_memory(dst) && is_device_memory(src)", "!is_device_memory(dst) && !is_device_memory(src)"):
        mutant("device.copy", "accelerator", (call, f"    if ({when})\n        return DLC_OK;\n" + call))
    mutant("device.copy", "accelerator", (call, '    if (!bytes)\n        return host->fail(DLC_ERR_CONFIG, "0");\n' + call))
    mutant("device.fill", "accelerator", ("memset(k->y, k->byte, k->n)", "memset(k->y, k->byte, k->n & ~63ul)"))
    mutant("device.fill", "accelerator", ("memset(k->y, k->byte, k->n)", "memset(k->y, k->byte & 127, k->n)"))


def queue_mutants(mutant):
    wait = "    return is_captured ? DLC_OK : submit(queue, run_wait, &p, sizeof p);"
    mutant("device.queues", "accelerator", (wait, "    return DLC_OK;"))
    mutant("device.queues", "accelerator", ("    *queue = made;", "    *queue = NULL;"))
    mutant("device.queues", "accelerator", ("    *event = made;", "    *event = NULL;"))
    mutant("device.queues", "accelerator",
           ("    if (list->first)\n        list->last->next = added;\n    else", "    added->next = list->first;"))
    done = "    *done = event->done == event->recorded;"
    for new in ("1", "0", "2", "event->recorded && event->done == event->recorded"):
        mutant("device.events", "accelerator", (done, f"    *done = {new};"))
    mutant("device.events", "accelerator", ("    while (event->done < event->recorded)\n", "    while (0)\n"))
    mutant("device.close", "accelerator", ("        if (!queue->list.first)\n", "        if (!queue->list.first || "
                                                                             "queue->is_closing)\n"))
    mutant("device.queue_leaks", "accelerator", ("    release_event(event);\n", ""))
    mutant("device.queue_leaks", "accelerator", ("    (void)pthread_join(queue->thread, NULL);\n    host->free(queue);",
                                                 "    (void)pthread_join(queue->thread, NULL);"))
    operate = "i < count && status == DLC_OK; i++)\n        status = submit(queue, run_semaphore"
    for new in (operate.replace("i < count", "0"), operate.replace("i < count", "i < 1"),
                operate.replace("submit(queue, run_semaphore", "count ? DLC_ERR_UNSUPPORTED : submit(queue, run_semaphore")):
        mutant("device.semaphores", "accelerator", (operate, new))
    mutant("device.semaphores", "accelerator", ("(int32_t)(atomic_load(semaphore) - op->value) < 0",
                                                "atomic_load(semaphore) < op->value"))
    mutant("device.no_queue", "accelerator", ("        return run(args);", "        return DLC_OK;"))
    mutant("device.threads", "accelerator",
           ("dlc_status device_alloc(dlc_device *device", "#include <pthread.h>\nstatic pthread_t first;\n"
            "dlc_status device_alloc(dlc_device *device"),
           ("    int32_t owner = flags", "    if (!first)\n        first = pthread_self();\n    if (first != pthread_self())\n"
            '        return host->fail(DLC_ERR_DEVICE, "another thread");\n    int32_t owner = flags'))


def graph_mutants(mutant):
    mutant("device.graphs", "accelerator", ("    append(queue->capture ? &queue->capture->list : &queue->list, made);",
                                            "    append(&queue->list, made);"))
    mutant("device.graphs", "accelerator", ("        *graph = made;", "        *graph = NULL;"))
    launch = "    for (const work *w = graph->list.first; w"
    mutant("device.graphs", "accelerator", (launch, launch.replace("graph->list.first", "graph->list.first->next")))
    mutant("device.graphs", "accelerator", (launch, "    static int launched;\n    if (launched++)\n        return DLC_OK;\n"
                                            + launch))
    mutant("device.captures", "accelerator", ("    if (graph && !made->is_invalid)", "    if (!made->is_invalid)"))
    mutant("device.captures", "accelerator", ("        queue->capture->is_invalid = 1;", "        (void)0;"))
    mutant("device.captures", "accelerator", ("    int is_captured = queue->capture != NULL;\n    if (is_captured)\n",
                                              "    int is_captured = 0;\n    if (is_captured)\n"))


def kernel_mutants(mutant):
    mutant("device.sum_to", "accelerator", ("SOURCES = 64", "SOURCES = 8"))
    mutant("device.sum_to", "accelerator", ("    const sum_call *c = args;\n", "    const sum_call *c = args;\n"
                                                                            "    memset(c->dst, 0, c->n * 4);\n"))
    mutant("device.sum_to", "device", (WITH_OPS, """
static dlc_status sum_to(dlc_device *d, dlc_queue *q, size_t n, const float *const *s, int32_t count, float *const *to,
                         int32_t tos) {
    return device_sum(d, q, n, s, count, to[tos - 1]);
}
""" + WITH_OPS + "\n    .sum_to = sum_to,"))
    mutant("device.add_mean", "accelerator", ("    if (x[1] < 0 || x[1] > 0)\n", ""))
    mutant("device.bytes", "accelerator", ("const unsigned char *bytes = k->x", "const signed char *bytes = k->x"))
    mutant("device.normalize", "device", (WITH_OPS, """
static dlc_status normalize(dlc_device *d, dlc_queue *q, size_t n, size_t plane, size_t channels, const uint8_t *src,
                            const float *mean, const float *scale, float *dst) {
    for (size_t i = 0; i < n; i++)
        dst[i] = ((float)src[i] - mean[i % channels]) * scale[i % channels];
    return DLC_OK;
}
""" + WITH_OPS + "\n    .normalize = normalize,"))
    mutant("device.loss_scale", "device", (WITH_OPS, """
static dlc_status rescale(dlc_device *d, dlc_queue *q, const double *square, int32_t interval, dlc_loss_scale *s) {
    s->inverse = 1 / s->scale;
    s->overflow = !isfinite(*square);
    s->scale = s->overflow ? s->scale / 2 : s->scale;
    return DLC_OK;
}
""" + WITH_OPS + "\n    .update_loss_scale = rescale,"))
    mutant("device.norms", "accelerator", ("before + (double)x[i] * (double)x[i]", "before + x[i] * x[i]"))
    mutant("device.norms", "accelerator", ("        double before = i % DLC_SQUARE_PIECE ? *sum : 0;",
                                           "        double before = *sum;"))
    mutant("feature.descriptor", "accelerator", ("    .add_mean = device_add_mean,\n", ""))


def layer_mutants(mutant):
    """Layers of a device whose memory the CPU cannot read are checked like all others."""
    mutant("layer.runs", "accelerator", ("    return submit_pass(layer, run_product_forward, run, 0);",
                                         "    return run_product_forward(layer, run);"))
    mutant("layer.gradients", "accelerator", ("            db[o] += dy[o];", "            db[o] = dy[o];"))
    mutant("layer.gradients", "device", ("            db[o] += dy[o];", "            db[o] = dy[o];"))
    counted = ("    int64_t counted;\n    dlc_status rc = count_labels(layer, label, &counted);\n    if (rc != DLC_OK || !diff)",
               "    int64_t counted = kept;\n    dlc_status rc = DLC_OK;\n    if (rc != DLC_OK || !diff)")
    keep = ("    *counted = 0;\n", "    *counted = 0;\n    kept = 0;\n"), ("        ++*counted;", "        kept = ++*counted;"), (
        "static dlc_status count_labels(", "static int64_t kept;\nstatic dlc_status count_labels(")
    mutant("layer.passes", "device", counted, *keep)


def add(mutant):
    for part in (describe_mutants, memory_mutants, copy_mutants, queue_mutants, graph_mutants, kernel_mutants, layer_mutants):
        part(mutant)
