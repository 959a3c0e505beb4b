/*
 * Says through NVTX what its arguments tell it to, and what it was answered. A word is an action,
 * or action:text.
 *
 *   cuda             makes a context current and prepares work; use makes it current in another thread
 *   unuse            makes none current
 *   launch[:N]       launches a kernel N times; sync waits for it
 *   graph            launches a graph of that kernel
 *   module:N         says what follows as module 0, 1 (of an older version) or 2 (which has no domains)
 *   domain:NAME      says what follows in this domain; domain: in the default one
 *   push:T pop mark:T start:T end   end ends the range that was started last
 *   pushw:T markw:T  as wide characters; reg:T pushes and markreg:T marks a registered message
 *   extended:T       a mark with a payload of several members; popextended and endextended end ranges with it,
 *                    pushextended and startextended begin ranges without a message
 *   full:T           a mark with everything: category, colour, payload
 *   thread:N { … }   says the rest up to } in N threads at once; wait: for them all to get there
 *   only:N { … }     says the rest up to } in the Nth of them, or in the Nth repetition
 *   fork { … }       says the rest up to } in a child
 *   callback:T       pushes, marks and pops T in a host function
 *   name:T           names this thread; stream:T makes a stream and names it
 *   times:N { … }    repeats; %d in a text is the number of the repetition
 *   reset            destroys the context
 */
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvtx.h"
#include "program.h"

NVTX_MODULE(newest, 16, 16)
NVTX_MODULE(older, 13, 14)
NVTX_MODULE(oldest, 12, 0)

struct speaker {
	struct nvtx_module *module;
	void *domain;
	uint64_t ranges[64];
	int count;
	int repetition;
	bool quiet;
};

static struct work work;
static CUcontext context;
static unsigned elements = 5000, rounds = 3;
static pthread_barrier_t all;

/* What was answered. */
static void __attribute__((format(printf, 2, 3))) tell(const struct speaker *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (!s->quiet)
		vprintf(format, args);
	va_end(args);
}

static struct nvtx_event event_of(int type, const void *message)
{
	struct nvtx_event e = {.version = 3, .size = sizeof(e), .message_type = type};

	e.message.ascii = message;
	return e;
}

static wchar_t *widen(const char *text, wchar_t *to)
{
	size_t n = 0;

	for (; *text; text++) /* "~" stands for what is not ASCII: of two, three and four bytes */
		if (*text == '~') {
			to[n++] = 0xe9;
			to[n++] = 0x20ac;
			to[n++] = 0x1f600;
		} else {
			to[n++] = (unsigned char)*text;
		}
	to[n] = 0;
	return to;
}

static int push(struct speaker *s, int type, const void *message)
{
	struct nvtx_event e = event_of(type, message);
	struct nvtx_module *m = s->module;

	if (s->domain)
		return NVTX_CALL(m, CORE2, DOMAIN_PUSH, int (*)(void *, struct nvtx_event *), (s->domain, &e), -2);
	if (type == 1)
		return NVTX_CALL(m, CORE, PUSH_A, int (*)(const char *), (message), -2);
	if (type == 2)
		return NVTX_CALL(m, CORE, PUSH_W, int (*)(const wchar_t *), (message), -2);
	return NVTX_CALL(m, CORE, PUSH_EX, int (*)(struct nvtx_event *), (&e), -2);
}

static int pop(struct speaker *s)
{
	if (s->domain)
		return NVTX_CALL(s->module, CORE2, DOMAIN_POP, int (*)(void *), (s->domain), -2);
	return NVTX_CALL(s->module, CORE, POP, int (*)(void), (), -2);
}

static void mark_with(struct speaker *s, struct nvtx_event *e)
{
	if (s->domain)
		NVTX_CALL(s->module, CORE2, DOMAIN_MARK, void (*)(void *, struct nvtx_event *), (s->domain, e), (void)0);
	else
		NVTX_CALL(s->module, CORE, MARK_EX, void (*)(struct nvtx_event *), (e), (void)0);
}

