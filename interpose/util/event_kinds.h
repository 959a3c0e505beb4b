/*
 * Properties of event kinds from format.h.
 */
#ifndef TT_UTIL_EVENT_KINDS_H
#define TT_UTIL_EVENT_KINDS_H

#include <stdbool.h>

#include "format.h"

/* Whether a kind has one of these properties: enum tt_kind_property. */
static inline bool event_kind_is(uint32_t kind, unsigned properties)
{
#define ROW(name, number, properties) [number] = (properties),
	static const uint16_t table[] = {TT_EVENT_KINDS(ROW)};
#undef ROW

	return kind < sizeof(table) / sizeof(table[0]) && (table[kind] & properties);
}

#endif
