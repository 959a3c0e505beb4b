/*
 * Layouts of CPython's structures. See python_layout.h for the invariant.
 *
 * Up to 3.12 they follow CPython's headers (pystate.h, frameobject.h, pycore_frame.h, code.h,
 * unicodeobject.h). From 3.13 on the interpreter has a table for debuggers at the beginning of
 * _PyRuntime (struct _Py_DebugOffsets). The offsets of the members within this table differ by
 * version.
 */
#define _GNU_SOURCE
#include "callstack/python_layout.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* ---- versions without a table ---- */

static const struct fixed {
	int minor;
	struct python_layout layout;
} fixed[] = {
	{10, {.frame = 24, .indirect = NOWHERE, .evaluation = 48, .outer = 8, .code = 32, .previous = 24, .instruction = 96,
	      .owner = NOWHERE, .entry = NOWHERE, .first_line = 40, .file = 104, .name = 112, .lines = 120,
	      .bytes = NOWHERE, .text = 48}},
	{11, {.frame = 56, .indirect = 8, .evaluation = 56, .outer = 16, .code = 32, .previous = 48, .instruction = 56,
	      .owner = NOWHERE, .entry = 68, .first_line = 72, .file = 112, .name = 128, .lines = 136, .bytes = 184,
	      .text = 48}},
	{12, {.frame = 56, .indirect = 0, .evaluation = NOWHERE, .outer = NOWHERE, .code = 0, .previous = 8, .instruction = 56,
	      .owner = 70, .entry = NOWHERE, .first_line = 68, .file = 112, .name = 128, .lines = 136, .bytes = 192,
	      .text = 40}},
};

static bool find_fixed(int minor, struct python_layout *layout)
{
	for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++) {
		if (fixed[i].minor != minor)
			continue;
		*layout = fixed[i].layout;
		layout->bytecode = layout->copies = NOWHERE;
		layout->type = 8;
		layout->text_length = layout->bytes_length = 16;
		layout->bytes_held = 32;
		return true;
	}
	return false;
}

/* ---- versions with a table ---- */

#define COOKIE "xdebugpy"
#define LARGEST 4096 /* larger than all structures that matter */

/*
 * The table's members, 8 bytes each: cookie, version, whether it is a free-threaded build, then those of
 * structures.
 */
enum { COOKIE_AT, VERSION_AT, FREE_AT };
enum { STRUCTURE_SIZE };
enum { FRAME_PREVIOUS = 1, FRAME_CODE, FRAME_INSTRUCTION, FRAME_LOCALS, FRAME_OWNER, FRAME_BYTECODE = 7 };
enum { CODE_FILE = 1, CODE_NAME = 3, CODE_LINES, CODE_FIRST_LINE, CODE_BYTES = 9, CODE_COPIES };
enum { OBJECT_TYPE = 1 };
enum { BYTES_LENGTH = 1, BYTES_HELD };
enum { TEXT_LENGTH = 2, TEXT_ASCII };

/* The index of the innermost frame's member, and the first index of each structure. */
static const struct tabled {
	int minor;
	uint16_t current, frame, code, object, bytes, text;
	bool copies; /* the tables have the copies of bytecode */
} tabled[] = {
	{13, 23, 28, 34, 44, 64, 67, false},
	{14, 26, 31, 39, 50, 74, 77, true},
	{15, 26, 39, 47, 58, 86, 89, true},
};

/* The size of a type's objects from the type itself: after the header of an object of variable size, and a name. */
static uint64_t size_of(const char *type, const uint64_t *object)
{
	uint64_t size;

	memcpy(&size, type + object[STRUCTURE_SIZE] + 16, sizeof(size));
	return size;
}

static bool is_right(const uint64_t *table, const struct tabled *t)
{
	const uint64_t *frame = table + t->frame, *code = table + t->code, *object = table + t->object,
		       *bytes = table + t->bytes, *text = table + t->text;
	const char *code_type = dlsym(RTLD_DEFAULT, "PyCode_Type"), *bytes_type = dlsym(RTLD_DEFAULT, "PyBytes_Type"),
		   *text_type = dlsym(RTLD_DEFAULT, "PyUnicode_Type");

	if (object[OBJECT_TYPE] + 8 != object[STRUCTURE_SIZE] || object[STRUCTURE_SIZE] > 64 ||
	    table[t->current] >= LARGEST || frame[STRUCTURE_SIZE] >= LARGEST || code[STRUCTURE_SIZE] >= LARGEST ||
	    frame[FRAME_LOCALS] + 8 != frame[STRUCTURE_SIZE] || text[TEXT_ASCII] > text[STRUCTURE_SIZE])
		return false;
	for (int i = FRAME_PREVIOUS; i <= (t->copies ? FRAME_BYTECODE : FRAME_OWNER); i++)
		if (frame[i] >= frame[STRUCTURE_SIZE])
			return false;
	for (int i = CODE_FILE; i <= (t->copies ? CODE_COPIES : CODE_BYTES); i++)
		if (code[i] >= code[STRUCTURE_SIZE])
			return false;
	return code_type && bytes_type && text_type && size_of(code_type, object) == code[CODE_BYTES] &&
	       size_of(bytes_type, object) == bytes[BYTES_HELD] + 1 &&
	       size_of(text_type, object) == text[STRUCTURE_SIZE];
}

static struct python_layout tabled_layout(const uint64_t *table, const struct tabled *t)
{
	const uint64_t *frame = table + t->frame, *code = table + t->code;
	bool copies = table[FREE_AT] && t->copies;

	return (struct python_layout){
		.frame = (uint16_t)table[t->current], .indirect = NOWHERE, .evaluation = NOWHERE, .outer = NOWHERE,
		.code = (uint16_t)frame[FRAME_CODE], .previous = (uint16_t)frame[FRAME_PREVIOUS],
		.instruction = (uint16_t)frame[FRAME_INSTRUCTION], .owner = (uint16_t)frame[FRAME_OWNER], .entry = NOWHERE,
		.bytecode = copies ? (uint16_t)frame[FRAME_BYTECODE] : NOWHERE,
		.first_line = (uint16_t)code[CODE_FIRST_LINE], .file = (uint16_t)code[CODE_FILE],
		.name = (uint16_t)code[CODE_NAME], .lines = (uint16_t)code[CODE_LINES],
		.bytes = (uint16_t)code[CODE_BYTES], .copies = copies ? (uint16_t)code[CODE_COPIES] : NOWHERE,
		.type = (uint16_t)table[t->object + OBJECT_TYPE],
		.text_length = (uint16_t)table[t->text + TEXT_LENGTH], .text = (uint16_t)table[t->text + TEXT_ASCII],
		.bytes_length = (uint16_t)table[t->bytes + BYTES_LENGTH],
		.bytes_held = (uint16_t)table[t->bytes + BYTES_HELD],
	};
}

static bool find_tabled(int minor, struct python_layout *layout)
{
	const uint64_t *table = dlsym(RTLD_DEFAULT, "_PyRuntime");

	if (!table || memcmp(&table[COOKIE_AT], COOKIE, 8) || table[VERSION_AT] >> 16 != (3 << 8 | (uint64_t)minor))
		return false;
	for (size_t i = 0; i < sizeof(tabled) / sizeof(*tabled); i++)
		if (tabled[i].minor == minor && is_right(table, &tabled[i])) {
			*layout = tabled_layout(table, &tabled[i]);
			return true;
		}
	return false;
}

bool python_layout_find(int minor, struct python_layout *layout)
{
	return find_fixed(minor, layout) || find_tabled(minor, layout);
}
