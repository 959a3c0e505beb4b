/*
 * Which instructions are traced, and with which kinds of records.
 */
#ifndef TT_INSTRUMENT_PLAN_H
#define TT_INSTRUMENT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options/categories.h"

/*
 * The kinds of records that the options ask for at an instruction, as bits 1 << enum tt_trace_kind. opcode: with its
 * modifiers, such as "ld.global.f32" or "LDG.E". number: as in tt_trace_record.
 */
uint8_t plan_kinds(enum language language, const char *opcode, uint64_t number);

/*
 * The same for each line of a PTX text, from 1 on, of any of its statements; 0 where there is none. The caller frees
 * it. NULL: no memory.
 */
uint8_t *plan_lines(const char *text, size_t size, uint32_t *count);

/* Whether machine code of our own records on a GPU, and not the Sanitizer API. */
bool plan_patches(void);

/* The kinds that the options ask for. */
uint32_t plan_asked(void);

#endif
