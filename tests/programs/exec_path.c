/* The process executes several programs in turn, each found in another way; the last one works, too. */
#include "program.h"

#include <libgen.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char self[4096], name[4096], *path = self, *arguments[] = {argv[0], "a", "b", "c", NULL};
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[length > 0 ? length : 0] = 0;
	strcpy(name, basename(strdup(self)));
	if (argc == 1) {
		setenv("PATH", dirname(path), 1);
		execlp(name, argv[0], "a", NULL);
	}
	printf("%d arguments, last %s, MORE is %s\n", argc - 1, argv[argc - 1], getenv("MORE") ? getenv("MORE") : "not set");
	fflush(stdout);
	if (argc == 2) {
		arguments[3] = NULL;
		execvp(name, arguments);
	}
	if (argc == 3) {
		size_t n = 0;
		while (environ[n])
			n++;
		char *more[n + 2];
		memcpy(more, environ, n * sizeof(*more));
		more[n] = "MORE=yes";
		more[n + 1] = NULL;
		execle(path, argv[0], "a", "b", "c", NULL, more);
	}
	start();
	struct work w = begin_work();
	do_step(&w);
	return argc == 4 ? 0 : 1;
}
