/*
 * Reads Python frames. See python.h. The line tables follow CPython's Objects/lnotab_notes.txt for 3.10 and
 * Objects/locations.md from 3.11 on.
 *
 * An evaluation is a call of the interpreter's loop. Up to 3.10 it runs one function, later also those that Python
 * code calls. Each has a record on the C stack, which tells where its functions belong among native frames. Up to
 * 3.11 the records form a list of their own. Later each is a frame without code, after the frames of its functions.
 */
#define _GNU_SOURCE
#include "callstack/python.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "callstack/python_layout.h"

#define OWNED_BY_C 3 /* and above: frames that represent an evaluation, and have no code */
#define TAGS ((uintptr_t)3) /* bits of a reference that are not part of the address */

static struct {
	struct python_layout layout;
	bool readable;
	const void *code_type, *text_type, *bytes_type;
	char *(*thread_state)(void);
	int (*finalizing)(void);
} interpreter;

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

const char *python_find(const void **inside)
{
	static char reason[120];
	const char *(*version)(void);
	const char *type_type = dlsym(RTLD_DEFAULT, "PyType_Type");
	int major, minor;

	interpreter.readable = false;
	*(void **)&version = dlsym(RTLD_DEFAULT, "Py_GetVersion");
	if (!version || sscanf(version(), "%d.%d", &major, &minor) != 2)
		return NULL;
	snprintf(reason, sizeof(reason), "Python %d.%d is not supported: the run has no Python call stacks", major, minor);
	interpreter.code_type = dlsym(RTLD_DEFAULT, "PyCode_Type");
	interpreter.text_type = dlsym(RTLD_DEFAULT, "PyUnicode_Type");
	interpreter.bytes_type = dlsym(RTLD_DEFAULT, "PyBytes_Type");
	*(void **)&interpreter.thread_state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
	*(void **)&interpreter.finalizing = dlsym(RTLD_DEFAULT, minor < 13 ? "_Py_IsFinalizing" : "Py_IsFinalizing");
	/* Debug builds with reference tracing have other objects. */
	interpreter.readable = major == 3 && type_type && interpreter.code_type && interpreter.text_type &&
			       interpreter.bytes_type && interpreter.thread_state && interpreter.finalizing &&
			       python_layout_find(minor, &interpreter.layout) &&
			       pointer(interpreter.code_type, interpreter.layout.type) == type_type;
	if (!interpreter.readable)
		return reason;
	*inside = *(void **)&version;
	return NULL;
}

static const char *innermost(const char *state)
{
	const char *p = pointer(state, interpreter.layout.frame);

	return p && interpreter.layout.indirect != NOWHERE ? pointer(p, interpreter.layout.indirect) : p;
}

static const char *code_of(const char *frame)
{
	return (const char *)((uintptr_t)pointer(frame, interpreter.layout.code) & ~TAGS);
}

/* The instructions of a frame. */
static const char *instructions(const char *frame, const char *code)
{
	const char *copies = interpreter.layout.copies != NOWHERE ? pointer(code, interpreter.layout.copies) : NULL;

	if (!copies)
		return code + interpreter.layout.bytes;
	return pointer(copies,
		       (uint16_t)(8 + 8 * integer(frame, interpreter.layout.bytecode, 4))); /* their number comes first */
}

static uint64_t pc_of(const char *frame, const char *code)
{
	if (interpreter.layout.bytes == NOWHERE)
		return (uint64_t)integer(frame, interpreter.layout.instruction, 4) * 2;
	return (uint64_t)(pointer(frame, interpreter.layout.instruction) - instructions(frame, code));
}

static bool is_evaluation(const char *frame)
{
	return interpreter.layout.owner != NOWHERE && frame[interpreter.layout.owner] >= OWNED_BY_C;
}

static const char *before(const char *frame)
{
	return interpreter.finalizing() ? NULL : pointer(frame, interpreter.layout.previous);
}

/*
 * Checks the state at each step, because the interpreter frees states and frames of other threads at its end. In
 * free-threaded builds the list of bytecode copies is replaced when it grows; the old list is kept for a while.
 */
