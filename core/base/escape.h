/* Escapes text for terminals: characters that could command a terminal, hide or reorder
 * text are written as escapes. Names and values come from files, paths and the
 * environment, so everything that prints them goes through here: the log, and both
 * streams of the command. */
#ifndef DLC_BASE_ESCAPE_H
#define DLC_BASE_ESCAPE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the UTF-8 character at `text`, of which `length` bytes (1 or more) are there:
 * returns its size, 1 to 4, and its code. 1 and UINT32_MAX for an invalid byte; 0 if
 * the sequence is incomplete. */
size_t dlc_utf8_next(const char *text, size_t length, uint32_t *code);

/* Whether a character is safe to print. Not safe: control characters (C0, DEL, C1),
 * bidirectional controls, line separators and invisible characters. */
int dlc_is_printable(uint32_t code);

/* The size of the longest escape, with its NUL. */
#define DLC_ESCAPE_BYTES 11

/* Writes one character, or one invalid byte (code UINT32_MAX): unchanged, or as "\n",
 * "\x1b", "\u202e". Returns the length. */
size_t dlc_escape_char(char shown[DLC_ESCAPE_BYTES], const char *text, size_t bytes,
                       uint32_t code);

/* Escapes all of `text`, cut to `room` bytes with the NUL; newlines are kept if
 * `lines`. Returns the length. */
size_t dlc_escape_text(char *shown, size_t room, const char *text, int lines);

/* As vsnprintf, but NaN has no sign, which it gets from arithmetic on some machines.
 * Every message is made with it; the text may be shorter than the result says. */
int dlc_print(char *to, size_t room, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

#endif
