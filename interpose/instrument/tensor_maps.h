/*
 * Tensor maps that the program encoded: a record of a tensor copy has the map, whose layout is not documented.
 *
 * Invariant: the maps that were encoded before a traced launch are in the run before its records, each once.
 */
#ifndef TT_INSTRUMENT_TENSOR_MAPS_H
#define TT_INSTRUMENT_TENSOR_MAPS_H

#include "driver/driver.h"
#include "format.h"

/* made: the arguments of the call. */
void tensor_map_encoded(const CUtensorMap *map, struct tt_tensor_map *made);
/* A map for the same tensor at another address. */
void tensor_map_moved(const CUtensorMap *before, const CUtensorMap *after, uint64_t address);
/* Writes the maps that were not written yet. */
void tensor_maps_write(void);
void tensor_maps_forget(void); /* in a forked child */

#endif
