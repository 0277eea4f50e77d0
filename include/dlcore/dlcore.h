/* The whole SDK in one header. A plugin may include just the header of its kind. */
#ifndef DLCORE_DLCORE_H
#define DLCORE_DLCORE_H

#include <dlcore/consistency.h>
#include <dlcore/data.h>
#include <dlcore/decoder.h>
#include <dlcore/device.h>
#include <dlcore/layer.h>
#include <dlcore/plugin.h>
#include <dlcore/rule.h>
#include <dlcore/solver.h>
#include <dlcore/status.h>
#include <dlcore/tensor.h>
#include <dlcore/transport.h>

#endif
