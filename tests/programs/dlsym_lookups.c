/*
 * Look-ups by dlsym, for the driver's names and for others, by handle and relative to the caller.
 * A library of the program's own interposes strverscmp, and calls the next one.
 */
#include "program.h"

#include <dlfcn.h>

extern int shout(void);
extern const void *next_driver_call(const char *name);

static int call(void *p)
{
	return p ? ((int (*)(const char *, const char *))p)("5", "5") : -1;
}

int main(void)
{
	void *self = dlopen(NULL, RTLD_NOW), *driver = dlopen("libcuda.so.1", RTLD_NOW);
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	printf("plain %d\n", strverscmp("5", "5"));
	printf("default %d\n", call(dlsym(RTLD_DEFAULT, "strverscmp")));
	printf("next %d\n", call(dlsym(RTLD_NEXT, "strverscmp")));
	printf("whole program %d\n", call(dlsym(self, "strverscmp")));
	printf("C library %d\n", call(dlsym(libc, "strverscmp")));
	printf("driver, through what it needs %d\n", call(dlsym(driver, "strverscmp")));
	printf("shout %d\n", shout());

	dlerror();
	printf("missing %d", dlsym(RTLD_DEFAULT, "no_such_symbol") != NULL);
	printf(", error %d", dlerror() != NULL);
	printf(", error again %d\n", dlerror() != NULL);
	printf("missing driver call %d", dlsym(driver, "cuNoSuchCall") != NULL);
	printf(", error %d\n", dlerror() != NULL);
	printf("found %d", dlsym(driver, "cuInit") != NULL);
	printf(", error %d\n", dlerror() != NULL);

	printf("default is what is linked %d\n", dlsym(RTLD_DEFAULT, "cuInit") == (void *)cuInit);
	printf("program is what is linked %d\n", dlsym(self, "cuInit") == (void *)cuInit);
	printf("next from here %d\n", dlsym(RTLD_NEXT, "cuInit") != NULL);
	printf("next from a library %d\n", next_driver_call("cuInit") != NULL);
	printf("not in the C library %d\n", dlsym(libc, "cuInit") == NULL);
	printf("twice the same %d\n", dlsym(driver, "cuMemAlloc_v2") == dlsym(driver, "cuMemAlloc_v2"));
	printf("versions differ %d\n", dlsym(driver, "cuMemAlloc_v2") != dlsym(driver, "cuMemAlloc"));
	printf("dlsym itself %d\n", dlsym(RTLD_DEFAULT, "dlsym") != NULL);
	CUresult (*init)(unsigned) = dlsym(RTLD_NEXT, "cuInit");
	SHOW(init(0));
	SHOW(cuInit(0));
	return 0;
}
