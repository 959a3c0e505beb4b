/* A kernel writes a word to an odd address: the context is lost, and every later call says so. */
#include "fault.h"

int main(void)
{
	unsigned value = 1;

	start();
	CUdeviceptr odd = allocate(100) + 1;
	return show_fault("poke", PARAMS(&odd, &value));
}
