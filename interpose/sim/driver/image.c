/*
 * Images of code: their kind, and their PTX text.
 *
 * Invariant: only PTX is run. A cubin is an image for another device, and so is a fat binary without PTX.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/driver/driver.h"

#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN 0xba55ed50u
#define FATBIN_PTX 1
#define TEXT_MAX ((uint64_t)1 << 30)
#define FATBIN_LZ4 0x2000u
#define FATBIN_ZSTD 0x8000u
#define FATBIN_COMPRESSED 0xe000u /* flags of all known compressions */

struct wrapper {
	uint32_t magic, version;
	const void *data;
};

struct container {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size; /* of the entries */
};

struct entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t size;
	uint32_t compressed_size, options;
	uint16_t minor, major;
	uint32_t architecture, name, name_size;
	uint64_t flags, reserved, whole; /* whole: bytes of compressed contents after decompression */
};

/* The number of decoded bytes; 0: damaged. */
static size_t unpack_lz4(const unsigned char *at, size_t size, unsigned char *out, size_t room)
{
	const unsigned char *end = at + size;
	size_t made = 0;

	while (at < end) {
		unsigned token = *at++, more;
		size_t literals = token >> 4, length = token & 15;
		for (more = 255; literals >= 15 && more == 255 && at < end; literals += more)
			more = *at++;
		if (literals > (size_t)(end - at) || literals > room - made)
			return 0;
		memcpy(out + made, at, literals);
		made += literals;
		at += literals;
		if (end - at < 2)
			return made;
		size_t distance = at[0] | (size_t)at[1] << 8;
		at += 2;
		for (more = 255; length >= 15 && more == 255 && at < end; length += more)
			more = *at++;
		length += 4;
		if (!distance || distance > made || length > room - made)
			return 0;
		for (size_t i = 0; i < length; i++, made++)
			out[made] = out[made - distance];
	}
	return made;
}

static size_t unpack_zstd(const unsigned char *at, size_t size, unsigned char *out, size_t room)
{
	static size_t (*decompress)(void *, size_t, const void *, size_t);
	void *library;

	if (!decompress && (library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL)))
		*(void **)&decompress = dlsym(library, "ZSTD_decompress");
	size_t made = decompress ? decompress(out, room, at, size) : 0;
	return made <= room ? made : 0;
}

/* The text of a PTX entry, or NULL. */
static char *text_of(const struct entry *e, const unsigned char *contents)
{
	bool packed = e->flags & FATBIN_COMPRESSED;
	size_t made = 0;

	if (packed && (e->header_size < sizeof *e || e->compressed_size > e->size || e->whole > TEXT_MAX))
		return NULL;
	char *text = sim_alloc((packed ? e->whole : e->size) + 1);
	if (!packed)
		memcpy(text, contents, made = e->size);
	else if (e->flags & FATBIN_LZ4)
		made = unpack_lz4(contents, e->compressed_size, (unsigned char *)text, e->whole);
	else if (e->flags & FATBIN_ZSTD)
		made = unpack_zstd(contents, e->compressed_size, (unsigned char *)text, e->whole);
	if (made)
		return text;
	free(text);
	return NULL;
}