int python_frames(struct frame *frames, const char **evaluations, int most)
{
	const char *state = interpreter.readable && !interpreter.finalizing() ? interpreter.thread_state() : NULL, *frame,
		   *record = NULL;
	int n = 0, known = 0;

	if (!state)
		return 0;
	if (interpreter.layout.evaluation != NOWHERE)
		record = pointer(state, interpreter.layout.evaluation);
	for (frame = innermost(state); frame && n < most; frame = before(frame)) {
		const char *code = code_of(frame);
		if (is_evaluation(frame)) {
			while (evaluations && known < n)
				evaluations[known++] = frame;
			continue;
		}
		if (!code || pointer(code, interpreter.layout.type) != interpreter.code_type)
			break;
		frames[n++] = (struct frame){
			.code = code,
			.pc = pc_of(frame, code),
			.file = pointer(code, interpreter.layout.file),
			.name = pointer(code, interpreter.layout.name),
		};
		if (evaluations && record) {
			evaluations[known++] = record;
			if (interpreter.layout.entry == NOWHERE || frame[interpreter.layout.entry])
				record = pointer(record, interpreter.layout.outer);
		}
	}
	if (!evaluations)
		return n;
	while (known < n && frame && !is_evaluation(frame))
		frame = before(frame);
	while (known < n)
		evaluations[known++] = frame;
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

/* ASCII, or the interpreter's cached UTF-8; else a question mark. */
static void text_of(const char *object, char *out, size_t size)
{
	bool is_text = object && pointer(object, interpreter.layout.type) == interpreter.text_type;
	size_t length = is_text ? (size_t)integer(object, interpreter.layout.text_length, 8) : 0;
	const char *text = object ? object + interpreter.layout.text : NULL;

	snprintf(out, size, "?");
	if (!length || length >= size)
		return;
	if (!is_plain(text, length)) {
		length = (size_t)integer(object, interpreter.layout.text, 8);
		text = pointer(object, (uint16_t)(interpreter.layout.text + 8));
		if (!text || length >= size)
			return;
	}
	memcpy(out, text, length);
	out[length] = 0;
}

/* Pairs of bytes: a number of instructions and a line increment. */
static int64_t line_in_pairs(const uint8_t *p, const uint8_t *end, uint64_t pc, int64_t line)
{
	uint64_t at = 0;

	for (; p + 1 < end; p += 2) {
		int8_t step = (int8_t)p[1];
		at += p[0];
		line += step == -128 ? 0 : step;
		if (pc < at)
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

/* Entries: the first byte has the highest bit set, a form in four bits and the number of instructions in three. */
static int64_t line_in_entries(const uint8_t *p, const uint8_t *end, uint64_t pc, int64_t line)
{
	uint64_t at = 0;

	while (p < end) {
		unsigned form = *p >> 3 & 15;
		at += ((*p & 7) + 1) * 2u;
		if (form == 13 || form == 14)
			line += signed_number(p + 1, end);
		else if (form >= 10 && form <= 12)
			line += form - 10;
		if (pc < at)
			return form == 15 ? 0 : line;
		do
			p++;
		while (p < end && !(*p & 128));
	}
	return 0;
}

void python_describe(const struct frame *f, char *function, char *file, size_t size, uint32_t *line)
{
	const char *table = pointer(f->code, interpreter.layout.lines);
	int64_t first = integer(f->code, interpreter.layout.first_line, 4), found = 0;

	text_of(f->name, function, size);
	text_of(f->file, file, size);
	if (table && pointer(table, interpreter.layout.type) == interpreter.bytes_type) {
		const uint8_t *p = (const uint8_t *)table + interpreter.layout.bytes_held,
			      *end = p + integer(table, interpreter.layout.bytes_length, 8);
		found = interpreter.layout.bytes == NOWHERE ? line_in_pairs(p, end, f->pc, first)
							    : line_in_entries(p, end, f->pc, first);
	}
	*line = found > 0 ? (uint32_t)found : 0;
}
