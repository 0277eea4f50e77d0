/* The trace of consistency model ssp, one line an event, for people and for tests of
 * the rule:
 *
 *     update SECONDS BUCKET WORKER CLOCK 0          the owner applied it
 *     request SECONDS BUCKET WORKER OWN OTHERS      clocks that its answer must contain
 *     answer SECONDS BUCKET WORKER DELAYED 0 IN...  DELAYED: 1 if it could not be sent
 * at once; IN: the clock of each worker wait SECONDS BUCKET OWNER CLOCK 0 HAVE...
 * iteration CLOCK must wait, because it has only the clocks HAVE read SECONDS BUCKET
 * OWNER CLOCK 0 IN...       what iteration CLOCK computes with
 *
 * CLOCK of a read is the iteration that computes with the weights. Each rank writes a
 * file of its own; lines of one bucket and owner are in order.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ssp.h"

dlc_status trace_open(ssp *s, const dlc_consistency_args *args) {
    const char *path = host->get_string(args->settings, "trace");
    const char *word = args->parameters;
    char name[4096];
    if (!path || !*path)
        return DLC_OK;
    int length = snprintf(name, sizeof name, "%s%s%s.%d", path, word ? "." : "",
                          word ? word : "", args->job_rank);
    if (length < 0 || (size_t)length >= sizeof name)
        return host->fail(DLC_ERR_CONFIG, "the name of the trace file is too long: %s",
                          path);
    s->opened = host->now_ns();
    s->trace = fopen(name, "we");
    if (!s->trace)
        return host->fail(DLC_ERR_IO, "cannot write the trace %s: %s", name,
                          strerror(errno));
    (void)fprintf(
        s->trace, "# rank %d of %d, workers %d, owners %d, buckets %d, first %lld\n",
        s->me, s->ranks, s->workers, s->owners, s->buckets, (long long)s->first);
    return DLC_OK;
}

void trace_close(ssp *s) {
    if (s->trace && fclose(s->trace) != 0)
        host->log(DLC_LOG_WARN, "the trace file is incomplete: %s", strerror(errno));
    s->trace = NULL;
}

void trace_line(ssp *s, const char *what, int32_t bucket, int64_t a, int64_t b,
                int64_t c, const int64_t *clocks) {
    if (!s->trace)
        return;
    flockfile(s->trace);
    (void)fprintf(s->trace, "%s %.6f %d %" PRId64 " %" PRId64 " %" PRId64, what,
                  (double)(host->now_ns() - s->opened) * 1e-9, bucket, a, b, c);
    for (int32_t w = 0; clocks && w < s->workers; w++)
        (void)fprintf(s->trace, " %" PRId64, clocks[w]);
    (void)fputc('\n', s->trace);
    funlockfile(s->trace);
}
