/* Checks what plugins return, where it enters the core. */
#include "plugin/answers.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "base/process_state.h"
#include "base/status.h"
#include "plugin/child.h"
#include "plugin/object.h"
#include "plugin/registry.h"

enum { DESCRIPTION = 192 };

/* "device 'x' of plugin 'y'" */
static const char *describe_feature(const void *of, char text[DESCRIPTION]) {
    const char *plugin;
    const dlc_feature *feature = dlc_object_find(of, &plugin);
    if (!feature)
        return "a plugin";
    (void)snprintf(text, DESCRIPTION, "%s '%.63s' of plugin '%.63s'",
                   dlc_kind_text((dlc_kind)feature->kind), feature->name, plugin);
    return text;
}

dlc_status dlc_answer_refuse(const void *of, const char *format, ...) {
    char sentence[512], described[DESCRIPTION];
    va_list args;
    va_start(args, format);
    (void)dlc_print(sentence, sizeof sentence, format, args);
    va_end(args);
    return dlc_fail(DLC_ERR_PLUGIN, "%s: %s", describe_feature(of, described),
                    sentence);
}

/* What a call that is not checked had changed before the call in progress; NULL:
 * nothing. */
static _Thread_local const char *changed_before;

void dlc_answer_begin(void) {
    dlc_detail_clear();
    changed_before = dlc_modes_restore();
}

dlc_status dlc_answer_explain(const void *table, const char *call, dlc_status status) {
    char described[DESCRIPTION];
    const char *changed = dlc_modes_restore();
    if (changed)
        return dlc_answer_refuse(table,
                                 "%s changes %s for everything that is computed "
                                 "after it",
                                 call, changed);
    if (changed_before)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "before %s of %s, a plugin has changed %s; `dlcore plugin "
                        "check` says which does",
                        call, describe_feature(table, described), changed_before);
    if (status > DLC_OK)
        return dlc_answer_refuse(table, "%s returns %d, which is no status", call,
                                 status);
    if (status == DLC_OK || *dlc_detail())
        return status;
    return dlc_fail(status, "%s: %s failed without a reason: %s",
                    describe_feature(table, described), call, dlc_status_text(status));
}

int dlc_answer_is_tensor(const dlc_shape *shape, dlc_dtype dtype) {
    size_t bytes = dlc_dtype_bytes(dtype);
    int sound = bytes > 0 && shape->rank >= 0 && shape->rank <= DLC_MAX_DIMS;
    for (int32_t i = 0; sound && i < shape->rank; i++)
        sound = shape->dims[i] >= 1 &&
                !__builtin_mul_overflow(bytes, (size_t)shape->dims[i], &bytes) &&
                bytes <= DLC_ANSWER_BYTES_MAX;
    return sound;
}

static int is_answer_name(const char *name) {
    enum { NAME_MAX_BYTES = 128 };
    size_t length = name ? strnlen(name, NAME_MAX_BYTES) : 0;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f || name[i] == '/')
            return 0;
    return length > 0 && length < NAME_MAX_BYTES;
}

static const char *name_at(const char *const *first, size_t stride, int32_t i) {
    const char *name;
    memcpy(&name, (const char *)first + (size_t)i * stride, sizeof name);
    return name;
}

int32_t dlc_answer_bad_name(const char *const *first, size_t stride, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const char *name = name_at(first, stride, i);
        if (!is_answer_name(name))
            return i;
        for (int32_t j = 0; j < i; j++)
            if (strcmp(name, name_at(first, stride, j)) == 0)
                return i;
    }
    return -1;
}

/* The longest that a call may take; without a persistence daemon, asking a driver takes
 * 10 s and more. */
#define PREDICT_SECONDS 5.0
#define COUNT_SECONDS 60.0

/* Tables of calls that have answered in a child. Pictures of many machines ask for
 * thousands of predictions, and trying each takes a minute. */
static _Atomic(const void *) tried[32];

static int was_tried(const void *ops) {
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        if (atomic_load(&tried[i]) == ops)
            return 1;
    return 0;
}

/* Where there is no room left, the call is tried each time. */
static void note_tried(const void *ops) {
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        const void *none = NULL;
        if (atomic_compare_exchange_strong(&tried[i], &none, ops))
            return;
    }
}

/* Tries a call of a feature in a child, unless one has answered before. */
static dlc_status try_call(const dlc_feature *feature, const char *name, double seconds,
                           dlc_status (*call)(void *context), void *context) {
    if (was_tried(feature->ops))
        return DLC_OK;
    char what[DESCRIPTION + 16], described[DESCRIPTION];
    (void)snprintf(what, sizeof what, "%s() of %s", name,
                   describe_feature(feature, described));
    DLC_TRY(dlc_probe(what, seconds, call, context));
    note_tried(feature->ops);
    return DLC_OK;
}

dlc_status dlc_answer_check_opened(const void *of, const char *call,
                                   const void *opened) {
    return opened ? DLC_OK
                  : dlc_answer_refuse(of, "%s succeeds, but opens nothing", call);
}

