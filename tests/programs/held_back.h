/* A host function that blocks its stream or graph until the program says go. */
#include <unistd.h>

#include "program.h"

static _Atomic int go;

static void wait_for_go(void *unused)
{
	(void)unused;
	while (!go)
		usleep(1000);
}
