/* Reading files: parts of any, and small ones such as those of /proc and /sys. */
#ifndef DLC_BASE_READ_H
#define DLC_BASE_READ_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads `bytes` bytes from byte `begin` on, in as many calls as it takes. Returns how
 * many there were; if fewer, errno is the error, or 0 where the file ends. Any thread;
 * moves no file offset. */
size_t dlc_read_at(int fd, void *into, size_t bytes, off_t begin);

/* The beginning of a file, as a text: up to `room` - 1 bytes. Returns how many there
 * are, 0 if the file cannot be read. */
size_t dlc_read_text(const char *path, char *text, size_t room);
/* Its first line, without the line break. Returns the length. */
size_t dlc_read_line(const char *path, char *line, size_t room);
/* The lines of a file, without memory of their own: a limit that is read cannot change
 * because memory has run out. */
enum { DLC_READ_LINE = 8192 };
typedef struct dlc_read_lines {
    int fd;
    size_t at, end;
    char bytes[DLC_READ_LINE + 1];
} dlc_read_lines;

/* Returns 0 if the file cannot be opened; else, close it with dlc_read_lines_close. */
int dlc_read_lines_open(const char *path, dlc_read_lines *lines);
/* The next line, without the line break, until the next call; NULL after the last. A
 * line of more than DLC_READ_LINE bytes comes as several. The caller may change it. */
char *dlc_read_lines_next(dlc_read_lines *lines);
void dlc_read_lines_close(dlc_read_lines *lines);

/* The bytes that a line near the beginning gives in kB, as in "MemTotal: 8 kB"; 0 if
 * there is none. */
uint64_t dlc_read_kilobytes(const char *path, const char *name);

#endif
