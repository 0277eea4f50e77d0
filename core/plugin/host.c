/* The table of services, made of functions of base and config. */
#include "plugin/host.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"

static void *host_alloc(size_t bytes) {
    return dlc_alloc(bytes, 1);
}

static const dlc_host host = {
    .size = sizeof(dlc_host),
    .abi_minor = DLC_ABI_MINOR,
    .log = dlc_log,
    .fail = dlc_fail,
    .alloc = host_alloc,
    .free = dlc_free,
    .get_int = dlc_settings_get_int,
    .get_float = dlc_settings_get_float,
    .get_bool = dlc_settings_get_bool,
    .get_string = dlc_settings_get_string,
    .get_ints = dlc_settings_get_ints,
    .get_floats = dlc_settings_get_floats,
    .is_set = dlc_settings_is_set,
    .where = dlc_settings_where,
    .now_ns = dlc_now_ns,
};

const dlc_host *dlc_host_services(void) {
    return &host;
}
