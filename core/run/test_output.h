/* The output that a test hands out (output.h): planned, opened and closed by the
 * session, read by core/train/evaluate.c. */
#ifndef DLC_RUN_TEST_OUTPUT_H
#define DLC_RUN_TEST_OUTPUT_H

#include "session/session.h"

/* Finds the shape of the output, before the test net is built. */
dlc_status dlc_test_output_plan(dlc_session *session);
/* Takes its memory, once the test net is allocated. */
dlc_status dlc_test_output_open(dlc_session *session);
void dlc_test_output_close(dlc_session *session);

/* The values of the batch that the net has just run on, until it runs again. */
dlc_status dlc_test_output_read(const dlc_session *session, const float **values);

#endif
