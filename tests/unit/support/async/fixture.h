/* The device "async", opened, with some memory and queues. */
#ifndef ASYNC_FIXTURE_H
#define ASYNC_FIXTURE_H

#include <check.h>

#include "base/status.h"
#include "support/plugins.h"

enum { FIXTURE_FLOATS = 1024, FIXTURE_BUFFERS = 4 };

extern const dlc_device_ops *ops;
extern dlc_device *device;
extern dlc_queue *q1, *q2;
extern dlc_event *e1, *e2;
/* Device memory, and staging memory of the same size to read it through. */
extern float *buffer[FIXTURE_BUFFERS];
extern float *host_floats;

void fixture_setup(void);
void fixture_teardown(void);

#define OK(call) ck_assert_msg((call) == DLC_OK, "%s: %s", #call, dlc_detail())
/* The call fails with this status, and its message contains `words`. */
#define FAILS(call, status, words) \
    do { \
        ck_assert_int_eq((call), (status)); \
        ck_assert_msg(strstr(dlc_detail(), (words)) != NULL, "%s", dlc_detail()); \
    } while (0)

/* Sets or reads all elements of a buffer, without regard to queues. */
void fixture_set(float *at, float value);
/* The value of all elements; NAN if they differ. */
float fixture_value(const float *at);

#endif
