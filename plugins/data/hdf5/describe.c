/* Asks libhdf5. Nothing else of this plugin calls it: the process of the job never
 * does, so that neither its locks nor its crashes matter there. */
#include "describe.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

enum { HEADER_MOST = 65536 }; /* what HDF5 stores in the header of a dataset */

/* A dataset that is open. */
typedef struct dataset {
    hid_t file, id, type, space, properties;
    description *to;
} dataset;

/* Writes all bytes; the reader looks at how many there are. */
static void send(int fd, const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t n = write(fd, (const char *)bytes + done, count - done);
        if (n <= 0)
            _exit(1);
        done += (size_t)n;
    }
}

static int refuse(description *to, const char *why) {
    to->result = REFUSED;
    (void)snprintf(to->reason, sizeof to->reason, "%s", why);
    return 0;
}

/* ---- Types and shapes ---------------------------------------------------------- */

static int describe_float(dataset *from, hid_t type) {
    array *of = &from->to->at.of;
    of->kind = NUMBER_FLOAT;
    if ((of->bytes == 4 &&
         (H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F32BE) > 0)) ||
        (of->bytes == 8 &&
         (H5Tequal(type, H5T_IEEE_F64LE) > 0 || H5Tequal(type, H5T_IEEE_F64BE) > 0)) ||
        (of->bytes == 2 && H5Tget_ebias(type) == 15))
        return 1;
    return refuse(from->to, "its floats are not those of IEEE 754");
}

static int describe_type(dataset *from, hid_t type) {
    array *of = &from->to->at.of;
    H5T_class_t kind = H5Tget_class(type);
    if (kind == H5T_ENUM) { /* as h5py stores bool */
        hid_t base = H5Tget_super(type);
        return base >= 0 && H5Tget_class(base) == H5T_INTEGER
                   ? describe_type(from, base)
                   : refuse(from->to, "it is not of numbers");
    }
    if (kind != H5T_INTEGER && kind != H5T_FLOAT)
        return refuse(from->to, "it is not of numbers");
    of->bytes = (int32_t)H5Tget_size(type);
    of->is_big_endian = H5Tget_order(type) == H5T_ORDER_BE;
    of->kind = H5Tget_sign(type) == H5T_SGN_NONE ? NUMBER_UNSIGNED : NUMBER_SIGNED;
    if (kind == H5T_FLOAT)
        return describe_float(from, type);
    return H5Tget_precision(type) == 8 * (size_t)of->bytes
               ? 1
               : refuse(from->to, "its numbers have unused bits");
}

