/*
 * The object files of this process by address. Callers serialise the calls.
 */
#ifndef TT_CALLSTACK_MAPPINGS_H
#define TT_CALLSTACK_MAPPINGS_H

#include <stdint.h>

struct object {
	uintptr_t begin, end;
	uint64_t offset; /* of `begin` in the file */
	char *path;
};

void objects_read(void); /* reads the current ones; pointers from objects_find become invalid */
const struct object *objects_find(uintptr_t address); /* NULL: not among those that were read */
void objects_forget(void); /* in a forked child */

#endif
