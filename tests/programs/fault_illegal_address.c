/* A kernel writes where nothing is: the context is lost, and every later call says so. */
#include "fault.h"

int main(void)
{
	CUdeviceptr nowhere = 0x10;
	unsigned value = 1;

	return show_fault("poke", PARAMS(&nowhere, &value));
}
