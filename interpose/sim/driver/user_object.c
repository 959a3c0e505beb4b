/*
 * User objects: objects of the program that live as long as graphs refer to them.
 *
 * Invariant: the destructor runs once, on the thread of host functions, after the last reference is
 * released.
 */
#include <stdlib.h>

#include "sim/driver/driver.h"

struct CUuserObject_st {
	unsigned long references;
	CUhostFn destroy;
	void *data;
};

static struct sim_work *destruction(const struct CUuserObject_st *object)
{
	struct sim_work *work = work_new(WORK_HOST, NULL);

	work->host.function = object->destroy;
	work->host.data = object->data;
	return work;
}

static void release(CUuserObject object, unsigned long count)
{
	object->references -= count;
	if (object->references)
		return;
	handle_remove(object);
	engine_call_host(destruction(object));
	free(object);
}

void user_references_keep(struct user_reference *references, size_t count)
{
	for (size_t i = 0; i < count; i++)
		references[i].object->references += references[i].count;
}

void user_references_release(struct user_reference *references, size_t count)
{
	for (size_t i = 0; i < count; i++)
		release(references[i].object, references[i].count);
}

CUresult cuUserObjectCreate(CUuserObject *out, void *data, CUhostFn destroy, unsigned int count, unsigned int flags)
{
	ENTER(sim_enter_driver());
	INVALID_IF(!out || !destroy || !count || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	CUuserObject object = sim_alloc(sizeof *object);
	object->references = count;
	object->destroy = destroy;
	object->data = data;
	handle_add(object, HANDLE_USER_OBJECT);
	*out = object;
	return sim_leave(CUDA_SUCCESS);
}

static CUresult enter_object(CUuserObject object, unsigned count)
{
	CUresult result = sim_enter_driver();

	INVALID_IF(!result && (!handle_is(object, HANDLE_USER_OBJECT) || !count));
	return result;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	ENTER(enter_object(object, count));
	object->references += count;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	ENTER(enter_object(object, count));
	INVALID_IF(count > object->references);
	release(object, count);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	ENTER(enter_object(object, count));
	if (!handle_is(graph, HANDLE_GRAPH) || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE ||
	    (flags & CU_GRAPH_USER_OBJECT_MOVE && count > object->references))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		object->references += count;
	for (size_t i = 0; i < graph->object_count; i++) {
		if (graph->objects[i].object == object) {
			graph->objects[i].count += count;
			return sim_leave(CUDA_SUCCESS);
		}
	}
	graph->objects = realloc(graph->objects, (graph->object_count + 1) * sizeof *graph->objects);
	if (!graph->objects)
		abort();
	graph->objects[graph->object_count++] = (struct user_reference){object, count};
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	ENTER(enter_object(object, count));
	for (size_t i = 0; handle_is(graph, HANDLE_GRAPH) && i < graph->object_count; i++) {
		if (graph->objects[i].object == object && count <= graph->objects[i].count) {
			graph->objects[i].count -= count;
			if (!graph->objects[i].count)
				graph->objects[i] = graph->objects[--graph->object_count];
			release(object, count);
			return sim_leave(CUDA_SUCCESS);
		}
	}
	return sim_leave(CUDA_ERROR_INVALID_VALUE);
}
