/*
 * Keeps images of modules until they are in the run. See image_retention.h for the invariant.
 */
#define _GNU_SOURCE
#include "track/image_retention.h"

#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format.h"

struct search {
	uintptr_t address;
	const void *object;
};

static int look_into(struct dl_phdr_info *info, size_t size, void *user)
{
	struct search *s = user;
	(void)size;

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && s->address - info->dlpi_addr - p->p_vaddr < p->p_memsz)
			s->object = info->dlpi_phdr;
	}
	return s->object != NULL;
}

/* The object file whose read-only mapping holds an address; NULL: none. */
static const void *object_of(const void *address)
{
	struct search s = {(uintptr_t)address, NULL};

	dl_iterate_phdr(look_into, &s);
	return s.object;
}

void retained_from_memory(struct retained_image *h, const void *image)
{
	*h = (struct retained_image){.image = image_identify(image, IMAGE_IN_MEMORY)};
	if (!h->image.size)
		h->missing = TT_MISSING_UNKNOWN;
	else
		h->object = object_of(h->image.bytes);
}

/* The file's bytes and a NUL. */
static char *read_file(const char *path, size_t most, size_t *size, uint32_t *missing)
{
	struct stat st;
	char *bytes = NULL;
	ssize_t got = 1;

	*missing = TT_MISSING_UNREADABLE;
	*size = 0;
	/* opening a pipe would disturb its writer */
	int fd = !stat(path, &st) && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		*missing = (size_t)st.st_size > most ? TT_MISSING_LARGE : TT_MISSING_UNREADABLE;
		bytes = (size_t)st.st_size <= most ? malloc((size_t)st.st_size + 1) : NULL;
	}
	while (bytes && got > 0 && *size < (size_t)st.st_size) {
		got = read(fd, bytes + *size, (size_t)st.st_size - *size);
		*size += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	if (bytes && got < 0) {
		free(bytes);
		return NULL;
	}
	if (bytes)
		bytes[*size] = 0;
	return bytes;
}

void retained_from_file(struct retained_image *h, const char *path, size_t most)
{
	size_t size;

	*h = (struct retained_image){0};
	if (!(h->copy = read_file(path, most, &size, &h->missing)))
		return;
	h->missing = TT_MISSING_NOTHING;
	h->image = image_identify(h->copy, size);
	if (!h->image.size) {
		retained_release(h);
		h->missing = TT_MISSING_UNKNOWN;
	}
}

bool retained_keep(struct retained_image *h)
{
	if (h->copy || h->object || !h->image.size)
		return true;
	if (!(h->copy = malloc(h->image.size + 1)))
		return false;
	memcpy(h->copy, h->image.bytes, h->image.size);
	((char *)h->copy)[h->image.size] = 0; /* terminates text */
	h->image.bytes = h->copy;
	return true;
}

const void *retained_bytes(const struct retained_image *h)
{
	if (!h->image.size || (h->object && object_of(h->image.bytes) != h->object))
		return NULL;
	return h->image.bytes;
}

void retained_release(struct retained_image *h)
{
	free(h->copy);
	*h = (struct retained_image){.missing = h->missing};
}
