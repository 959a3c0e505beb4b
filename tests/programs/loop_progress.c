/* Works for the given number of steps and prints each: a program to be interrupted. */
#include "program.h"

#include <unistd.h>

int main(int argc, char **argv)
{
	unsigned steps = argc > 1 ? (unsigned)atoi(argv[1]) : 3;

	start();
	struct work w = begin_work();
	while (w.step < steps) {
		do_step(&w);
		usleep(10000);
	}
	OK(cuMemFree(w.data));
	return 0;
}
