/* Reports calls of exit() by others than the command itself. */
#include "base/exit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

static int forbidden;

static void report(int code, void *context) {
    (void)context;
    if (!forbidden)
        return;
    dlc_error("a plugin, or a library that it uses, has called exit(%d), which ends "
              "this process before its work is done; a plugin must return an error "
              "instead",
              code);
    (void)fflush(stdout);
    _exit(code ? code : 1);
}

void dlc_exit_forbid(void) {
    static int registered;
    forbidden = 1;
    if (!registered)
        registered = on_exit(report, NULL) == 0;
}

void dlc_exit_allow(void) {
    forbidden = 0;
}
