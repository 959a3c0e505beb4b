/* The program alone decides which signals are handled, ignored and blocked. */
#include "program.h"

#include <signal.h>

static void show(const char *when)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1, SIGCHLD};
	sigset_t blocked;

	sigprocmask(SIG_SETMASK, NULL, &blocked);
	printf("%s:", when);
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		struct sigaction action;

		sigaction(numbers[i], NULL, &action);
		printf(" %d %s%s", numbers[i],
		       action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "handled",
		       sigismember(&blocked, numbers[i]) ? " blocked" : "");
	}
	printf("\n");
}

int main(void)
{
	sigset_t set;

	show("at start");
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	start();
	show("with a context");
	struct work w = begin_work();
	do_step(&w);
	show("after work");
	return 0;
}