static CUresult fatbin_text(const unsigned char *image, char **text, char *log, size_t log_size)
{
	const size_t head = offsetof(struct entry, reserved); /* of entries without compression */
	struct container container;
	bool packed = false;
	uint64_t at = 0;

	memcpy(&container, image, sizeof container);
	image += container.header_size;
	while (at + head <= container.size) {
		struct entry entry = {0};
		uint64_t left = container.size - at;
		memcpy(&entry, image + at, left < sizeof entry ? left : sizeof entry);
		if (entry.header_size < head || entry.header_size > left || entry.size > left - entry.header_size)
			break;
		if (entry.kind == FATBIN_PTX && (*text = text_of(&entry, image + at + entry.header_size)))
			return CUDA_SUCCESS;
		packed |= entry.kind == FATBIN_PTX;
		at += entry.header_size + entry.size;
	}
	snprintf(log, log_size,
		 packed ? "the PTX of the fat binary can't be decompressed (is libzstd.so.1 installed?)"
			: "the fat binary holds no PTX");
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/*
 * 10 × the newest PTX version that a driver of this age reads. Of CUDA 13 all: programs of a newer compiler run as long as
 * the interpreter has their instructions.
 */
static int newest_ptx(void)
{
	int major = sim_settings.driver_version / 1000, minor = sim_settings.driver_version % 1000 / 10;

	if (major >= 13)
		return 99;
	if (major == 12)
		return minor <= 5 ? 80 + minor : 79 + minor;
	return 70 + minor;
}

static CUresult check_version(const char *text, char *log, size_t log_size)
{
	const char *directive = strstr(text, ".version");
	int major, minor;

	if (!directive || sscanf(directive, ".version %d.%d", &major, &minor) != 2) {
		snprintf(log, log_size, "no .version directive");
		return CUDA_ERROR_INVALID_PTX;
	}
	if (major * 10 + minor <= newest_ptx())
		return CUDA_SUCCESS;
	snprintf(log, log_size, "PTX version %d.%d is newer than this driver", major, minor);
	return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

CUresult image_text(const void *image, char **text, char *log, size_t log_size)
{
	uint32_t magic;
	struct wrapper wrapper;
	CUresult result;

	*text = NULL;
	if (*(const char *)image == 0x7f && !memcmp(image, "\177ELF", 4)) {
		snprintf(log, log_size, "machine code does not run here, only PTX does");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	/* Text may be shorter than a magic number, so its first byte is tested first. */
	if (isspace(*(const unsigned char *)image) || strchr("./", *(const char *)image)) {
		*text = strdup(image);
		result = *text ? check_version(*text, log, log_size) : CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		memcpy(&magic, image, sizeof magic);
		if (magic == FATBIN_WRAPPER) {
			memcpy(&wrapper, image, sizeof wrapper);
			image = wrapper.data;
			memcpy(&magic, image, sizeof magic);
		}
		if (magic != FATBIN) {
			snprintf(log, log_size, "neither PTX nor a fat binary");
			return CUDA_ERROR_INVALID_IMAGE;
		}
		result = fatbin_text(image, text, log, log_size);
		if (!result)
			result = check_version(*text, log, log_size);
	}
	if (!result && sim_settings.refused_name && strstr(*text, sim_settings.refused_name)) {
		snprintf(log, log_size, "%s: refused by TT_SIM_FAULT", sim_settings.refused_name);
		result = CUDA_ERROR_INVALID_PTX;
	}
	if (result) {
		free(*text);
		*text = NULL;
	}
	return result;
}

CUresult image_read(const char *path, void **image)
{
	char *bytes = NULL;
	size_t size = 0, room = 0, got;
	FILE *file = fopen(path, "rb");

	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	do {
		if (room - size < 4096) {
			room = room ? room * 2 : 65536;
			bytes = realloc(bytes, room + 64);
			if (!bytes)
				abort();
		}
		got = fread(bytes + size, 1, room - size, file);
		size += got;
	} while (got);
	bool broken = ferror(file);
	fclose(file);
	if (broken) {
		free(bytes);
		return CUDA_ERROR_FILE_NOT_FOUND;
	}
	memset(bytes + size, 0, 64);
	*image = bytes;
	return CUDA_SUCCESS;
}

void image_report(const char *log, unsigned count, const CUjit_option *options, void **values)
{
	char *buffer = NULL;
	unsigned size = 0, size_at = count;

	for (unsigned i = 0; i < count; i++) {
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
			buffer = values[i];
		} else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
			size = (unsigned)(uintptr_t)values[i];
			size_at = i;
		}
		/* The information log is always empty. */
		if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
			values[i] = NULL;
	}
	if (size_at == count)
		return;
	if (buffer && size)
		snprintf(buffer, size, "%s", log);
	size_t length = strlen(log);
	values[size_at] = (void *)(uintptr_t)(buffer && size ? (length < size ? length : size - 1) : 0);
}
