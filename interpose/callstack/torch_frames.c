/*
 * Calls PyTorch's CapturedTraceback. See torch_frames.h for the invariant.
 *
 * The interpreter's lock is never taken: its holder may wait for this call. A module that is still imported has no
 * such class yet, and nothing is imported here.
 */
#define _GNU_SOURCE
#include "callstack/torch_frames.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <sys/types.h>

#include "session/session.h"
#include "store/store.h"

typedef void object; /* PyObject */

#define FUNCTIONS(F) \
	F(object *, PyGILState_GetThisThreadState, (void)) \
	F(object *, PyImport_GetModuleDict, (void)) \
	F(object *, PyDict_GetItemString, (object *, const char *)) \
	F(object *, PyObject_GetAttrString, (object *, const char *)) \
	F(object *, PyObject_CallMethod, (object *, const char *, const char *, ...)) \
	F(object *, PySequence_GetItem, (object *, ssize_t)) \
	F(ssize_t, PySequence_Size, (object *)) \
	F(const char *, PyUnicode_AsUTF8, (object *)) \
	F(long, PyLong_AsLong, (object *)) \
	F(void, Py_DecRef, (object *)) \
	F(object *, PyErr_Occurred, (void)) \
	F(int, PyErr_GivenExceptionMatches, (object *, object *)) \
	F(void, PyErr_Fetch, (object **, object **, object **)) \
	F(void, PyErr_Restore, (object *, object *, object *)) \
	F(int, Py_AddPendingCall, (int (*)(void *), void *))

#define MEMBER(type, name, parameters) type(*name) parameters;
static struct {
	FUNCTIONS(MEMBER)
	object **exception; /* PyExc_Exception */
	object *(*state)(void);
	int (*finalizing)(void);
	bool usable;
} py;
static struct {
	object *type, *value, *trace;
} kept; /* an exception of the program; guarded by the interpreter's lock */
static _Thread_local bool inside; /* Python code makes this call */

static void *either(const char *since_3_13, const char *before)
{
	void *found = dlsym(RTLD_DEFAULT, since_3_13);

	return found ? found : dlsym(RTLD_DEFAULT, before);
}

void torch_frames_open(void)
{
#define FIND(type, name, parameters) *(void **)&py.name = dlsym(RTLD_DEFAULT, #name);
	FUNCTIONS(FIND)
	py.exception = dlsym(RTLD_DEFAULT, "PyExc_Exception");
	*(void **)&py.state = either("PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet");
	*(void **)&py.finalizing = either("Py_IsFinalizing", "_Py_IsFinalizing");
#define IS_THERE(type, name, parameters) &&py.name
	py.usable = py.exception && py.state && py.finalizing FUNCTIONS(IS_THERE);
}

/* PyGILState_Check says yes to every thread where there are several interpreters. */
static bool has_lock(void)
{
	object *state = py.finalizing() ? NULL : py.PyGILState_GetThisThreadState();

	return state && state == py.state();
}

static int raise_kept(void *unused)
{
	(void)unused;
	py.PyErr_Restore(kept.type, kept.value, kept.trace);
	kept.type = NULL;
	return -1;
}

/*
 * PyTorch's failures end here. What a signal handler raised meanwhile, such as KeyboardInterrupt, is raised again by
 * the main thread, the only one that runs such handlers.
 */
static void end_exception(void)
{
	object *type, *value, *trace;

	py.PyErr_Fetch(&type, &value, &trace);
	if (type && !kept.type && !py.PyErr_GivenExceptionMatches(type, *py.exception)) {
		kept.type = type, kept.value = value, kept.trace = trace;
		if (!py.Py_AddPendingCall(raise_kept, NULL))
			return;
		kept.type = NULL;
	}
	py.Py_DecRef(type); /* takes NULL */
	py.Py_DecRef(value);
	py.Py_DecRef(trace);
}

static uint32_t text_member(object *frame, const char *name)
{
	object *member = py.PyObject_GetAttrString(frame, name);
	const char *text = member ? py.PyUnicode_AsUTF8(member) : NULL;
	uint32_t id = text ? store_string(session_store(), text) : TT_NO_ID;

	py.Py_DecRef(member);
	return id;
}

static uint32_t line_member(object *frame)
{
	object *member = py.PyObject_GetAttrString(frame, "lineno"); /* may be None */
	long line = member ? py.PyLong_AsLong(member) : 0;

	py.Py_DecRef(member);
	return line > 0 ? (uint32_t)line : 0;
}

/* summary: as traceback.StackSummary, the innermost last. */
static int read_summary(object *summary, struct tt_frame *frames, int most)
{
	int n = 0;

	for (ssize_t at = py.PySequence_Size(summary) - 1; at >= 0 && n < most; at--) {
		object *frame = py.PySequence_GetItem(summary, at);
		if (!frame)
			break;
		frames[n++] = (struct tt_frame){
			.kind = TT_FRAME_PYTHON,
			.flags = TT_FRAMEF_TORCH,
			.function = text_member(frame, "name"),
			.file = text_member(frame, "filename"),
			.line = line_member(frame),
		};
		py.Py_DecRef(frame);
	}
	return n;
}

static int ask_torch(struct tt_frame *frames, int most)
{
	object *modules = py.PyImport_GetModuleDict(), *module, *class, *taken, *summary;
	int n = 0;

	if (!modules || !(module = py.PyDict_GetItemString(modules, "torch.utils._traceback")))
		return 0;
	class = py.PyObject_GetAttrString(module, "CapturedTraceback");
	taken = class ? py.PyObject_CallMethod(class, "extract", NULL) : NULL;
	summary = taken ? py.PyObject_CallMethod(taken, "summary", NULL) : NULL;
	if (summary)
		n = read_summary(summary, frames, most);
	py.Py_DecRef(summary);
	py.Py_DecRef(taken);
	py.Py_DecRef(class);
	if (py.PyErr_Occurred())
		end_exception();
	return n;
}

int torch_frames(struct tt_frame *frames, int most)
{
	int n = 0;

	if (!py.usable || inside || !has_lock() || py.PyErr_Occurred())
		return 0;
	inside = true;
	n = ask_torch(frames, most);
	inside = false;
	return n;
}
