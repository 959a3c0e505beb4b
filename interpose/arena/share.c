/*
 * Shares the arena's memory with other processes. See share.h for the invariant.
 */
#include "arena/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/recorder_thread.h"
#include "arena/mapping.h"
#include "arena/parts.h"
#include "inspect/contexts.h"

#define SHARE_MARK "tt-share"
#define PATIENCE_S 5

/* What the importing process sends, and what the owner sends back with the descriptor. */
struct request {
	uint64_t base, id;
};

struct reply {
	uint64_t offset; /* of the allocation in the memory */
};

struct opened {
	struct shared_handle handle;
	CUdevice device; /* its kernels have access at this address */
	CUdeviceptr range, address;
	uint64_t times;
	struct opened *next;
};

static struct {
	pthread_mutex_t lock;
	char name[sizeof(((struct shared_handle *)0)->socket)]; /* empty: no thread runs */
	int listener;
	struct stat listener_status;
	pid_t server; /* process of the thread; a forked child differs */
	struct opened *opened;
} share = {.lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1};

static socklen_t address_of(const char *socket_name, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(a->sun_path + 1, socket_name, sizeof(share.name)); /* a first byte of 0: an abstract address, without a file */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + sizeof(share.name));
}

static bool of_this_user(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

static void be_impatient(int fd)
{
	struct timeval t = {.tv_sec = PATIENCE_S};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* ---- owner ---- */

static bool send_descriptor(int to, int fd, const struct reply *reply)
{
	struct iovec data = {.iov_base = (void *)reply, .iov_len = sizeof(*reply)};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)};

	control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*reply);
}

/* A descriptor of the memory that holds the allocation, or -1. */
static int export_memory(uint64_t base)
{
	CUmemGenericAllocationHandle memory;
	int fd = -1;

	if (real.cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)base) != CUDA_SUCCESS)
		return -1;
	if (real.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
		fd = -1;
	real.cuMemRelease(memory);
	return fd;
}

static void answer(int to)
{
	struct arena_allocation a;
	struct request request;

	be_impatient(to);
	if (!of_this_user(to) || recv(to, &request, sizeof(request), MSG_WAITALL) != (ssize_t)sizeof(request) ||
	    !arena_holds(request.base) || !arena_find(request.base, &a) || a.base != request.base || a.id != request.id)
		return;
	int fd = export_memory(a.base);
	if (fd < 0)
		return;
	send_descriptor(to, fd, &(struct reply){.offset = a.base - a.mapping});
	close(fd);
}

/* The program may close descriptors that it does not own, and reuse the number. */
static bool is_ours(void)
{
	struct stat now;

	return !fstat(share.listener, &now) && now.st_dev == share.listener_status.st_dev &&
	       now.st_ino == share.listener_status.st_ino;
}

static void *serve(void *unused)
{
	capture_mode_relax();
	while (is_ours()) {
		int to = accept4(share.listener, NULL, NULL, SOCK_CLOEXEC);

		if (to < 0 && errno != EINTR && errno != ECONNABORTED)
			break;
		if (to < 0)
			continue;
		answer(to);
		close(to);
	}
	return unused;
}

/* Caller holds the lock. */
static bool serving(void)
{
	struct sockaddr_un a;
	uint64_t number;

	if (share.server == getpid() && *share.name && is_ours())
		return true;
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return false;
	snprintf(share.name, sizeof(share.name), "tt-%016llx", (unsigned long long)number);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	share.listener = fcntl(fd, F_DUPFD_CLOEXEC, 200); /* above the numbers that programs make assumptions about */
	close(fd);
	socklen_t size = address_of(share.name, &a);
	if (share.listener >= 0 && !fstat(share.listener, &share.listener_status) &&
	    !bind(share.listener, (struct sockaddr *)&a, size) && !listen(share.listener, 64) &&
	    !recorder_thread(NULL, "tt-share", 0, serve, NULL)) {
		share.server = getpid();
		return true;
	}
	if (share.listener >= 0)
		close(share.listener);
	share.listener = -1;
	*share.name = 0;
	return false;
}

