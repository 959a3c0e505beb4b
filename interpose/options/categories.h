/*
 * What instructions do, by their opcodes.
 */
#ifndef TT_OPTIONS_CATEGORIES_H
#define TT_OPTIONS_CATEGORIES_H

enum language { LANGUAGE_PTX, LANGUAGE_SASS };

/* In the order of the words of TT_INSTRUMENT_CATEGORY. */
enum category { CATEGORY_MEMORY, CATEGORY_SYNC, CATEGORY_CONTROL, CATEGORY_MMA, CATEGORY_TMA, CATEGORY_OTHER };

/* opcode: with its modifiers or without, such as "ld.global.f32" or "LDG". */
enum category category_of(enum language language, const char *opcode);

#endif
