/* NCCL's calls, resolved at run time: the library is loaded when a job asks for this
 * transport, and not with the plugin. */
#ifndef NCCL_LIBRARY_H
#define NCCL_LIBRARY_H

#include <nccl.h>

#include <dlcore/plugin.h>

#define NCCL_CALLS(X) \
    X(GetVersion) \
    X(GetUniqueId) \
    X(CommInitRankConfig) \
    X(CommFinalize) \
    X(CommDestroy) \
    X(CommAbort) \
    X(CommGetAsyncError) \
    X(GetErrorString) \
    X(GetLastError) \
    X(AllReduce) \
    X(ReduceScatter) \
    X(AllGather) \
    X(Reduce) \
    X(Broadcast) \
    X(Send) \
    X(Recv) \
    X(GroupStart) \
    X(GroupEnd)

typedef struct nccl_calls {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes none */
#define X(name) __typeof__(&nccl##name) name;
    NCCL_CALLS(X)
#undef X
    /* From NCCL 2.19 on; NULL before. */
    __typeof__(&ncclCommRegister) CommRegister;
    __typeof__(&ncclCommDeregister) CommDeregister;
} nccl_calls;

extern nccl_calls nccl;

/* Loads NCCL and resolves its calls; must precede them. Any thread; cheap after the
 * first time. Returns NULL, or why NCCL cannot be used here. */
const char *library_open(void);
/* The version, "2.28.9"; valid after library_open. */
const char *library_version(void);

#endif
