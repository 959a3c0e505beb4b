/*
 * The recorder's checks of its options. See record_options.h.
 */
#include "load/record_options.h"

#include "options/options.h"
#include "options/rank.h"
#include "util/compiler.h"
#include "util/json_writer.h"

static char fault[300];

EXPORT const char *tt_options_fault(char *const *environment, const unsigned char *as_option)
{
	return options_read_from(environment, as_option, fault, sizeof(fault)) ? NULL : fault;
}

EXPORT const char *tt_option_fault(const char *name, const char *value)
{
	return options_check(name, value, fault, sizeof(fault)) ? NULL : fault;
}

EXPORT const char *tt_options_unknown(unsigned number)
{
	return number < UNKNOWN_VARIABLES && *options_unknown[number] ? options_unknown[number] : NULL;
}

EXPORT const char *tt_rank(void)
{
	static struct json j;

	json_free(&j);
	json_begin(&j, NULL, NULL);
	rank_read();
	rank_json(&j);
	return json_text(&j);
}
