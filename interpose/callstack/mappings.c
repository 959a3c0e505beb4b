/*
 * Finds the files that code is mapped from. See mappings.h.
 */
#define _GNU_SOURCE
#include "callstack/mappings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/session.h"
#include "util/vector.h"

#define PATH_SIZE 4096

static struct {
	struct object *list;
	size_t count, capacity;
} objects;

static bool add(struct object o)
{
	if (!make_room(&objects.list, &objects.capacity, objects.count, 1, sizeof(*objects.list)) || !(o.path = strdup(o.path)))
		return false;
	objects.list[objects.count++] = o;
	return true;
}

void objects_read(void)
{
	char line[PATH_SIZE + 128], path[PATH_SIZE], mode[8];
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long begin, end, offset;

	while (objects.count)
		free(objects.list[--objects.count].path);
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095[^\n]", &begin, &end, mode, &offset, path) == 5 &&
		    mode[2] == 'x' && *path == '/' && !add((struct object){begin, end, offset, path})) {
			session_lost("call stacks lack file names: no host memory");
			break;
		}
	if (f)
		fclose(f);
}

const struct object *objects_find(uintptr_t address)
{
	for (size_t i = 0; i < objects.count; i++)
		if (address >= objects.list[i].begin && address < objects.list[i].end)
			return &objects.list[i];
	return NULL;
}

void objects_forget(void)
{
	objects.count = 0;
}
