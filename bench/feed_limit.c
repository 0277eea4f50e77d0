/* The limits of a feed on this machine, in the turns that bench/feed.py asks for
 * (turns.h): whole JPEG files decoded by libjpeg-turbo, and records copied in memory.
 *
 *     echo 5 | feed_limit jpeg THREADS LIST        files, one a line
 *     echo 5 | feed_limit copy THREADS RECORD BATCH
 *                                                  bytes of a record, records of a
 * batch
 *
 * cc -O2 -pthread bench/feed_limit.c -o feed_limit -ljpeg
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "turns.h"

enum { THREADS_MOST = 64, BATCHES = 4 /* of each thread; the feed has as many */ };

typedef struct work {
    int is_copy;
    double seconds;
    atomic_long next, done;
    /* jpeg */
    char **path;
    long paths;
    /* copy: records of `bytes` in a block that is larger than any cache, to batches */
    unsigned char *from;
    size_t bytes, records, batch;
} work;

typedef struct buffers {
    unsigned char *file, *pixels;
    size_t file_room, pixel_room;
} buffers;

static void *grow(void *memory, size_t *room, size_t bytes) {
    if (*room >= bytes)
        return memory;
    *room = bytes + bytes / 4;
    free(memory);
    memory = malloc(*room);
    if (!memory)
        abort();
    return memory;
}

static size_t read_file(const char *path, buffers *b) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        perror(path);
        exit(1);
    }
    size_t bytes = (size_t)info.st_size;
    b->file = grow(b->file, &b->file_room, bytes);
    if (read(fd, b->file, bytes) != (ssize_t)bytes) {
        perror(path);
        exit(1);
    }
    close(fd);
    return bytes;
}

static void decode_file(const char *path, buffers *b) {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors; /* whose default ends the program */
    size_t bytes = read_file(path, b);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, b->file, (unsigned long)bytes);
    (void)jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(&jpeg);
    size_t row = 3 * (size_t)jpeg.output_width;
    b->pixels = grow(b->pixels, &b->pixel_room, row * jpeg.output_height);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW to = b->pixels + row * jpeg.output_scanline;
        (void)jpeg_read_scanlines(&jpeg, &to, 1);
    }
    (void)jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
}

/* Copies records from all over the block, to the next of a few batches. */
static void copy_batch(const work *w, long batch, buffers *b) {
    size_t batch_bytes = w->bytes * w->batch;
    b->pixels = grow(b->pixels, &b->pixel_room, BATCHES * batch_bytes);
    unsigned char *to = b->pixels + (size_t)(batch % BATCHES) * batch_bytes;
    for (size_t i = 0; i < w->batch; i++, to += w->bytes) {
        uint64_t number = (uint64_t)batch * w->batch + i;
        size_t record = (size_t)(number * 2654435761u % w->records);
        memcpy(to, w->from + record * w->bytes, w->bytes);
    }
}

static void *run(void *argument) {
    work *w = argument;
    buffers b = {0};
    double end = wall_seconds() + w->seconds;
    while (wall_seconds() < end) {
        long i = atomic_fetch_add(&w->next, 1);
        if (w->is_copy)
            copy_batch(w, i, &b);
        else
            decode_file(w->path[i % w->paths], &b);
        atomic_fetch_add(&w->done, w->is_copy ? (long)w->batch : 1);
    }
    free(b.file);
    free(b.pixels);
    return NULL;
}

static void take_turn(work *w, int threads) {
    pthread_t thread[THREADS_MOST];
    turn t = turn_begin();
    atomic_store(&w->done, 0);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, run, w) != 0)
            abort();
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    turn_end(&t, atomic_load(&w->done));
}

static void open_list(work *w, const char *list) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    FILE *file = fopen(list, "re");
    if (!file) {
        perror(list);
        exit(1);
    }
    while ((length = getline(&line, &room, file)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        w->path = realloc(w->path, (size_t)(w->paths + 1) * sizeof *w->path);
        if (!w->path)
            abort();
        w->path[w->paths++] = strdup(line);
    }
    free(line);
    fclose(file);
}

static void open_records(work *w, size_t bytes, size_t batch) {
    const size_t block = (size_t)256 << 20;
    w->is_copy = 1;
    w->bytes = bytes;
    w->batch = batch;
    w->records = block / bytes;
    w->from = malloc(block);
    if (!w->from || !w->records)
        abort();
    for (size_t i = 0; i < block; i++)
        w->from[i] = (unsigned char)(i * 2654435761u >> 24);
}

static int usage(void) {
    fprintf(stderr, "usage: feed_limit jpeg THREADS LIST\n"
                    "       feed_limit copy THREADS RECORD BATCH\n");
    return 2;
}

int main(int argc, char **argv) {
    int threads = argc >= 4 ? atoi(argv[2]) : 0;
    int is_copy = argc == 5 && strcmp(argv[1], "copy") == 0;
    if (threads < 1 || threads > THREADS_MOST || (!is_copy && argc != 4))
        return usage();
    work w = {0};
    if (is_copy)
        open_records(&w, strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    else
        open_list(&w, argv[3]);
    printf("ready\n");
    fflush(stdout);
    while (turn_wait(&w.seconds))
        take_turn(&w, threads);
    return 0;
}
