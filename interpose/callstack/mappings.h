/*
 * The object files of this process by address. Callers hold a lock of their own.
 */
#ifndef TT_CALLSTACK_MAPPINGS_H
#define TT_CALLSTACK_MAPPINGS_H

#include <stdint.h>

struct object {
	uintptr_t begin, end;
	uint64_t offset; /* of begin in the file */
	char *path;
};

void objects_read(void); /* the present ones; those found before are no longer valid */
const struct object *objects_find(uintptr_t address); /* among those read; else NULL */
void objects_forget(void); /* in a fork's child */

#endif
