/*
 * Takes the frames of a thread. See frames.h for the invariant.
 *
 * Native frames come from the exception unwinder. If both kinds are wanted, the native frame of the interpreter's
 * loop is recognised by the evaluation record in its part of the stack, without names or addresses of functions.
 * The Python functions that it runs replace it.
 *
 * Other code of the interpreter is left out, unless the interpreter is part of another program, whose code cannot
 * be distinguished from it. Callers of the outermost Python function are left out too if they can only be the start
 * of the interpreter: in the first thread of a program that is Python.
 */
#define _GNU_SOURCE
#include "callstack/frames.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/auxv.h>
#include <unwind.h>

#include "options/options.h"
#include "callstack/mappings.h"
#include "callstack/python.h"
#include "callstack/unwind.h"

#define OF_ONE_KIND 64 /* most frames of a stack with frames of one kind */
#define STACK_MOST ((uintptr_t)64 << 20) /* distance from the end of the first thread's stack that other stacks exceed */

struct range {
	uintptr_t begin, end;
};

static struct {
	struct range own, interpreter, first_stack;
} known;
static struct {
	__typeof__(_Unwind_Backtrace) *walk;
	__typeof__(_Unwind_GetIP) *get_pc;
	__typeof__(_Unwind_GetCFA) *get_stack;
} unwinder;

static bool is_in(struct range r, uintptr_t address)
{
	return address >= r.begin && address < r.end;
}

static struct range code_around(uintptr_t address)
{
	const struct object *o = objects_find(address);

	return o ? (struct range){o->begin, o->end} : (struct range){0, 0};
}

static bool is_called_python(uintptr_t address)
{
	const struct object *o = objects_find(address);

	return o && strstr(strrchr(o->path, '/'), "python");
}

static void know_interpreter(uintptr_t inside)
{
	uintptr_t end = getauxval(AT_RANDOM); /* an address that the kernel puts above all frames */

	if (is_called_python(inside))
		known.interpreter = code_around(inside);
	if (end > STACK_MOST && is_called_python(getauxval(AT_ENTRY)))
		known.first_stack = (struct range){end - STACK_MOST, end};
}

/* The library that a program loads when it throws an exception. */
static bool load_unwinder(void)
{
	void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	*(void **)&unwinder.walk = dlsym(library, "_Unwind_Backtrace");
	*(void **)&unwinder.get_pc = dlsym(library, "_Unwind_GetIP");
	*(void **)&unwinder.get_stack = dlsym(library, "_Unwind_GetCFA");
	unwind_open(library);
	return unwinder.walk && unwinder.get_pc && unwinder.get_stack;
}

const char *frames_open(void)
{
	const char *unreadable = NULL;
	const void *inside = NULL;

	objects_read();
	known.own = code_around((uintptr_t)frames_open);
	known.interpreter = known.first_stack = (struct range){0, 0};
	if (options.callstacks != CALLSTACKS_BACKTRACE)
		unreadable = python_find(&inside);
	if (inside && options.callstacks == CALLSTACKS_MIXED)
		know_interpreter((uintptr_t)inside);
	if (options.callstacks != CALLSTACKS_PYTHON && !load_unwinder()) {
		unwinder.walk = NULL;
		return "libgcc_s.so.1 not found: the run has no native call stacks";
	}
	return unreadable;
}

struct walk {
	struct frame *frames;
	int n, most;
	const struct frame *python;
	const char *const *evaluations;
	int next, count; /* Python functions */
	bool cut;        /* there are more Python functions than were taken */
	uintptr_t pc, stack; /* of the native frame whose end is not known yet */
};

/* Whether the callers of the outermost Python function are not wanted, or may not be adjacent to it. */
static bool is_through(const struct walk *w)
{
	return w->count && w->next == w->count && (w->cut || is_in(known.first_stack, w->stack));
}

static bool has_room(const struct walk *w)
{
	return w->n + (w->count - w->next) < w->most;
}

/* Appends the native frame whose part of the stack ends here, or its Python functions. Returns whether to go on. */
static bool put(struct walk *w, uintptr_t end)
{
	int before = w->next;

	while (w->next < w->count && is_in((struct range){w->stack, end}, (uintptr_t)w->evaluations[w->next]))
		w->frames[w->n++] = w->python[w->next++];
	if (w->next == before && has_room(w) && !is_in(known.own, w->pc) && !is_in(known.interpreter, w->pc))
		w->frames[w->n++] = (struct frame){.pc = w->pc};
	return has_room(w) && !is_through(w);
}

/* Returns whether to go on. */
static bool visit(void *to, uintptr_t pc, uintptr_t stack)
{
	struct walk *w = to;

	if (w->pc && !put(w, stack))
		pc = 0;
	w->pc = pc;
	w->stack = stack;
	return pc;
}

static _Unwind_Reason_Code visit_context(struct _Unwind_Context *context, void *to)
{
	return visit(to, unwinder.get_pc(context), unwinder.get_stack(context)) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static int merge(struct walk w)
{
	struct walk before = w;

	if (unwinder.walk && !unwind_frames(visit, &w)) {
		w = before;
		unwinder.walk(visit_context, &w);
	}
	if (w.pc)
		put(&w, w.stack);
	while (w.next < w.count)
		w.frames[w.n++] = w.python[w.next++];
	return w.n;
}

static int take_mixed(struct frame *frames)
{
	struct frame python[OF_ONE_KIND];
	const char *evaluations[OF_ONE_KIND];
	int count = python_frames(python, evaluations, OF_ONE_KIND);

	return merge((struct walk){.frames = frames,
				   .most = count ? FRAMES_MOST : OF_ONE_KIND,
				   .python = python,
				   .evaluations = evaluations,
				   .count = count,
				   .cut = count == OF_ONE_KIND});
}

int frames_take(struct frame *frames)
{
	int n = 0;

	if (options.callstacks == CALLSTACKS_MIXED)
		return take_mixed(frames);
	if (options.callstacks != CALLSTACKS_BACKTRACE)
		n = python_frames(frames, NULL, OF_ONE_KIND);
	if (!n && options.callstacks != CALLSTACKS_PYTHON)
		n = merge((struct walk){.frames = frames, .most = OF_ONE_KIND});
	return n;
}