static void mark(struct speaker *s, int type, const void *message)
{
	struct nvtx_event e = event_of(type, message);

	if (!s->domain && type == 1)
		NVTX_CALL(s->module, CORE, MARK_A, void (*)(const char *), (message), (void)0);
	else if (!s->domain && type == 2)
		NVTX_CALL(s->module, CORE, MARK_W, void (*)(const wchar_t *), (message), (void)0);
	else
		mark_with(s, &e);
}

static uint64_t range_start(struct speaker *s, const char *text)
{
	struct nvtx_event e = event_of(1, text);

	if (s->domain)
		return NVTX_CALL(s->module, CORE2, DOMAIN_START, uint64_t (*)(void *, struct nvtx_event *), (s->domain, &e), 0);
	return NVTX_CALL(s->module, CORE, START_A, uint64_t (*)(const char *), (text), 0);
}

static void range_end(struct speaker *s, uint64_t id)
{
	if (s->domain)
		NVTX_CALL(s->module, CORE2, DOMAIN_END, void (*)(void *, uint64_t), (s->domain, id), (void)0);
	else
		NVTX_CALL(s->module, CORE, END, void (*)(uint64_t), (id), (void)0);
}

static void *registered(struct speaker *s, const char *text)
{
	return NVTX_CALL(s->module, CORE2, REGISTER_A, void *(*)(void *, const char *), (s->domain, text), NULL);
}

static void mark_full(struct speaker *s, const char *text)
{
	struct nvtx_event e = event_of(1, text);

	e.category = 7;
	e.color_type = 1;
	e.color = 0xff00ff80;
	e.payload_type = 3;
	e.payload.f64 = 2.5;
	mark_with(s, &e);
	e.payload_type = 5;
	e.payload.u64 = UINT64_MAX;
	mark_with(s, &e);
	e.size = 24; /* of a version that had no message */
	mark_with(s, &e);
	if (s->domain)
		NVTX_CALL(s->module, CORE2, DOMAIN_MARK, void (*)(void *, struct nvtx_event *), (s->domain, NULL), (void)0);
	else
		NVTX_CALL(s->module, CORE, MARK_EX, void (*)(struct nvtx_event *), (NULL), (void)0);
}

static const struct {
	uint64_t communicator, bytes;
	int32_t operation;
} members = {0x123456789abcdef0, 4096, 2};
static const struct nvtx_payload payload = {1 << 24, sizeof(members), &members};

static void mark_extended(struct speaker *s, const char *text)
{
	struct nvtx_event e = event_of(1, text);

	e.payload_type = (int32_t)0xDFBD0009;
	e.reserved = 1;
	e.payload.u64 = (uintptr_t)&payload;
	mark_with(s, &e);
}

typedef const struct nvtx_payload *payloads;

static int push_extended(struct speaker *s)
{
	return NVTX_EXTENSION_CALL(s->module, PUSH_PAYLOAD, int (*)(void *, payloads, size_t), (s->domain, &payload, 1), -2);
}

static int pop_extended(struct speaker *s)
{
	return NVTX_EXTENSION_CALL(s->module, POP_PAYLOAD, int (*)(void *, payloads, size_t), (s->domain, &payload, 1), -2);
}

static uint64_t start_extended(struct speaker *s)
{
	return NVTX_EXTENSION_CALL(s->module, START_PAYLOAD, uint64_t(*)(void *, payloads, size_t),
				   (s->domain, &payload, 1), 0);
}

static void end_extended(struct speaker *s, uint64_t id)
{
	NVTX_EXTENSION_CALL(s->module, END_PAYLOAD, void (*)(void *, uint64_t, payloads, size_t),
			    (s->domain, id, &payload, 1), (void)0);
}

