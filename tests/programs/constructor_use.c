/* The driver is used in a constructor, before main. */
#include "program.h"

static struct work w;

__attribute__((constructor)) static void before(void)
{
	start();
	w = begin_work();
	do_step(&w);
}

int main(void)
{
	do_step(&w);
	return 0;
}
