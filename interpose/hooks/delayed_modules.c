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
#include "session/session.h"
#include "sass/fatbin.h"
#include "track/image_retention.h"

#define DEVICES 64
#define SETTINGS 64
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

/* The machine code that the driver makes of PTX, or of the PTX in a fatbin. */
static uint8_t *delayed_ptx(const struct image *image, const struct loading *l)
{
	CUjit_option options[SETTINGS];
	void *values[SETTINGS], *cubin = NULL;
	uint8_t *out = NULL;
	size_t size = 0, new_size;
	CUlinkState link;
	unsigned count = 0;

	if (!real.cuLinkCreate_v2 || !real.cuLinkAddData_v2 || !real.cuLinkComplete || !real.cuLinkDestroy)
		return NULL;
	for (uint32_t i = 0; i < l->setting_count && count < SETTINGS; i++)
		if (l->settings[i].what == TT_SETTING_JIT) {
			options[count] = (CUjit_option)l->settings[i].number;
			values[count++] = (void *)(uintptr_t)l->settings[i].value;
		}
	CUresult r = real.cuLinkCreate_v2(count, options, values, &link);
	if (r == CUDA_SUCCESS) {
		bool text = image->kind == TT_MODULE_PTX;
		r = real.cuLinkAddData_v2(link, text ? CU_JIT_INPUT_PTX : CU_JIT_INPUT_FATBINARY, (void *)image->bytes,
					  image->size + text, "", 0, NULL, NULL);
		if (r == CUDA_SUCCESS)
			r = real.cuLinkComplete(link, &cubin, &size);
		if (r == CUDA_SUCCESS)
			out = delay_cubin(cubin, size, &new_size);
		real.cuLinkDestroy(link);
	}
	if (r != CUDA_SUCCESS)
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