static void CUDA_CB callback(void *text)
{
	struct speaker s = {.module = use_newest()};

	int level = push(&s, 1, text);
	mark(&s, 1, text);
	tell(&s, "callback %s: %d, %d\n", (char *)text, level, pop(&s));
}

static char **say_all(struct speaker *s, char **words);

struct part {
	struct speaker speaker;
	char **words;
};

static void *in_thread(void *part)
{
	struct part *p = part;

	say_all(&p->speaker, p->words);
	return NULL;
}

/* Past the } that belongs to where it stands. */
static char **skip(char **words)
{
	for (int depth = 0; *words; words++)
		if (!strcmp(*words, "{"))
			depth++;
		else if (!strcmp(*words, "}") && --depth == 0)
			return words + 1;
	return words;
}

static void say_in_threads(struct speaker *s, int n, char **words)
{
	struct part *parts = calloc((size_t)n, sizeof(*parts));
	pthread_t threads[64];

	pthread_barrier_init(&all, NULL, (unsigned)n);
	for (int i = 0; i < n; i++) {
		parts[i].speaker = (struct speaker){.module = s->module, .domain = s->domain, .quiet = n > 1};
		parts[i].speaker.repetition = i;
		parts[i].words = words;
		pthread_create(&threads[i], NULL, in_thread, &parts[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(parts);
}

static void say_in_child(struct speaker *s, char **words)
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		say_all(s, words);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("child ended with %d\n", status);
}

static void make_context(void)
{
	start();
	OK(cuCtxGetCurrent(&context));
	work = begin_work();
}

static struct nvtx_module *module_of(int number)
{
	return number == 0 ? use_newest() : number == 1 ? use_older() : use_oldest();
}

static void launch_graph(void)
{
	static CUgraphExec exec;
	CUgraph graph;
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = work.mix, .gridDimX = (elements + 255) / 256, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256,
		.blockDimY = 1, .blockDimZ = 1, .kernelParams = PARAMS(&work.data, &elements, &rounds),
	};

	if (!exec) {
		OK(cuGraphCreate(&graph, 0));
		OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphDestroy(graph));
	}
	OK(cuGraphLaunch(exec, NULL));
}

