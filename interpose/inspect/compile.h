/*
 * Has the driver compile PTX, as it does when a module is loaded.
 */
#ifndef TT_INSPECT_COMPILE_H
#define TT_INSPECT_COMPILE_H

#include "driver/driver.h"
#include "format.h"
#include "track/image.h"

/*
 * The machine code of PTX, or of the PTX in a fatbin, for the current device. settings: the options of the loading. take
 * gets a cubin that lasts until it returns; it is called after success alone.
 */
CUresult compile_ptx(const struct image *image, const struct tt_setting *settings, uint32_t count,
		     void (*take)(void *user, const void *cubin, size_t size), void *user);

#endif
