/* A kernel writes to an unmapped address: the context is lost, and every later call returns that error. */
#include "fault.h"

int main(void)
{
	CUdeviceptr nowhere = 0x10;
	unsigned value = 1;

	return show_fault("poke", PARAMS(&nowhere, &value));
}
