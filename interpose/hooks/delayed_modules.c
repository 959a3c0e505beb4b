/*
 * Creates modules with delayed kernels. See delayed_modules.h for the invariant.
 *
 * Machine code is patched. If there is none for these devices, the driver first compiles the PTX with the program's
 * own options.
 */
#include "hooks/delayed_modules.h"

#include <pthread.h>

#include "delay/image.h"
#include "delay/points.h"
#include "delay/simulated.h"
#include "inspect/compile.h"
#include "session/session.h"
#include "sass/fatbin.h"
#include "track/image_retention.h"

#define DEVICES 64
#define FILE_MAX ((size_t)4 << 30)

static struct {
	unsigned capabilities[DEVICES]; /* 90 is 9.0 */
	size_t count;
} devices;

static void find_devices(void)
{
	int count = 0, major, minor;

	if (!real.cuDeviceGetCount || real.cuDeviceGetCount(&count) || !real.cuDeviceGetAttribute)
		return;
	for (CUdevice d = 0; d < count && d < DEVICES; d++)
		if (!real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d) &&
		    !real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d))
			devices.capabilities[devices.count++] = (unsigned)(10 * major + minor);
}

static const char *error_name(CUresult r)
{
	const char *name = NULL;

	return real.cuGetErrorName && !real.cuGetErrorName(r, &name) && name ? name : "an error";
}

static void take_delayed(void *out, const void *cubin, size_t size)
{
	size_t new_size;

	*(uint8_t **)out = delay_cubin(cubin, size, &new_size);
}

/* The machine code that the driver makes of PTX, or of the PTX in a fatbin. */
static uint8_t *delayed_ptx(const struct image *image, const struct loading *l)
{
	uint8_t *out = NULL;
	CUresult r = compile_ptx(image, l->settings, l->setting_count, take_delayed, &out);

	if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_SUPPORTED)
		session_warn("no delays in a module: the driver does not compile its PTX (%s)", error_name(r));
	return out;
}

static bool any_code(const struct image *fatbin)
{
	bool any = false;

	for (size_t i = 0; i < devices.count; i++)
		any |= fatbin_has_code(fatbin, devices.capabilities[i]);
	return any;
}

void *delayed_image(const struct loading *l)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct retained_image retained;
	uint8_t *out = NULL;
	size_t size;

	if (delays_simulated()) {
		delays_of_module();
		return NULL;
	}
	pthread_once(&once, find_devices);
	image_prepare();
	delays_of_module();
	if (l->path)
		retained_from_file(&retained, l->path, FILE_MAX);
	else
		retained_from_memory(&retained, image_readable(l->image) ? l->image : NULL);
	const struct image *image = &retained.image;
	if (image->kind == TT_MODULE_CUBIN)
		out = delay_cubin(image->bytes, image->size, &size);
	else if (image->kind == TT_MODULE_FATBIN && any_code(image))
		out = fatbin_replace(image, devices.capabilities, devices.count, delay_cubin);
	else if (image->kind != TT_MODULE_UNKNOWN)
		out = delayed_ptx(image, l);
	retained_release(&retained);
	return out;
}

void delayed_refused(CUresult refused, CUresult as_it_is)
{
	delays_not_loaded();
	if (as_it_is == CUDA_SUCCESS)
		session_warn("no delays in a module: the driver does not load the patched code (%s)", error_name(refused));
}
