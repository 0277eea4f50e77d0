/* An NCCL from before communicators that do not block. */
__attribute__((visibility("default"))) int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    *version = 21304;
    return 0;
}
