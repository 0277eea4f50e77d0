/* Which operations a feature of each kind must have. Called by check.c and scan.c. */
#ifndef DLC_PLUGIN_CALLS_H
#define DLC_PLUGIN_CALLS_H

#include <dlcore/plugin.h>

/* The name of the first required operation that the feature's table lacks; NULL if
 * none. The kind must be known and ops not NULL. */
const char *dlc_calls_missing(const dlc_feature *feature);

/* DLC_OFFERS_ bits: the optional calls that the feature has, which lacks no required
 * one. */
uint32_t dlc_calls_offered(const dlc_feature *feature);

#endif
