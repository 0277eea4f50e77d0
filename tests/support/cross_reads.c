/* Reading another process's memory (UCX's CMA does), past AddressSanitizer: its own
 * version of these calls, as of gcc 14, looks at addresses of the other process as if
 * they were this one's, and crashes. Programs that have this file go straight to the
 * kernel. */
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
                         const struct iovec *remote, unsigned long remotes,
                         unsigned long flags) {
    return syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
                          const struct iovec *remote, unsigned long remotes,
                          unsigned long flags) {
    return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}
