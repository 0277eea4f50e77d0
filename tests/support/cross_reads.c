/* Replaces the calls that read another process's memory (UCX's CMA uses them) in builds
 * with AddressSanitizer: its own versions, as of gcc 14, check addresses of the other
 * process as if they were this one's, and crash. Programs that link this file call the
 * kernel directly. */
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
