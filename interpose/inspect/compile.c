/*
 * Compiles PTX with the driver's linker. See compile.h.
 */
#include "inspect/compile.h"

#define SETTINGS 64

CUresult compile_ptx(const struct image *image, const struct tt_setting *settings, uint32_t count,
		     void (*take)(void *user, const void *cubin, size_t size), void *user)
{
	CUjit_option options[SETTINGS];
	void *values[SETTINGS], *cubin = NULL;
	bool text = image->kind == TT_MODULE_PTX;
	size_t size = 0;
	CUlinkState link;
	unsigned given = 0;

	if (!real.cuLinkCreate_v2 || !real.cuLinkAddData_v2 || !real.cuLinkComplete || !real.cuLinkDestroy)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (uint32_t i = 0; i < count && given < SETTINGS; i++)
		if (settings[i].what == TT_SETTING_JIT) {
			options[given] = (CUjit_option)settings[i].number;
			values[given++] = (void *)(uintptr_t)settings[i].value;
		}
	CUresult r = real.cuLinkCreate_v2(given, options, values, &link);
	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuLinkAddData_v2(link, text ? CU_JIT_INPUT_PTX : CU_JIT_INPUT_FATBINARY, (void *)image->bytes,
				  image->size + text, "", 0, NULL, NULL);
	if (r == CUDA_SUCCESS)
		r = real.cuLinkComplete(link, &cubin, &size);
	if (r == CUDA_SUCCESS)
		take(user, cubin, size);
	real.cuLinkDestroy(link);
	return r;
}