static char **say(struct speaker *s, const char *action, const char *given, char **rest)
{
	int number = atoi(given);
	static __thread wchar_t wide[1 << 16];
	static __thread char text[1 << 16];

	snprintf(text, sizeof(text), given, s->repetition);
	if (!strcmp(action, "cuda")) {
		make_context();
	} else if (!strcmp(action, "use") || !strcmp(action, "unuse")) {
		OK(cuCtxSetCurrent(*action == 'u' && action[1] == 's' ? context : NULL));
	} else if (!strcmp(action, "launch")) {
		for (int i = 0; i < (number ? number : 1); i++)
			OK(launch(work.mix, elements, NULL, PARAMS(&work.data, &elements, &rounds)));
	} else if (!strcmp(action, "graph")) {
		launch_graph();
	} else if (!strcmp(action, "sync")) {
		OK(cuCtxSynchronize());
	} else if (!strcmp(action, "module")) {
		s->module = module_of(number);
	} else if (!strcmp(action, "domain")) {
		s->domain = !*given ? NULL
				    : NVTX_CALL(s->module, CORE2, CREATE_A, void *(*)(const char *), (text), NULL);
		tell(s, "domain %s: %s\n", given, s->domain ? "made" : "none");
	} else if (!strcmp(action, "push")) {
		tell(s, "push %s: %d\n", text, push(s, 1, text));
	} else if (!strcmp(action, "pushw")) {
		tell(s, "push %s: %d\n", text, push(s, 2, widen(text, wide)));
	} else if (!strcmp(action, "reg")) {
		tell(s, "push %s: %d\n", text, push(s, 3, registered(s, text)));
	} else if (!strcmp(action, "pop")) {
		tell(s, "pop: %d\n", pop(s));
	} else if (!strcmp(action, "mark")) {
		mark(s, 1, text);
	} else if (!strcmp(action, "markw")) {
		mark(s, 2, widen(text, wide));
	} else if (!strcmp(action, "markreg")) {
		mark(s, 3, registered(s, text));
	} else if (!strcmp(action, "extended")) {
		mark_extended(s, text);
	} else if (!strcmp(action, "pushextended")) {
		tell(s, "push: %d\n", push_extended(s));
	} else if (!strcmp(action, "popextended")) {
		tell(s, "pop: %d\n", pop_extended(s));
	} else if (!strcmp(action, "startextended")) {
		s->ranges[s->count++] = start_extended(s);
	} else if (!strcmp(action, "endextended")) {
		end_extended(s, s->ranges[--s->count]);
	} else if (!strcmp(action, "full")) {
		mark_full(s, text);
	} else if (!strcmp(action, "start")) {
		s->ranges[s->count++] = range_start(s, text);
		tell(s, "start %s: %s\n", text, s->ranges[s->count - 1] ? "a range" : "none");
	} else if (!strcmp(action, "end")) {
		range_end(s, s->ranges[--s->count]);
	} else if (!strcmp(action, "name")) {
		NVTX_CALL(s->module, CORE, NAME_THREAD_A, void (*)(uint32_t, const char *),
			  ((uint32_t)syscall(SYS_gettid), text), (void)0);
	} else if (!strcmp(action, "stream")) {
		CUstream stream;
		OK(cuStreamCreate(&stream, 0));
		NVTX_CALL(s->module, CUDA, NAME_CU_STREAM_A, void (*)(CUstream, const char *), (stream, text), (void)0);
		OK(launch(work.mix, elements, stream, PARAMS(&work.data, &elements, &rounds)));
	} else if (!strcmp(action, "callback")) {
		OK(cuLaunchHostFunc(NULL, callback, strdup(text)));
		OK(cuCtxSynchronize());
	} else if (!strcmp(action, "wait")) {
		pthread_barrier_wait(&all);
	} else if (!strcmp(action, "reset")) {
		OK(cuDevicePrimaryCtxReset(0));
	} else if (!strcmp(action, "thread")) {
		say_in_threads(s, number ? number : 1, rest);
		return skip(rest - 1);
	} else if (!strcmp(action, "only")) {
		return s->repetition == number ? say_all(s, rest) + 1 : skip(rest - 1);
	} else if (!strcmp(action, "fork")) {
		say_in_child(s, rest);
		return skip(rest - 1);
	} else if (!strcmp(action, "times")) {
		struct speaker quiet = *s;
		quiet.quiet = true;
		for (quiet.repetition = 0; quiet.repetition < number; quiet.repetition++)
			say_all(&quiet, rest);
		return skip(rest - 1);
	} else {
		printf("%s is not known\n", action);
		exit(2);
	}
	return rest;
}

static char *longer(const char *action, size_t letters)
{
	char *word = malloc(strlen(action) + letters + 2);
	size_t n = (size_t)sprintf(word, "%s:", action);

	memset(word + n, 'x', letters);
	word[n + letters] = 0;
	return word;
}

static char **say_all(struct speaker *s, char **words)
{
	while (*words && strcmp(*words, "}")) {
		char action[32] = "";
		const char *colon = strchr(*words, ':');
		snprintf(action, sizeof(action), "%.*s", colon ? (int)(colon - *words) : 31, *words);
		if (colon && colon[1] == '@') /* a long text: of so many letters */
			*words = longer(action, (size_t)atol(colon + 2)), colon = *words + strlen(action);
		bool block = words[1] && !strcmp(words[1], "{");
		words = say(s, action, colon ? colon + 1 : "", words + 1 + block);
	}
	return words;
}

int main(int argc, char **argv)
{
	struct speaker s = {.module = use_newest()};

	(void)argc;
	say_all(&s, argv + 1);
	return 0;
}
