/* The services that every plugin gets when it is loaded. Called by object.c. */
#ifndef DLC_PLUGIN_HOST_H
#define DLC_PLUGIN_HOST_H

#include <dlcore/plugin.h>

/* The table of services: one per process, constant, never NULL. */
const dlc_host *dlc_host_services(void);

#endif
