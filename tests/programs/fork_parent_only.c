/* The parent works before and after children that never touch the driver. */
#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	int status = -1;

	start();
	struct work w = begin_work();
	do_step(&w);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		printf("child\n");
		exit(6);
	}
	waitpid(child, &status, 0);
	printf("child exited with %d\n", WEXITSTATUS(status));
	do_step(&w);
	child = fork();
	if (child == 0)
		_exit(7);
	waitpid(child, &status, 0);
	printf("child exited with %d\n", WEXITSTATUS(status));
	do_step(&w);
	OK(cuMemFree(w.data));
	return 0;
}
