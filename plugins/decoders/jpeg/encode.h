/* Makes JPEG files. */
#ifndef JPEG_ENCODE_H
#define JPEG_ENCODE_H

#include <dlcore/decoder.h>

/* dlc_decoder_ops.encode: baseline, with colours at half the size. */
dlc_status jpeg_encode(const dlc_host *host, const dlc_encode_args *args,
                       unsigned char **bytes, uint64_t *count);

#endif
