/* The driver opened by its absolute path, closed, and opened again. */
#include "program.h"

#include <dlfcn.h>
#include <link.h>

int main(void)
{
	struct link_map *map;
	char path[4096];
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver || dlinfo(driver, RTLD_DI_LINKMAP, &map))
		return 1;
	snprintf(path, sizeof(path), "%s", map->l_name);
	printf("an absolute path %d\n", path[0] == '/');
	printf("closed %d\n", dlclose(driver));
	for (unsigned i = 0; i < 2; i++) {
		driver = dlopen(path, RTLD_LAZY);
		CUresult (*init)(unsigned) = dlsym(driver, "cuInit");
		CUresult (*count)(int *) = dlsym(driver, "cuDeviceGetCount");
		int devices = 0;

		SHOW(init(0));
		SHOW(count(&devices));
		printf("devices %d\n", devices > 0);
		printf("closed %d\n", dlclose(driver));
	}
	struct work w = (start(), begin_work());
	do_step(&w);
	return 0;
}