static int describe_shape(dataset *from) {
    array *of = &from->to->at.of;
    hsize_t dims[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_ndims(from->space);
    if (rank < 1 || rank > ARRAY_RANK_MOST ||
        H5Sget_simple_extent_dims(from->space, dims, NULL) != rank)
        return refuse(from->to, "it is one number, or has too many dimensions");
    of->rank = rank;
    for (int i = 0; i < rank; i++)
        of->dims[i] = dims[i] > INT64_MAX ? -1 : (int64_t)dims[i];
    return 1;
}

/* ---- Where it is --------------------------------------------------------------- */

static int describe_filters(dataset *from) {
    layout *at = &from->to->at;
    int count = H5Pget_nfilters(from->properties);
    for (int i = 0; i < count; i++) {
        unsigned flags, values[1];
        size_t room = 0;
        char name[64] = "";
        H5Z_filter_t filter = H5Pget_filter2(from->properties, (unsigned)i, &flags,
                                             &room, values, sizeof name, name, NULL);
        if (i == FILTERS_MOST || filter < FILTER_DEFLATE || filter > FILTER_FLETCHER) {
            from->to->result = REFUSED;
            (void)snprintf(from->to->reason, sizeof from->to->reason,
                           "it is packed by a filter (%d, %.60s) that is not deflate; "
                           "h5repack -f GZIP=1 changes that",
                           (int)filter, name);
            return 0;
        }
        at->filter[at->filters++] = (int32_t)filter;
    }
    return 1;
}

static int describe_chunks(dataset *from) {
    layout *at = &from->to->at;
    hsize_t dims[H5S_MAX_RANK];
    at->kind = IN_CHUNKS;
    if (H5Pget_chunk(from->properties, H5S_MAX_RANK, dims) != at->of.rank)
        return refuse(from->to, "its chunks have another number of dimensions");
    at->chunks = 1;
    for (int32_t i = 0; i < at->of.rank; i++) {
        if (!dims[i] || dims[i] > INT32_MAX || at->of.dims[i] < 1)
            return refuse(from->to, "its chunks are empty or too large");
        at->chunk[i] = (int64_t)dims[i];
        int64_t count = (at->of.dims[i] - 1) / at->chunk[i] + 1;
        if (__builtin_mul_overflow(at->chunks, count, &at->chunks))
            return refuse(from->to, "it has too many chunks");
    }
    return 1;
}

/* Chunks that were never written are zeros, unless another value is set. */
static int describe_fill(dataset *from) {
    layout *at = &from->to->at;
    H5D_fill_value_t filling = H5D_FILL_VALUE_DEFAULT;
    int is_damaged = H5Pfill_value_defined(from->properties, &filling) < 0;
    if (filling == H5D_FILL_VALUE_USER_DEFINED)
        is_damaged |= at->of.bytes > (int32_t)sizeof at->fill ||
                      H5Pget_fill_value(from->properties, from->type, at->fill) < 0;
    return is_damaged ? refuse(from->to, "its fill value is damaged") : 1;
}

static int describe_place(dataset *from) {
    layout *at = &from->to->at;
    switch (H5Pget_layout(from->properties)) {
    case H5D_COMPACT:
        at->kind = IN_HEADER;
        return 1;
    case H5D_CHUNKED:
        return describe_chunks(from) && describe_filters(from) && describe_fill(from);
    case H5D_CONTIGUOUS: {
        haddr_t address = H5Dget_offset(from->id);
        if (H5Pget_external_count(from->properties) != 0)
            return refuse(from->to, "its numbers are in another file");
        if (address == HADDR_UNDEF || address > INT64_MAX)
            return refuse(from->to, "its numbers were never written");
        at->kind = IN_ONE_PIECE;
        at->address = (int64_t)address;
        return 1;
    }
    default:
        return refuse(from->to, "it is made of others (a virtual dataset)");
    }
}

/* A dataset may be a link to one in another file. */
static int is_in_file(const dataset *from) {
    char own[4096] = "", its[4096] = "";
    return H5Fget_name(from->file, own, sizeof own) > 0 &&
           H5Fget_name(from->id, its, sizeof its) > 0 && strcmp(own, its) == 0;
}

/* ---- Chunks and numbers -------------------------------------------------------- */

/* A chunk as libhdf5 describes it. */
typedef struct chunk {
    hsize_t first[ARRAY_RANK_MOST], bytes;
    haddr_t address;
    unsigned mask;
} chunk;

static chunk chunk_at(const dataset *from, int64_t i) {
    const layout *at = &from->to->at;
    chunk made = {.address = HADDR_UNDEF};
    for (int32_t d = at->of.rank; d-- > 0;) {
        int64_t count = (at->of.dims[d] - 1) / at->chunk[d] + 1;
        hsize_t number = (hsize_t)(i % count);
        made.first[d] = number * (hsize_t)at->chunk[d];
        i /= count;
    }
    if (H5Dget_chunk_info_by_coord(from->id, made.first, &made.mask, &made.address,
                                   &made.bytes) < 0)
        _exit(1);
    return made;
}

static int has_bytes(int file, const unsigned char *bytes, size_t count,
                     haddr_t address) {
    unsigned char piece[4096];
    for (size_t at = 0, more; at < count; at += more) {
        more = count - at < sizeof piece ? count - at : sizeof piece;
        if (pread(file, piece, more, (off_t)(address + at)) != (ssize_t)more ||
            memcmp(piece, bytes + at, more) != 0)
            return 0;
    }
    return 1;
}

/* The byte that the addresses of chunks count from: the first of the file, or, by some
 * versions of libhdf5, that behind a user block. Which of the two is seen by the bytes
 * of the first chunk that are not the same in both places. */
static hsize_t find_base(const dataset *from, const char *path) {
    hsize_t block = 0;
    hid_t properties = H5Fget_create_plist(from->file);
    if (H5Pget_userblock(properties, &block) < 0)
        _exit(1);
    int file = block ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    for (int64_t i = 0; block && i < from->to->at.chunks; i++) {
        chunk one = chunk_at(from, i);
        if (one.address == HADDR_UNDEF || one.bytes > UINT32_MAX)
            continue;
        unsigned char *bytes = malloc((size_t)one.bytes + 1);
        uint32_t mask = 0;
        if (!bytes || H5Dread_chunk(from->id, H5P_DEFAULT, one.first, &mask, bytes) < 0)
            _exit(1);
        int is_there = has_bytes(file, bytes, (size_t)one.bytes, one.address);
        int is_behind = has_bytes(file, bytes, (size_t)one.bytes, one.address + block);
        free(bytes);
        if (!is_there && !is_behind)
            _exit(1);
        if (is_there != is_behind)
            return is_behind ? block : 0;
    }
    return 0;
}

static void send_chunks(const dataset *from, const char *path, int fd) {
    hsize_t base = find_base(from, path);
    for (int64_t i = 0; i < from->to->at.chunks; i++) {
        chunk one = chunk_at(from, i);
        chunk_place place = {
            .address = -1, .bytes = (uint32_t)one.bytes, .mask = one.mask};
        if (one.address != HADDR_UNDEF) /* INT64_MAX is beyond any file */
            place.address = one.bytes && one.bytes <= UINT32_MAX &&
                                    one.address < INT64_MAX - base
                                ? (int64_t)(one.address + base)
                                : INT64_MAX;
        send(fd, &place, sizeof place);
    }
}

static void send_numbers(const dataset *from, int fd) {
    static unsigned char numbers[HEADER_MOST];
    const array *of = &from->to->at.of;
    if (!array_is_valid(of) || array_bytes(of) > HEADER_MOST ||
        H5Dread(from->id, from->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) < 0)
        _exit(1);
    send(fd, numbers, (size_t)array_bytes(of));
}

/* ---- All of it ----------------------------------------------------------------- */

static int open_dataset(const char *path, const char *name, dataset *from) {
    (void)setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1); /* nothing is written */
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    from->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (from->file < 0)
        return refuse(from->to, "libhdf5 cannot open it: it is no HDF5 file, or "
                                "damaged");
    if (H5Lexists(from->file, name, H5P_DEFAULT) <= 0 ||
        H5Oexists_by_name(from->file, name, H5P_DEFAULT) <= 0) {
        from->to->result = NOT_FOUND;
        return 0;
    }
    from->id = H5Dopen2(from->file, name, H5P_DEFAULT);
    if (from->id < 0)
        return refuse(from->to, "it is no dataset, or damaged");
    from->type = H5Dget_type(from->id);
    from->space = H5Dget_space(from->id);
    from->properties = H5Dget_create_plist(from->id);
    if (from->type < 0 || from->space < 0 || from->properties < 0)
        return refuse(from->to, "its header is damaged");
    if (!is_in_file(from))
        return refuse(from->to, "it is in another file");
    return 1;
}

_Noreturn void describe_dataset(const char *path, const char *name, int fd) {
    static description to;
    dataset from = {.to = &to};
    int is_described = open_dataset(path, name, &from) &&
                       describe_type(&from, from.type) && describe_shape(&from) &&
                       describe_place(&from);
    send(fd, &to, sizeof to);
    if (is_described && to.at.kind == IN_CHUNKS)
        send_chunks(&from, path, fd);
    else if (is_described && to.at.kind == IN_HEADER)
        send_numbers(&from, fd);
    _exit(0);
}
