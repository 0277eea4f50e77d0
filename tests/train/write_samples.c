/* Writes images and labels as Caffe's tools do, with the libraries of the formats:
 *
 *     write_samples lmdb|hdf5 IMAGES LABELS CHANNELS HEIGHT WIDTH OUT
 *
 * IMAGES and LABELS are files of bytes. For scripts, which have no such libraries. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>
#include <lmdb.h>

/* All samples. */
typedef struct samples {
    unsigned char *images, *labels;
    size_t count, bytes; /* bytes of an image */
    unsigned channels, height, width;
} samples;

_Noreturn static void fail(const char *what) {
    (void)fprintf(stderr, "write_samples: %s\n", what);
    exit(1);
}

static void require(int is_good, const char *what) {
    if (!is_good)
        fail(what);
}

static unsigned char *read_file(const char *path, size_t *bytes) {
    FILE *from = fopen(path, "rb");
    require(from && fseek(from, 0, SEEK_END) == 0, path);
    long size = ftell(from);
    require(size > 0, path);
    rewind(from);
    unsigned char *made = malloc((size_t)size);
    require(made && fread(made, 1, (size_t)size, from) == (size_t)size, path);
    (void)fclose(from);
    *bytes = (size_t)size;
    return made;
}

/* ---- LMDB ---------------------------------------------------------------------- */

static unsigned char *put_varint(unsigned char *to, uint64_t number) {
    for (; number > 127; number >>= 7)
        *to++ = (unsigned char)(number | 128);
    *to++ = (unsigned char)number;
    return to;
}

static unsigned char *put_number(unsigned char *to, unsigned field, uint64_t number) {
    return put_varint(put_varint(to, (uint64_t)field << 3), number);
}

/* A Datum: its fields are those of caffe.proto. */
static size_t make_datum(const samples *from, size_t i, unsigned char *datum) {
    unsigned char *at = put_number(datum, 1, from->channels);
    at = put_number(at, 2, from->height);
    at = put_number(at, 3, from->width);
    at = put_varint(put_varint(at, 4 << 3 | 2), from->bytes);
    memcpy(at, from->images + i * from->bytes, from->bytes);
    at = put_number(at + from->bytes, 5, from->labels[i]);
    return (size_t)(at - datum);
}

static void write_lmdb(const samples *from, const char *path) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    unsigned char *datum = malloc(from->bytes + 100);
    require(datum && mdb_env_create(&env) == 0, "no memory");
    require(mdb_env_set_mapsize(env, (size_t)1 << 30) == 0, "mdb_env_set_mapsize");
    require(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOLOCK, 0666) == 0,
            "mdb_env_open");
    require(mdb_txn_begin(env, NULL, 0, &txn) == 0, "mdb_txn_begin");
    require(mdb_dbi_open(txn, NULL, 0, &dbi) == 0, "mdb_dbi_open");
    for (size_t i = 0; i < from->count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%08zu", i);
        MDB_val k = {8, key}, v = {make_datum(from, i, datum), datum};
        require(mdb_put(txn, dbi, &k, &v, 0) == 0, "mdb_put");
    }
    require(mdb_txn_commit(txn) == 0, "mdb_txn_commit");
    mdb_env_close(env);
    free(datum);
}

/* ---- HDF5 ---------------------------------------------------------------------- */

static void put_dataset(hid_t file, const char *name, hid_t type, int rank,
                        const hsize_t *dims, const void *data, hid_t properties) {
    hid_t space = H5Screate_simple(rank, dims, NULL);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties,
                           H5P_DEFAULT);
    require(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0, name);
    H5Dclose(set);
    H5Sclose(space);
}

/* "data" in one piece, "packed" in chunks, and "label" as floats. */
static void write_hdf5(const samples *from, const char *path) {
    hsize_t dims[] = {from->count, from->channels, from->height, from->width};
    hsize_t chunk[] = {from->count < 16 ? from->count : 16, from->channels,
                       from->height, from->width};
    float *labels = malloc(from->count * sizeof *labels);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t packed = H5Pcreate(H5P_DATASET_CREATE);
    require(labels && file >= 0, path);
    for (size_t i = 0; i < from->count; i++)
        labels[i] = from->labels[i];
    H5Pset_chunk(packed, 4, chunk);
    H5Pset_shuffle(packed);
    H5Pset_deflate(packed, 6);
    put_dataset(file, "data", H5T_NATIVE_UINT8, 4, dims, from->images, H5P_DEFAULT);
    put_dataset(file, "packed", H5T_NATIVE_UINT8, 4, dims, from->images, packed);
    put_dataset(file, "label", H5T_NATIVE_FLOAT, 1, dims, labels, H5P_DEFAULT);
    H5Pclose(packed);
    require(H5Fclose(file) >= 0, path);
    free(labels);
}

int main(int argc, char **argv) {
    samples from = {0};
    size_t all;
    require(argc == 8, "usage: write_samples lmdb|hdf5 IMAGES LABELS CHANNELS HEIGHT "
                       "WIDTH OUT");
    from.images = read_file(argv[2], &all);
    from.labels = read_file(argv[3], &from.count);
    from.channels = (unsigned)atoi(argv[4]);
    from.height = (unsigned)atoi(argv[5]);
    from.width = (unsigned)atoi(argv[6]);
    from.bytes = (size_t)from.channels * from.height * from.width;
    require(from.bytes * from.count == all, "the images have another size");
    if (strcmp(argv[1], "lmdb") == 0)
        write_lmdb(&from, argv[7]);
    else
        write_hdf5(&from, argv[7]);
    free(from.images);
    free(from.labels);
    return 0;
}
