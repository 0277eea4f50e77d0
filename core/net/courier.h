/* A courier: a thread that delivers messages while the train thread computes. Many a
 * transport moves a long message on only while somebody looks.
 *
 * Threads: one gives and awaits. The mail is the courier's from open to close.
 */
#ifndef DLC_NET_COURIER_H
#define DLC_NET_COURIER_H

#include <dlcore/solver.h>

#include "base/status.h"

/* One message. Its memory belongs to the courier until it was delivered. */
typedef struct dlc_parcel {
    int32_t peer;
    int is_sent; /* 0: it comes */
    dlc_tag tag;
    void *buffer; /* not written to where it is sent */
    size_t bytes;
} dlc_parcel;

typedef struct dlc_courier dlc_courier;

/* `most`: parcels that may be under way at once. */
dlc_status dlc_courier_open(const dlc_mail *mail, int32_t most, dlc_courier **courier);
/* Soon; what is under way is the mail's to give up, which is closed next. NULL allowed.
 */
void dlc_courier_close(dlc_courier *courier);

/* *ticket: until these, and all that were given before, have been delivered. */
dlc_status dlc_courier_give(dlc_courier *courier, const dlc_parcel *parcel,
                            int32_t count, uint64_t *ticket);
/* Or the reason why they won't be. */
dlc_status dlc_courier_await(dlc_courier *courier, uint64_t ticket);

#endif
