/* Text for people's eyes: what could command a terminal, hide or turn text around is
 * written as an escape. Names and values come from files, paths and the environment, so
 * whatever prints them does it through here: the log, and both streams of the command.
 */
#ifndef DLC_BASE_HUMAN_H
#define DLC_BASE_HUMAN_H

#include <stddef.h>
#include <stdint.h>

/* The character of UTF-8 at `text`, of which `length` bytes are there (1 or more): its
 * bytes, 1 to 4, and its code. Where there is none, 1 and a code of UINT32_MAX; where
 * it may become one with more bytes, 0. */
size_t dlc_utf8_next(const char *text, size_t length, uint32_t *code);

/* Is it a letter, or something else that stays where it stands? Not: control characters
 * (C0, DEL, C1), and those that order text (bidirectional controls) or break lines. */
int dlc_is_printable(uint32_t code);

/* Room for the longest escape, with its NUL. */
#define DLC_ESCAPE_BYTES 11

/* How one character, or one byte that is none (code UINT32_MAX), is shown: as it is, or
 * "\n", "\x1b", "\u202e". Returns the length. */
size_t dlc_human_char(char shown[DLC_ESCAPE_BYTES], const char *text, size_t bytes,
                      uint32_t code);

/* All of `text`, cut to what fits into `room` bytes with the NUL; newlines stay if
 * `lines`. Returns the length. */
size_t dlc_human_text(char *shown, size_t room, const char *text, int lines);

#endif
