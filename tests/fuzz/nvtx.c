/*
 * NVTX: messages, domains and handles as a program may give them, and wide characters.
 */
#include <stdatomic.h>

#include "fuzz.h"
#include "nvtx/texts.h"
#include "options/options.h"
#include "session/session.h"

struct options options;
_Atomic int session_state = SESSION_UNDECIDED;

store *session_store(void)
{
	return NULL;
}

void session_warn(const char *format, ...)
{
	(void)format;
}

void session_lost(const char *format, ...)
{
	(void)format;
}

/* Any offset will do, but the text is read to its end. */
uint32_t store_string(store *s, const char *text)
{
	static uint32_t at;

	(void)s;
	return at += (uint32_t)strlen(text);
}

static nvtx_handle handle(const uint8_t *data, size_t size)
{
	nvtx_handle h = 0;

	memcpy(&h, data, size < sizeof(h) ? size : sizeof(h));
	return h;
}

static void wide(const uint8_t *data, size_t size)
{
	size_t count = size / sizeof(wchar_t);
	wchar_t *text = calloc(count + 1, sizeof(wchar_t));
	char narrow[TEXTS_WIDE];

	memcpy(text, data, count * sizeof(wchar_t));
	if (strlen(texts_narrow(text, narrow)) >= TEXTS_WIDE)
		abort();
	texts_find(0, narrow);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static nvtx_handle last;

	if (!size)
		return 0;
	unsigned what = *data++;
	char *text = fuzz_text(data, --size);
	unsigned domain = texts_domain(handle(data, size));

	switch (what % 6) {
	case 0: texts_find(domain, text); break;
	case 1: last = texts_create_domain(text); break;
	case 2: last = texts_register(texts_domain(last), text, what & 64); break;
	case 3: texts_registered(handle(data, size)); break;
	case 4: texts_also(handle(data, size), last); break;
	default: wide(data, size);
	}
	texts_domain_name(texts_domain(last));
	texts_registered(last);
	texts_registered_early(last);
	free(text);
	return 0;
}
