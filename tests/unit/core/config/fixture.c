/* Implements the fixture: files, option tables, captured reports. */
#include "fixture.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "support/scratch.h"

void folder_setup(void) {
    scratch_setup();
    ck_assert_int_eq(chdir(scratch_path("")), 0);
}

void folder_teardown(void) {
    ck_assert_int_eq(chdir("/"), 0);
    scratch_teardown();
    ck_assert_int_ne(access(scratch_path(""), F_OK), 0);
}

void write_bytes(const char *name, const void *bytes, size_t length) {
    /* Truncated after writing, not before: ext4 flushes a file that was emptied when it
     * is closed, and there are thousands of these. */
    int fd = open(name, O_WRONLY | O_CREAT, 0666);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    ck_assert_int_eq(ftruncate(fd, (off_t)length), 0);
    close(fd);
}

void write_text(const char *name, const char *text) {
    write_bytes(name, text, strlen(text));
}

const char *const reserved[] = {"net", "data", "data.test", "solver", "train", NULL};

const dlc_option core_table[] = {
    DLC_STRING("type", NULL, "What the layer does"),
    DLC_STRING("input", NULL, "Where it reads from"),
    DLC_OPTIONS_END,
};

const dlc_option layer_table[] = {
    DLC_INT("num_output", "10", 1, 65536, "Channels it writes"),
    DLC_FLOAT("ratio", "0.5", 0, 1, "Share that is dropped"),
    DLC_FLOAT("staleness", "0", 0, INFINITY, "Clocks that a read may lag"),
    DLC_BOOL("bias", "true", "Adds a number a channel"),
    DLC_STRING("note", NULL, "Anything"),
    DLC_CHOICE("pool", "max", "max|average|global_average", "How it sums up"),
    DLC_PATH("file", NULL, "Where it lies"),
    DLC_INTS("steps", "10, 20", 0, 1000, "Iterations at which the rate drops"),
    DLC_FLOATS("mean", NULL, -255, 255, "Subtracted, one a channel"),
    DLC_BYTES("bucket", "4M", 4096, 1e12, "Bytes exchanged at once"),
    DLC_FILLER("weight_filler", "xavier", "How the weights start"),
    DLC_OPTIONS_END,
};

const dlc_option solver_table[] = {
    DLC_OPTION("base_lr", DLC_OPT_FLOAT, DLC_OPT_REQUIRED, NULL, 0, INFINITY, NULL,
               "Learning rate at the start"),
    DLC_INT("seed", "1", -INFINITY, INFINITY, "Start of the random numbers"),
    DLC_OPTIONS_END,
};

dlc_status check_net(const char *const *sets, size_t nsets, dlc_problems *problems) {
    dlc_config *config = NULL;
    dlc_status rc = dlc_config_load("net.ini", reserved, sets, nsets, problems,
                                    &config);
    if (rc != DLC_OK)
        return rc;
    const dlc_option *const layer[] = {core_table, layer_table};
    const dlc_option *const solver[] = {solver_table};
    for (const dlc_section *section = NULL;
         rc == DLC_OK && (section = dlc_config_next(config, section));) {
        const char *name = dlc_section_name(section);
        int is_solver = strcmp(name, "solver") == 0;
        dlc_settings *settings = NULL;
        rc = dlc_settings_make(config, name, is_solver ? solver : layer,
                               is_solver ? 1 : 2, problems, &settings);
        dlc_settings_free(settings);
    }
    dlc_config_free(config);
    return rc;
}

dlc_status report(dlc_problems *problems, char *lines, size_t room) {
    int kept = dup(STDERR_FILENO), memory = memfd_create("stderr", 0);
    ck_assert_int_ge(kept, 0);
    ck_assert_int_ge(memory, 0);
    ck_assert_int_eq(dup2(memory, STDERR_FILENO), STDERR_FILENO);
    dlc_status rc = dlc_problems_report(problems);
    ck_assert_int_eq(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    ssize_t length = pread(memory, lines, room - 1, 0);
    ck_assert_int_ge(length, 0);
    lines[length] = '\0';
    close(memory);
    close(kept);
    return rc;
}

void check_report(dlc_problems *problems, const char *what, const char *place,
                  const char *phrase) {
    char lines[4096], start[64];
    ck_assert_msg(problems->errors == 1, "%s: %zu mistakes", what, problems->errors);
    dlc_status rc = report(problems, lines, sizeof lines);
    ck_assert_int_eq(rc, DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "1 mistake in net.ini");
    snprintf(start, sizeof start, "error: %s: ", place);
    ck_assert_msg(strncmp(lines, start, strlen(start)) == 0, "%s: %s", what, lines);
    ck_assert_msg(strstr(lines, phrase) != NULL, "%s: %s", what, lines);
    ck_assert_msg(strchr(lines, '\n') == lines + strlen(lines) - 1, "%s: %s", what,
                  lines);
}
