/* A forked child that never uses the driver ends its only thread, and so ends normally. */
#include "program.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	int status = -1;

	start();
	struct work w = begin_work();
	do_step(&w);
	fflush(stdout);
	if (!fork())
		pthread_exit(NULL);
	wait(&status);
	printf("child exited: %d, with %d\n", WIFEXITED(status), WEXITSTATUS(status));
	do_step(&w);
	return 0;
}
