/* A user object lives as long as the last graph that refers to it. */
#include "program.h"

#include <stdatomic.h>
#include <unistd.h>

static atomic_int gone;

static void destroyed(void *data)
{
	atomic_fetch_add(&gone, *(int *)data);
}

static void expect(const char *when, int count)
{
	for (int i = 0; i < 2000 && atomic_load(&gone) < count; i++)
		usleep(1000);
	printf("%s: %d\n", when, atomic_load(&gone));
}

int main(void)
{
	static int one = 1, ten = 10;
	CUuserObject object;
	CUgraph graph, clone;
	CUgraphNode node;
	CUgraphExec executable;

	start();
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	SHOW(cuUserObjectCreate(&object, &one, destroyed, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	SHOW(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	SHOW(cuUserObjectRetain(object, 1));
	SHOW(cuUserObjectRelease(object, 2));
	SHOW(cuGraphClone(&clone, graph));
	SHOW(cuGraphDestroy(graph));
	expect("the clone refers to it", 0);
	SHOW(cuGraphInstantiate(&executable, clone, 0));
	SHOW(cuGraphDestroy(clone));
	SHOW(cuGraphLaunch(executable, NULL));
	SHOW(cuCtxSynchronize());
	expect("the executable refers to it", 0);
	SHOW(cuGraphExecDestroy(executable));
	expect("nothing does", 1);

	OK(cuGraphCreate(&graph, 0));
	SHOW(cuUserObjectCreate(&object, &ten, destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	SHOW(cuGraphRetainUserObject(graph, object, 3, 0));
	SHOW(cuUserObjectRelease(object, 1));
	SHOW(cuGraphReleaseUserObject(graph, object, 2));
	expect("one reference left", 1);
	SHOW(cuGraphReleaseUserObject(graph, object, 1));
	expect("none", 11);
	SHOW(cuUserObjectCreate(&object, &ten, destroyed, 1, 0));
	SHOW(cuUserObjectCreate(&object, &ten, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphDestroy(graph));
	return 0;
}
