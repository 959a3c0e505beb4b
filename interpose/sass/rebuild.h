/*
 * Makes cubins whose sections have other contents.
 *
 * Everything behind a section that grows moves in the file. The ELF header, the section headers and the program
 * headers, which have offsets in the file, follow.
 */
#ifndef TT_SASS_REBUILD_H
#define TT_SASS_REBUILD_H

#include "sass/cubin.h"

struct section_contents {
	uint32_t section;
	const uint8_t *bytes;
	size_t size; /* not smaller than before */
};

/* Whether a section can grow without overlapping other data of the file. */
bool cubin_stands_alone(const struct cubin *c, uint32_t section);
/*
 * Returns the new file, which the caller frees; NULL: no memory. At most one of the contents is for a section. Section
 * headers are those of c->sections, which the caller may have changed.
 */
uint8_t *cubin_rebuild(const struct cubin *c, const struct section_contents *contents, size_t count, size_t *size);

#endif
