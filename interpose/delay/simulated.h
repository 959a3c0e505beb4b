/*
 * Delays in kernels on the simulator, whose interpreter holds up warps at PTX statements.
 */
#ifndef TT_DELAY_SIMULATED_H
#define TT_DELAY_SIMULATED_H

#include <stdbool.h>

/* Whether the driver is a simulator. If so, it asks for the delays of each module that it loads. */
bool delays_simulated(void);

#endif
