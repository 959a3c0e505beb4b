/* Programs that can't be run are not run, and the work goes on. */
#include "program.h"

#include <errno.h>
#include <unistd.h>

int main(void)
{
	char *argv[] = {"x", NULL};

	start();
	struct work w = begin_work();
	do_step(&w);
	printf("%d", execve("/no/such/program", argv, environ));
	printf(" %d\n", errno);
	printf("%d", execlp("no-such-program-anywhere", "x", NULL));
	printf(" %d\n", errno);
	printf("%d", execv("/", argv));
	printf(" %d\n", errno);
	printf("%d", execl("/etc/hostname", "x", NULL));
	printf(" %d\n", errno);
	do_step(&w);
	return 0;
}
