/*
 * Categories of instructions by the beginnings of their opcodes. See categories.h.
 */
#include "options/categories.h"

#include <stddef.h>
#include <string.h>

struct prefix {
	const char *text;
	enum category category;
};

/* The first prefix of an opcode counts. */
static const struct prefix of_ptx[] = {
	{"cp.async.bulk", CATEGORY_TMA},
	{"cp.reduce.async.bulk", CATEGORY_TMA},
	{"cp.async.mbarrier", CATEGORY_SYNC},
	{"cp.async.commit", CATEGORY_SYNC},
	{"cp.async.wait", CATEGORY_SYNC},
	{"cp.async", CATEGORY_MEMORY},
	{"ld", CATEGORY_MEMORY},
	{"st.", CATEGORY_MEMORY},
	{"stmatrix", CATEGORY_MEMORY},
	{"atom", CATEGORY_MEMORY},
	{"redux", CATEGORY_OTHER},
	{"red", CATEGORY_MEMORY},
	{"prefetch", CATEGORY_MEMORY},
	{"tex", CATEGORY_MEMORY},
	{"tld4", CATEGORY_MEMORY},
	{"suld", CATEGORY_MEMORY},
	{"sust", CATEGORY_MEMORY},
	{"sured", CATEGORY_MEMORY},
	{"multimem", CATEGORY_MEMORY},
	{"bar", CATEGORY_SYNC},
	{"membar", CATEGORY_SYNC},
	{"fence", CATEGORY_SYNC},
	{"mbarrier", CATEGORY_SYNC},
	{"griddepcontrol", CATEGORY_SYNC},
	{"wgmma.fence", CATEGORY_SYNC},
	{"wgmma.commit", CATEGORY_SYNC},
	{"wgmma.wait", CATEGORY_SYNC},
	{"mma", CATEGORY_MMA},
	{"wmma.load", CATEGORY_MEMORY},
	{"wmma.store", CATEGORY_MEMORY},
	{"wmma", CATEGORY_MMA},
	{"wgmma", CATEGORY_MMA},
	{"tcgen05.mma", CATEGORY_MMA},
	{"bra", CATEGORY_CONTROL},
	{"brx", CATEGORY_CONTROL},
	{"call", CATEGORY_CONTROL},
	{"ret", CATEGORY_CONTROL},
	{"exit", CATEGORY_CONTROL},
	{"trap", CATEGORY_CONTROL},
};

static const struct prefix of_sass[] = {
	{"UTMACMDFLUSH", CATEGORY_SYNC}, {"UTCATOMSWS", CATEGORY_MEMORY}, {"UATOMS", CATEGORY_MEMORY},
	{"ALD", CATEGORY_MEMORY},        {"ILD", CATEGORY_MEMORY},        {"AST", CATEGORY_MEMORY},
	{"TXD", CATEGORY_MEMORY},        {"TMML", CATEGORY_MEMORY},       {"PREFETCH", CATEGORY_MEMORY},
	{"BSYNC", CATEGORY_SYNC},        {"USYNCS", CATEGORY_SYNC},       {"NANOSLEEP", CATEGORY_SYNC},
	{"YIELD", CATEGORY_SYNC},        {"KILL", CATEGORY_CONTROL},      {"BPT", CATEGORY_CONTROL},
	{"RTT", CATEGORY_CONTROL},       {"UBRA", CATEGORY_CONTROL},      {"PREEXIT", CATEGORY_CONTROL},
	{"BSSY", CATEGORY_CONTROL},      {"UTMA", CATEGORY_TMA},          {"UBLKCP", CATEGORY_TMA},
	{"UBLKRED", CATEGORY_TMA},       {"UBLKPF", CATEGORY_TMA},        {"LDGDEPBAR", CATEGORY_SYNC},
	{"LDC", CATEGORY_OTHER},         {"LD", CATEGORY_MEMORY},         {"STP", CATEGORY_OTHER},
	{"ST", CATEGORY_MEMORY},         {"ATOM", CATEGORY_MEMORY},       {"REDUX", CATEGORY_OTHER},
	{"RED", CATEGORY_MEMORY},        {"TEX", CATEGORY_MEMORY},        {"TLD", CATEGORY_MEMORY},
	{"SULD", CATEGORY_MEMORY},       {"SUST", CATEGORY_MEMORY},       {"SURED", CATEGORY_MEMORY},
	{"SUATOM", CATEGORY_MEMORY},     {"BAR", CATEGORY_SYNC},          {"MEMBAR", CATEGORY_SYNC},
	{"FENCE", CATEGORY_SYNC},        {"SYNCS", CATEGORY_SYNC},        {"WARPSYNC", CATEGORY_SYNC},
	{"DEPBAR", CATEGORY_SYNC},       {"ERRBAR", CATEGORY_SYNC},       {"CGAERRBAR", CATEGORY_SYNC},
	{"UCGABAR", CATEGORY_SYNC},      {"ARRIVES", CATEGORY_SYNC},      {"ACQBULK", CATEGORY_SYNC},
	{"CCTL", CATEGORY_SYNC},         {"WARPGROUP", CATEGORY_SYNC},    {"UTCBAR", CATEGORY_SYNC},
	{"HMMA", CATEGORY_MMA},          {"HGMMA", CATEGORY_MMA},         {"IMMA", CATEGORY_MMA},
	{"IGMMA", CATEGORY_MMA},         {"QMMA", CATEGORY_MMA},          {"QGMMA", CATEGORY_MMA},
	{"BMMA", CATEGORY_MMA},          {"DMMA", CATEGORY_MMA},          {"OMMA", CATEGORY_MMA},
	{"UTC", CATEGORY_MMA},           {"BRA", CATEGORY_CONTROL},       {"BRX", CATEGORY_CONTROL},
	{"JMP", CATEGORY_CONTROL},       {"JMX", CATEGORY_CONTROL},       {"CALL", CATEGORY_CONTROL},
	{"RET", CATEGORY_CONTROL},       {"EXIT", CATEGORY_CONTROL},      {"BREAK", CATEGORY_CONTROL},
};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

enum category category_of(enum language language, const char *opcode)
{
	const struct prefix *list = language == LANGUAGE_PTX ? of_ptx : of_sass;
	size_t count = language == LANGUAGE_PTX ? LENGTH(of_ptx) : LENGTH(of_sass);

	for (size_t i = 0; i < count; i++)
		if (!strncmp(opcode, list[i].text, strlen(list[i].text)))
			return list[i].category;
	return CATEGORY_OTHER;
}
