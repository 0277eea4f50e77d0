/* The client of PMI-1: requests and answers are lines "cmd=NAME key=value ...". */
#include "job/launch/pmi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/write.h"
#include "job/supervise.h"

/* ---- Lines ---------------------------------------------------------------------- */

static dlc_status broken_pmi(const char *why) {
    return dlc_fail(DLC_ERR_PEER, "the launcher does not answer through PMI: %s", why);
}

static dlc_status send_pmi_line(const dlc_pmi *pmi, const char *line, size_t length) {
    return dlc_write_all(pmi->fd, line, length) == length ? DLC_OK
                                                          : broken_pmi(strerror(errno));
}

static dlc_status wait_for_pmi(const dlc_pmi *pmi, uint64_t end) {
    int rc = dlc_wait_readable(pmi->fd, end);
    if (rc < 0)
        return broken_pmi(strerror(errno));
    return rc ? DLC_OK
              : dlc_fail(DLC_ERR_PEER,
                         "the ranks have not found each other through PMI within %g s "
                         "([parallel] rendezvous_timeout)",
                         pmi->timeout);
}

/* One byte at a time: what follows the line belongs to the next answer. */
static dlc_status read_pmi_line(dlc_pmi *pmi) {
    uint64_t end = dlc_awake_ns() + (uint64_t)(pmi->timeout * 1e9);
    for (size_t length = 0; length + 1 < sizeof pmi->line;) {
        DLC_TRY(wait_for_pmi(pmi, end));
        ssize_t got = read(pmi->fd, pmi->line + length, 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return broken_pmi(got ? strerror(errno) : "it has closed the connection");
        if (pmi->line[length] == '\n') {
            pmi->line[length] = '\0';
            return DLC_OK;
        }
        length++;
    }
    return broken_pmi("its line is too long");
}

/* The value of a key in the last answer, NUL-terminated in place; NULL if it is not
 * there. Call it once for an answer: what follows the value is cut off. */
static char *pmi_value_of(dlc_pmi *pmi, const char *key) {
    size_t length = strlen(key);
    for (char *at = pmi->line; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            char *value = at + length + 1;
            value[strcspn(value, " ")] = '\0';
            return value;
        }
    }
    return NULL;
}

/* Sends a request, and reads the answer that must be a `cmd` with rc=0, if it says rc.
 */
static dlc_status ask_pmi(dlc_pmi *pmi, const char *cmd, const char *request) {
    size_t length = strlen(cmd);
    DLC_TRY(send_pmi_line(pmi, request, strlen(request)));
    DLC_TRY(read_pmi_line(pmi));
    const char *failed = strstr(pmi->line, " rc=");
    if (strncmp(pmi->line, "cmd=", 4) != 0 ||
        strncmp(pmi->line + 4, cmd, length) != 0 ||
        (pmi->line[4 + length] && pmi->line[4 + length] != ' '))
        return broken_pmi("its answer is not the one expected");
    if (failed && strtol(failed + 4, NULL, 10) != 0)
        return dlc_fail(DLC_ERR_PEER, "the launcher refuses a request through PMI: %s",
                        pmi->line);
    return DLC_OK;
}

/* ---- Joining and leaving -------------------------------------------------------- */

static dlc_status join_pmi(dlc_pmi *pmi) {
    DLC_TRY(
        ask_pmi(pmi, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n"));
    DLC_TRY(ask_pmi(pmi, "my_kvsname", "cmd=get_my_kvsname\n"));
    const char *space = pmi_value_of(pmi, "kvsname");
    if (!space || strlen(space) >= sizeof pmi->space)
        return broken_pmi("it names no key-value space");
    (void)snprintf(pmi->space, sizeof pmi->space, "%s", space);
    return DLC_OK;
}

dlc_status dlc_pmi_open(double timeout, dlc_pmi *pmi) {
    static const char *const variables[] = {"PMI_FD", "PMI_RANK", "PMI_SIZE"};
    const char *text = getenv("PMI_FD");
    char *end = NULL;
    long fd = text ? strtol(text, &end, 10) : -1;
    *pmi = (dlc_pmi){.fd = -1, .timeout = timeout};
    if (fd < 3 || fd > 1 << 20 || *end || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "PMI_FD=%s in the environment is not an open descriptor: a "
                        "script between the launcher and dlcore must pass it on",
                        text ? text : "");
    pmi->fd = (int)fd;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return join_pmi(pmi);
}

dlc_status dlc_pmi_finalize(dlc_pmi *pmi) {
    return ask_pmi(pmi, "finalize_ack", "cmd=finalize\n");
}

void dlc_pmi_close(dlc_pmi *pmi) {
    dlc_close(&pmi->fd);
}

/* ---- Texts ---------------------------------------------------------------------- */

dlc_status dlc_pmi_put(dlc_pmi *pmi, const char *key, const char *value) {
    dlc_text request = {0};
    dlc_text_add(&request, "cmd=put kvsname=%s key=%s value=%s\n", pmi->space, key,
                 value);
    dlc_status status = dlc_text_status(&request);
    if (status == DLC_OK)
        status = ask_pmi(pmi, "put_result", request.bytes);
    dlc_text_free(&request);
    return status;
}

dlc_status dlc_pmi_barrier(dlc_pmi *pmi) {
    return ask_pmi(pmi, "barrier_out", "cmd=barrier_in\n");
}

dlc_status dlc_pmi_get(dlc_pmi *pmi, const char *key, char **value) {
    char request[DLC_PMI_LINE_MAX];
    (void)snprintf(request, sizeof request, "cmd=get kvsname=%s key=%s\n", pmi->space,
                   key);
    DLC_TRY(ask_pmi(pmi, "get_result", request));
    *value = pmi_value_of(pmi, "value");
    return *value ? DLC_OK : broken_pmi("it has no text of rank 0");
}
