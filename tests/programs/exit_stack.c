/* The stack overflows in the middle of work. */
#include "program.h"

static int deeper(volatile int *up)
{
	volatile int here[256] = {*up};

	return *up < 0 ? 0 : deeper(here) + here[0];
}

int main(void)
{
	volatile int top = 1;

	start();
	struct work w = begin_work();
	do_step(&w);
	return deeper(&top);
}
