/* A number that ranks compare before they train together: of the net and of every
 * setting that must be the same for all. What says where things are, or how fast and
 * loud a rank works, may differ. */
#include <string.h>
#include <xxhash.h>

#include "train/setup.h"

/* Keys of [train] and [parallel]. */
static const char *const own_matter[] = {
    "threads", "bind",         "device",   "display",            "ranks",
    "run_dir", "hang_timeout", "keep",     "rendezvous_timeout", "checkpoint_minutes",
    "overcommit"};

static int may_differ(const char *section, const char *key) {
    if (strcmp(section, "train") != 0 && strcmp(section, "parallel") != 0)
        return 0;
    for (size_t i = 0; i < sizeof own_matter / sizeof *own_matter; i++)
        if (strcmp(key, own_matter[i]) == 0)
            return 1;
    return 0;
}

static void add_text(XXH64_state_t *hash, const char *text) {
    XXH64_update(hash, text, strlen(text) + 1);
}

uint64_t dlc_setup_digest(const dlc_setup *setup) {
    XXH64_state_t hash;
    XXH64_reset(&hash, 0);
    for (const dlc_section *section = NULL;
         (section = dlc_config_next(setup->config, section));) {
        const char *name = dlc_section_name(section), *key;
        add_text(&hash, name);
        for (size_t i = 0; (key = dlc_section_key(section, i)); i++) {
            if (may_differ(name, key))
                continue;
            add_text(&hash, key);
            add_text(&hash, dlc_section_value(section, key));
        }
    }
    return XXH64_digest(&hash);
}
