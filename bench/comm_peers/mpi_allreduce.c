/* A peer of bench/comm.py: MPI_Allreduce, in place, float32, size by size. A line of
 * JSON each, from rank 0. Measured as `dlcore bench comm` does: many operations without
 * a pause, the mean of the slowest rank.
 *
 *     mpicc -O3 -o mpi_allreduce mpi_allreduce.c
 *     mpirun -n 2 ./mpi_allreduce SECONDS BYTES...
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reduce(float *buffer, int count) {
    MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Seconds of one operation, on the slowest rank. */
static double block(float *buffer, int count, long iterations) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++)
        reduce(buffer, count);
    double mine = (MPI_Wtime() - start) / (double)iterations, most = 0;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void measure(size_t bytes, double seconds, int rank) {
    float *buffer = malloc(bytes);
    int count = (int)(bytes / sizeof *buffer);
    long iterations = 1;
    double each = 0;
    if (!buffer)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(buffer, 0, bytes);
    for (;; iterations *= 4) {
        each = block(buffer, count, iterations);
        if (each * (double)iterations >= seconds / 4)
            break;
    }
    iterations = (long)(seconds / each);
    iterations = iterations < 3 ? 3 : iterations;
    each = block(buffer, count, iterations);
    if (rank == 0)
        printf("{\"bytes\": %zu, \"us\": %.4f}\n", bytes, each * 1e6);
    fflush(stdout);
    free(buffer);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 2; i < argc; i++)
        measure((size_t)strtoull(argv[i], NULL, 10) / 4 * 4, atof(argv[1]), rank);
    MPI_Finalize();
    return 0;
}
