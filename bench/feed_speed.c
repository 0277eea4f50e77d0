/* Measures the samples that the feed of a net's [data] delivers, in the turns that
 * bench/feed.py asks for (turns.h).
 *
 *     echo 5 | feed_speed NET.INI THREADS [bytes]
 *
 * bytes: samples stay bytes, as for a device that converts them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "data/feed.h"
#include "setup/data_source.h"
#include "setup/setup.h"
#include "turns.h"

/* What is ready at the beginning of a turn, and was made before, is not counted. */
enum { AHEAD = 3 };

static dlc_status take_turn(dlc_feed *feed, double seconds, int64_t batch) {
    dlc_batch got;
    long samples = 0;
    for (int i = 0; i <= AHEAD; i++)
        DLC_TRY(dlc_feed_next(feed, &got));
    turn t = turn_begin();
    while (turn_passed(&t) < seconds) {
        DLC_TRY(dlc_feed_next(feed, &got));
        samples += (long)batch;
    }
    turn_end(&t, samples);
    return DLC_OK;
}

/* A feed goes on reading while it is not its turn, so each turn has one of its own. */
static dlc_status measure(const dlc_feed_args *args, int64_t iterations) {
    double seconds;
    for (int64_t i = 0; turn_wait(&seconds); i++) {
        dlc_feed *feed = NULL;
        DLC_TRY(dlc_feed_open(args, &feed));
        dlc_status status = dlc_feed_seek(feed, i * iterations);
        if (status == DLC_OK)
            status = take_turn(feed, seconds, args->batch);
        dlc_feed_close(feed);
        DLC_TRY(status);
    }
    return DLC_OK;
}

static dlc_status run(dlc_setup *setup, int32_t threads, int bytes) {
    dlc_data_setup *data = &setup->train;
    dlc_feed_args args;
    DLC_TRY(dlc_data_source_open(setup, data, NULL));
    dlc_data_source_feed(data, &args);
    args.seed = setup->seed;
    args.keep_bytes = bytes;
    args.threads = threads;
    args.prefetch = AHEAD;
    args.count = (int32_t)data->batch;
    args.batch = data->batch;
    args.ranks = 1;
    printf("ready\n");
    fflush(stdout);
    enum { BATCHES_OF_A_TURN = 1000 }; /* turns have samples of their own */
    return measure(&args, BATCHES_OF_A_TURN);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: feed_speed NET.INI THREADS [bytes]\n");
        return 2;
    }
    const dlc_setup_args args = {.path = argv[1]};
    dlc_setup *setup = NULL;
    dlc_status status = dlc_setup_open(&args, &setup);
    if (status == DLC_OK)
        status = run(setup, atoi(argv[2]), argc > 3 && strcmp(argv[3], "bytes") == 0);
    if (status != DLC_OK)
        fprintf(stderr, "feed_speed: %s\n", dlc_detail());
    dlc_setup_close(setup);
    return status == DLC_OK ? 0 : 1;
}
