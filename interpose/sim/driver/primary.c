/*
 * Primary contexts, one per device.
 *
 * Invariant: a primary context keeps one handle for the whole process, and its reference count survives
 * resets.
 */
#include "sim/driver/driver.h"

static CUresult enter_primary(CUdevice device, struct sim_device **out)
{
	CUresult result = sim_enter_driver();

	*out = NULL;
	if (result)
		return result;
	if (!device_valid(device))
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*out = &sim_devices[device];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	struct sim_device *d;

	ENTER(enter_primary(device, &d));
	INVALID_IF(!out);
	if (!d->primary) {
		d->primary = context_make(device, d->primary_flags);
		d->primary->primary = true;
	} else if (!d->primary->alive) {
		context_start(d->primary, d->primary_flags);
	}
	d->primary->retained++;
	*out = d->primary;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct sim_device *d;

	ENTER(enter_primary(device, &d));
	if (!d->primary || !d->primary->retained)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	d->primary->retained--;
	if (!d->primary->retained && d->primary->alive)
		context_settle(d->primary);
	/* Other threads may have retained or released it meanwhile. */
	if (!d->primary->retained && d->primary->alive)
		context_end(d->primary);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct sim_device *d;

	ENTER(enter_primary(device, &d));
	/* Its references stay; only its contents are destroyed. */
	d->primary_flags = 0;
	if (d->primary && d->primary->alive)
		context_settle(d->primary);
	if (d->primary && d->primary->alive)
		context_end(d->primary);
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	struct sim_device *d;

	ENTER(enter_primary(device, &d));
	INVALID_IF(!context_flags_good(flags));
	d->primary_flags = flags;
	if (d->primary && d->primary->alive)
		d->primary->flags = flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	struct sim_device *d;

	ENTER(enter_primary(device, &d));
	INVALID_IF(!flags || !active);
	*flags = d->primary_flags;
	*active = d->primary && d->primary->alive;
	return sim_leave(CUDA_SUCCESS);
}
