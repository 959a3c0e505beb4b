/*
 * Python frames. See python.h. The structures are those of CPython's headers (frameobject.h,
 * pycore_frame.h, code.h, unicodeobject.h), the line tables those of Objects/lnotab_notes.txt for
 * 3.10 and Objects/locations.md from 3.11 on.
 */
#define _GNU_SOURCE
#include "python.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define NOWHERE UINT16_MAX
#define OWNED_BY_C 3 /* frames that stand for a call from C, and have no code of their own */

/* Offsets, by minor version. */
static const struct layout {
	int minor;
	uint16_t frame;         /* of the innermost frame in a thread's state */
	uint16_t indirect;      /* or of it in a structure that is pointed to there */
	uint16_t code, previous, place, owner; /* in a frame */
	uint16_t first_line, file, name, lines, bytes; /* in a code object */
	uint16_t text;          /* of the characters in a string of ASCII */
} layouts[] = {
	{10, 24, NOWHERE, 32, 24, 96, NOWHERE, 40, 104, 112, 120, NOWHERE, 48},
	{11, 56, 8, 32, 48, 56, NOWHERE, 72, 112, 128, 136, 184, 48},
	{12, 56, 0, 0, 8, 56, 70, 68, 112, 128, 136, 192, 40},
	{13, 72, NOWHERE, 0, 8, 56, 70, 68, 112, 128, 136, 200, 40},
};

#define TYPE 8    /* of an object's type in it */
#define LENGTH 16 /* of a string's or bytes' length */
#define BYTES 32  /* of what bytes hold */

static const struct layout *layout; /* NULL: nothing can be read */
static const void *code_type, *text_type, *bytes_type;
static char *(*thread_state)(void);
static int (*finalizing)(void);

static const char *pointer(const char *object, uint16_t offset)
{
	const char *p;

	memcpy(&p, object + offset, sizeof(p));
	return p;
}

static int64_t integer(const char *object, uint16_t offset, size_t size)
{
	int32_t narrow;
	int64_t wide;

	if (size == sizeof(narrow)) {
		memcpy(&narrow, object + offset, sizeof(narrow));
		return narrow;
	}
	memcpy(&wide, object + offset, sizeof(wide));
	return wide;
}

const char *python_find(void)
{
	static char reason[80];
	const char *(*version)(void);
	const char *type_type = dlsym(RTLD_DEFAULT, "PyType_Type");
	int major, minor;

	layout = NULL;
	*(void **)&version = dlsym(RTLD_DEFAULT, "Py_GetVersion");
	if (!version || sscanf(version(), "%d.%d", &major, &minor) != 2)
		return NULL;
	snprintf(reason, sizeof(reason), "the frames of Python %d.%d can't be read", major, minor);
	code_type = dlsym(RTLD_DEFAULT, "PyCode_Type");
	text_type = dlsym(RTLD_DEFAULT, "PyUnicode_Type");
	bytes_type = dlsym(RTLD_DEFAULT, "PyBytes_Type");
	*(void **)&thread_state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
	*(void **)&finalizing = dlsym(RTLD_DEFAULT, minor < 13 ? "_Py_IsFinalizing" : "Py_IsFinalizing");
	/* Builds that trace references or do without the lock have other objects. */
	if (major != 3 || !type_type || !code_type || !text_type || !bytes_type || !thread_state || !finalizing ||
	    pointer(code_type, TYPE) != type_type)
		return reason;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].minor == minor)
			layout = &layouts[i];
	return layout ? NULL : reason;
}

static const char *innermost(const char *state)
{
	const char *p = pointer(state, layout->frame);

	return p && layout->indirect != NOWHERE ? pointer(p, layout->indirect) : p;
}

int python_frames(struct python_frame *frames, int most)
{
	const char *state = layout && !finalizing() ? thread_state() : NULL, *frame;
	int n = 0;

	if (!state)
		return 0;
	for (frame = innermost(state); frame && n < most; frame = pointer(frame, layout->previous)) {
		const char *code = pointer(frame, layout->code);
		if (layout->owner != NOWHERE && frame[layout->owner] == OWNED_BY_C)
			continue;
		if (!code || pointer(code, TYPE) != code_type)
			break;
		frames[n++] = (struct python_frame){
			.code = code,
			.place = layout->bytes == NOWHERE ? (uint64_t)integer(frame, layout->place, 4) * 2
							  : (uint64_t)(pointer(frame, layout->place) - (code + layout->bytes)),
			.file = pointer(code, layout->file),
			.name = pointer(code, layout->name),
		};
	}
	return n;
}

/* ---- names and lines ---- */

static bool is_plain(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isprint((unsigned char)text[i]))
			return false;
	return true;
}

/* ASCII, or what the interpreter has made UTF-8 of before; else a question mark. */
static void text_of(const char *object, char *out, size_t size)
{
	size_t length = object && pointer(object, TYPE) == text_type ? (size_t)integer(object, LENGTH, 8) : 0;
	const char *text = object ? object + layout->text : NULL;

	snprintf(out, size, "?");
	if (!length || length >= size)
		return;
	if (!is_plain(text, length)) {
		length = (size_t)integer(object, layout->text, 8);
		text = pointer(object, (uint16_t)(layout->text + 8));
		if (!text || length >= size)
			return;
	}
	memcpy(out, text, length);
	out[length] = 0;
}

/* Pairs of bytes: how many instructions, how many lines further. */
static int64_t line_in_pairs(const uint8_t *p, const uint8_t *end, uint64_t place, int64_t line)
{
	uint64_t at = 0;

	for (; p + 1 < end; p += 2) {
		int8_t step = (int8_t)p[1];
		at += p[0];
		line += step == -128 ? 0 : step;
		if (place < at)
			return step == -128 ? 0 : line;
	}
	return 0;
}

static int64_t signed_number(const uint8_t *p, const uint8_t *end)
{
	uint64_t value = 0;

	for (unsigned shift = 0; p < end && shift < 60; shift += 6, p++) {
		value |= (uint64_t)(*p & 63) << shift;
		if (!(*p & 64))
			break;
	}
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* Entries whose first byte alone has the highest bit: a form in four bits, how many instructions in three. */
static int64_t line_in_entries(const uint8_t *p, const uint8_t *end, uint64_t place, int64_t line)
{
	uint64_t at = 0;

	while (p < end) {
		unsigned form = *p >> 3 & 15;
		at += ((*p & 7) + 1) * 2u;
		if (form == 13 || form == 14)
			line += signed_number(p + 1, end);
		else if (form >= 10 && form <= 12)
			line += form - 10;
		if (place < at)
			return form == 15 ? 0 : line;
		do
			p++;
		while (p < end && !(*p & 128));
	}
	return 0;
}

void python_describe(const struct python_frame *f, char *function, char *file, size_t size, uint32_t *line)
{
	const char *table = pointer(f->code, layout->lines);
	int64_t first = integer(f->code, layout->first_line, 4), found = 0;

	text_of(f->name, function, size);
	text_of(f->file, file, size);
	if (table && pointer(table, TYPE) == bytes_type) {
		const uint8_t *p = (const uint8_t *)table + BYTES, *end = p + integer(table, LENGTH, 8);
		found = layout->bytes == NOWHERE ? line_in_pairs(p, end, f->place, first)
						 : line_in_entries(p, end, f->place, first);
	}
	*line = found > 0 ? (uint32_t)found : 0;
}