bool arena_share(CUdeviceptr p, struct shared_handle *h)
{
	struct arena_allocation a;

	if (!arena_exportable(p) || !arena_find(p, &a) || a.pool)
		return false;
	pthread_mutex_lock(&share.lock);
	bool ok = serving();
	if (ok) {
		*h = (struct shared_handle){.base = a.base, .id = a.id, .size = a.size, .mapped = a.mapped};
		memcpy(h->mark, SHARE_MARK, sizeof(h->mark));
		memcpy(h->socket, share.name, sizeof(h->socket));
	}
	pthread_mutex_unlock(&share.lock);
	return ok;
}

/* ---- importer ---- */

bool arena_is_shared_handle(const void *handle)
{
	return !memcmp(handle, SHARE_MARK, sizeof(((struct shared_handle *)0)->mark));
}

static int receive_descriptor(int from, struct reply *reply)
{
	struct iovec data = {.iov_base = reply, .iov_len = sizeof(*reply)};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)};
	int fd = -1;

	if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*reply))
		return -1;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static int ask(const struct shared_handle *h, struct reply *reply)
{
	struct request request = {.base = h->base, .id = h->id};
	struct sockaddr_un a;
	int fd = -1, to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (to < 0)
		return -1;
	be_impatient(to);
	socklen_t size = address_of(h->socket, &a);
	if (!connect(to, (struct sockaddr *)&a, size) && of_this_user(to) &&
	    send(to, &request, sizeof(request), MSG_NOSIGNAL) == (ssize_t)sizeof(request))
		fd = receive_descriptor(to, reply);
	close(to);
	return fd;
}

/* Maps the descriptor's memory; the driver chooses the address. */
static CUresult map_memory(int fd, uint64_t size, CUdevice device, CUdeviceptr *range)
{
	CUmemGenericAllocationHandle memory;
	CUresult r = real.cuMemImportFromShareableHandle(&memory, (void *)(uintptr_t)fd,
							 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (r != CUDA_SUCCESS)
		return r;
	if ((r = real.cuMemAddressReserve(range, size, 0, 0, 0)) != CUDA_SUCCESS)
		real.cuMemRelease(memory);
	else if ((r = mapping_make_of(*range, size, memory, device, 0)) != CUDA_SUCCESS)
		real.cuMemAddressFree(*range, size);
	return r;
}

static CUresult open_new(struct opened *o)
{
	struct reply reply;
	int fd = ask(&o->handle, &reply);

	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = map_memory(fd, o->handle.mapped, o->device, &o->range);
	close(fd);
	o->address = o->range + reply.offset;
	return r;
}

CUresult arena_open_shared(const struct shared_handle *h, CUdeviceptr *p)
{
	CUdevice device;
	CUresult r;

	if (!real.cuMemImportFromShareableHandle || !real.cuMemAddressReserve || !real.cuMemAddressFree)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!p || (share.server == getpid() && !memcmp(h->socket, share.name, sizeof(share.name))))
		return CUDA_ERROR_INVALID_VALUE; /* a process may not open its own handle */
	if ((r = real.cuCtxGetDevice(&device)) != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&share.lock);
	struct opened *o = share.opened;
	while (o && (o->device != device || memcmp(&o->handle, h, sizeof(*h)) != 0))
		o = o->next;
	if (!o) {
		if (!(o = calloc(1, sizeof(*o)))) {
			pthread_mutex_unlock(&share.lock);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		o->handle = *h;
		o->device = device;
		if ((r = open_new(o)) == CUDA_SUCCESS) {
			o->next = share.opened;
			share.opened = o;
		}
	}
	if (r == CUDA_SUCCESS) {
		o->times++;
		*p = o->address;
	} else {
		free(o);
	}
	pthread_mutex_unlock(&share.lock);
	return r;
}

bool arena_close_shared(struct context *c, CUdeviceptr p, CUresult *r)
{
	pthread_mutex_lock(&share.lock);
	struct opened **at = &share.opened;
	while (*at && (*at)->address != p)
		at = &(*at)->next;
	struct opened *o = *at, *last = o && !--o->times ? o : NULL;
	if (last)
		*at = o->next;
	pthread_mutex_unlock(&share.lock);
	if (o)
		*r = CUDA_SUCCESS;
	if (last) {
		*r = arena_wait_for(c);
		real.cuMemUnmap(last->range, last->handle.mapped);
		real.cuMemAddressFree(last->range, last->handle.mapped);
		free(last);
	}
	return o != NULL;
}

void arena_share_forget(void)
{
	pthread_mutex_init(&share.lock, NULL);
	share.opened = NULL;
}
