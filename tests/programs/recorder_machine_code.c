/*
 * Loads machine code in each way that the driver has. Arguments are WAY=FILE. With `ptx`, FILE is the
 * result of compiling the loaded PTX.
 */
#include "program.h"

#include <dlfcn.h>
#include <sys/mman.h>

extern const void *own_image, *compiled;
extern size_t compiled_size;
extern bool own_is_cut;
void *driver_open(void);
bool driver_finds_preserved(void);

#define FAR_OFF ((void *)0x5a0000000000)

static void *contents(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	char *bytes = malloc(1 << 20);

	if (!f || !bytes)
		abort();
	*size = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

static void load(const char *way, const char *path)
{
	struct {
		uint32_t magic, version;
		const void *data;
	} wrapper = {0x466243b1, 1, NULL};
	char log[100];
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
	void *values[] = {log, (void *)sizeof(log), (void *)32};
	CUlibraryOption preserve[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
	size_t size;
	void *image = contents(path, &size);
	CUmodule m;
	CUlibrary l;

	own_image = image;
	compiled = NULL;
	if (!strcmp(way, "data"))
		SHOW(cuModuleLoadData(&m, image));
	else if (!strcmp(way, "options"))
		SHOW(cuModuleLoadDataEx(&m, image, 3, options, values));
	else if (!strcmp(way, "fatbin"))
		SHOW(cuModuleLoadFatBinary(&m, image));
	else if (!strcmp(way, "library"))
		SHOW(cuLibraryLoadData(&l, image, options, values, 3, NULL, NULL, 0));
	else if (!strcmp(way, "preserved"))
		SHOW(cuLibraryLoadData(&l, image, NULL, NULL, 0, preserve, PARAMS((void *)1), 1));
	else if (!strcmp(way, "file"))
		SHOW(cuModuleLoad(&m, path));
	else if (!strcmp(way, "library-file"))
		SHOW(cuLibraryLoadFromFile(&l, path, NULL, NULL, 0, NULL, NULL, 0));
	if (!strcmp(way, "cut")) { /* with nothing behind it, nor anything that comes there */
		size_t room = (size + 4095) & ~(size_t)4095;
		char *pages = mmap(FAR_OFF, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		own_image = memcpy(pages + room - size, image, size);
		own_is_cut = true;
		SHOW(cuModuleLoadData(&m, own_image));
		own_is_cut = false;
		munmap(pages, room);
	}
	if (!strcmp(way, "odd")) {
		own_image = memmove((char *)image + 1, image, size);
		SHOW(cuModuleLoadData(&m, own_image));
	}
	if (!strcmp(way, "wrapped")) {
		own_image = &wrapper;
		wrapper.data = image;
		SHOW(cuLibraryLoadData(&l, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
	}
	if (!strcmp(way, "ptx")) {
		compiled = own_image;
		compiled_size = size;
		own_image = KERNELS;
		SHOW(cuModuleLoadDataEx(&m, KERNELS, 3, options, values));
	}
	if (strcmp(way, "preserved"))
		free(image);
}

int main(int argc, char **argv)
{
	void *driver = driver_open();

	if (!driver || !dlsym(driver, "cuInit"))
		return 2;
	start();
	for (int i = 1; i < argc; i++) {
		char *equals = strchr(argv[i], '=');
		if (!equals)
			return 2;
		*equals = 0;
		load(argv[i], equals + 1);
	}
	printf("preserved: %d\n", driver_finds_preserved());
	return 0;
}
