/*
 * A kernel writes a word to a misaligned address: the context is lost, and every later call returns that
 * error.
 */
#include "fault.h"

int main(void)
{
	unsigned value = 1;

	start();
	CUdeviceptr odd = allocate(100) + 1;
	return show_fault("poke", PARAMS(&odd, &value));
}