/* ---- Transports -------------------------------------------------------------- */

/* The arguments of predict. */
typedef struct predicting {
    const dlc_transport_ops *ops;
    const dlc_transport_args *args;
    dlc_transport_prediction prediction;
    char *reason;
    size_t room;
} predicting;

static dlc_status call_predict(void *context) {
    predicting *call = context;
    call->prediction = (dlc_transport_prediction){.size = sizeof call->prediction};
    return DLC_ASK(
        call->ops, "predict",
        call->ops->predict(call->args, &call->prediction, call->reason, call->room));
}

/* Slower than a second a byte or a day a step is a mistake in a unit. */
static int is_plausible(const dlc_transport_prediction *p) {
    return p->latency > 0 && p->latency < 86400 && p->small_bandwidth > 1 &&
           p->small_bandwidth < 1e18 && p->bandwidth > 1 && p->bandwidth < 1e18;
}

dlc_status dlc_answer_prediction(const dlc_feature *feature,
                                 const dlc_transport_args *args, char *reason,
                                 size_t room, dlc_transport_prediction *prediction) {
    predicting call = {
        .ops = feature->ops, .args = args, .reason = reason, .room = room};
    reason[0] = '\0';
    if (!args->device)
        DLC_TRY(try_call(feature, "predict", PREDICT_SECONDS, call_predict, &call));
    DLC_TRY(call_predict(&call));
    reason[room - 1] = '\0';
    const dlc_transport_prediction *p = &call.prediction;
    if (p->bandwidth == 0) { // NOLINT(clang-diagnostic-float-equal): it cannot
        *prediction = (dlc_transport_prediction){.size = sizeof *prediction};
        return DLC_OK;
    }
    if (!is_plausible(p))
        return dlc_answer_refuse(
            feature,
            "it predicts %g s and %g and %g bytes/s, which must be "
            "above 0, and plausible",
            p->latency, p->small_bandwidth, p->bandwidth);
    *prediction = *p;
    return DLC_OK;
}

/* ---- Devices ----------------------------------------------------------------- */

static dlc_status call_count(void *context) {
    const dlc_device_ops *ops = context;
    int32_t count = 0;
    return ops->count(&count);
}

dlc_status dlc_answer_devices(const dlc_feature *feature, int32_t *count) {
    dlc_device_ops ops;
    int32_t found = 0;
    memcpy(&ops, feature->ops, offsetof(dlc_device_ops, count) + sizeof ops.count);
    DLC_TRY(try_call(feature, "count", COUNT_SECONDS, call_count, &ops));
    DLC_TRY(DLC_ASK(feature->ops, "count", ops.count(&found)));
    if (found < 0 || found > DLC_ANSWER_DEVICES_MAX)
        return dlc_answer_refuse(feature, "it counts %d devices; 0 to %d are possible",
                                 (int)found, DLC_ANSWER_DEVICES_MAX);
    *count = found;
    return DLC_OK;
}

/* ---- Data sources ------------------------------------------------------------ */

dlc_status dlc_answer_check_data(const dlc_feature *feature, const dlc_data_info *info,
                                 int encoded) {
    const dlc_shape *shape = &info->shape;
    if (info->samples < 1 || info->samples > DLC_ANSWER_SAMPLES_MAX)
        return dlc_answer_refuse(feature, "it describes %lld samples",
                                 (long long)info->samples);
    if (shape->rank < 1 || shape->rank >= DLC_MAX_DIMS)
        return dlc_answer_refuse(feature, "a sample has %d dimensions, not 1 to %d",
                                 (int)shape->rank, DLC_MAX_DIMS - 1);
    if (info->dtype != DLC_U8 && info->dtype != DLC_F32)
        return dlc_answer_refuse(
            feature, "its samples are of type %d, neither bytes nor float32",
            (int)info->dtype);
    /* Bytes become float32 on their way to the net. */
    if (!encoded && !dlc_answer_is_tensor(shape, DLC_F32))
        return dlc_answer_refuse(feature,
                                 "the shape of a sample is empty or too large");
    if (info->classes < 0)
        return dlc_answer_refuse(feature, "it describes %d classes",
                                 (int)info->classes);
    for (int32_t i = 0; info->class_names && i < info->classes; i++)
        if (!info->class_names[i])
            return dlc_answer_refuse(feature, "class %d has no name", (int)i);
    return DLC_OK;
}

/* ---- Consistency models ------------------------------------------------------ */

dlc_status dlc_answer_check_needs(const dlc_feature *feature,
                                  const dlc_consistency_needs *needs) {
    if (needs->servers < 0)
        return dlc_answer_refuse(feature, "it needs %d parameter servers",
                                 (int)needs->servers);
    const dlc_consistency_ops *ops = feature->ops;
    if (needs->deferred_update && !DLC_CAN(ops, update))
        return dlc_answer_refuse(feature,
                                 "it needs deferred_update, but has no update");
    return DLC_OK;
}
