/* Checks of what plugins return: the core believes no number of a plugin. A wrong one
 * is a DLC_ERR_PLUGIN that names the feature and its plugin. Answers of layers are
 * checked in net/layer_calls.c with these helpers. */
#ifndef DLC_PLUGIN_ANSWERS_H
#define DLC_PLUGIN_ANSWERS_H

#include <dlcore/consistency.h>
#include <dlcore/data.h>
#include <dlcore/device.h>
#include <dlcore/transport.h>

#include "base/status.h"

/* The most bytes of one piece of memory that a plugin may ask for. It is more than any
 * machine has, and the sum of a million of them does not overflow. */
#define DLC_ANSWER_BYTES_MAX ((size_t)1 << 43)

/* The most samples of a data source, and the most devices of one type. */
#define DLC_ANSWER_SAMPLES_MAX ((int64_t)1 << 48)
enum { DLC_ANSWER_DEVICES_MAX = 4096 };

/* Makes a call of a table of a plugin: DLC_ASK(ops, "open", ops->open(...)). An error
 * without a sentence gets one that names the feature, its plugin and the call. A call
 * that changes the floating-point modes fails as well (process_state.h). */
#define DLC_ASK(table, call, expression) \
    (dlc_answer_begin(), dlc_answer_explain(table, call, expression))
void dlc_answer_begin(void);
dlc_status dlc_answer_explain(const void *table, const char *call, dlc_status status);

/* Fails with DLC_ERR_PLUGIN: "KIND 'NAME' of plugin 'PLUGIN': " and the sentence. Of a
 * feature, or of the one to which a table of calls belongs. */
dlc_status dlc_answer_refuse(const void *of, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Is it the shape of a tensor of this type, neither empty nor absurdly large? */
int dlc_answer_is_tensor(const dlc_shape *shape, dlc_dtype dtype);

/* The index of the first name that is NULL, empty, has control characters, '/' or a
 * space, or occurs before; -1 if there is none. Names are `stride` bytes apart. */
int32_t dlc_answer_bad_name(const char *const *first, size_t stride, int32_t count);

/* Ask a transport for its prediction, and a device for the number of devices. They are
 * asked in a child first (child.h), in which a crash is only a failure; a transport
 * only as long as no device is open, since drivers do not survive a fork. */
dlc_status dlc_answer_prediction(const dlc_feature *feature,
                                 const dlc_transport_args *args, char *reason,
                                 size_t room, dlc_transport_prediction *prediction);
dlc_status dlc_answer_devices(const dlc_feature *feature, int32_t *count);

/* Checks what a call that opens something, and succeeded, has left in its result: not
 * NULL. `of` as in dlc_answer_refuse. */
dlc_status dlc_answer_check_opened(const void *of, const char *call,
                                   const void *opened);

/* Check what a data source described (encoded: its images have sizes of their own), and
 * what a consistency model needs. What a solver
 * needs is checked in solver/solver.h. */
dlc_status dlc_answer_check_data(const dlc_feature *feature, const dlc_data_info *info,
                                 int encoded);
dlc_status dlc_answer_check_needs(const dlc_feature *feature,
                                  const dlc_consistency_needs *needs);

#endif
