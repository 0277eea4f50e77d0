/* The device "later", opened, with some memory and queues. */
#ifndef LATER_RIG_H
#define LATER_RIG_H

#include <check.h>

#include "base/status.h"
#include "support/plugins.h"

enum { RIG_FLOATS = 1024, RIG_BUFFERS = 4 };

extern const dlc_device_ops *ops;
extern dlc_device *device;
extern dlc_queue *q1, *q2;
extern dlc_event *e1, *e2;
/* Device memory, and a way to look at it: staging memory of the same size. */
extern float *buffer[RIG_BUFFERS];
extern float *host_floats;

void rig_setup(void);
void rig_teardown(void);

#define OK(call) ck_assert_msg((call) == DLC_OK, "%s: %s", #call, dlc_detail())
/* Fails so, with these words in its sentence. */
#define FAILS(call, status, words) \
    do { \
        ck_assert_int_eq((call), (status)); \
        ck_assert_msg(strstr(dlc_detail(), (words)) != NULL, "%s", dlc_detail()); \
    } while (0)

/* All of a buffer is this value, set or looked at behind all queues' backs. */
void rig_set(float *at, float value);
/* Its value; NAN where it is not one value everywhere. */
float rig_value(const float *at);

#endif
