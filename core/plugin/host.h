/* The services that every plugin is handed when it is loaded. */
#ifndef DLC_PLUGIN_HOST_H
#define DLC_PLUGIN_HOST_H

#include <dlcore/plugin.h>

/* One table a process, constant; never NULL. */
const dlc_host *dlc_host_services(void);

#endif
