/* A kernel executes a trap: the context is lost, and every later call returns that error. */
#include "fault.h"

int main(void)
{
	return show_fault("fail", NULL);
}
