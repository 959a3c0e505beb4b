/* Fat binaries, valid and invalid: the simulator refuses invalid ones and reads nothing beyond their end. */
#include "program.h"

struct wrapper {
	uint32_t magic, version;
	const void *data;
	void *unused;
};

struct image {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size;
	struct {
		uint16_t kind, version;
		uint32_t header_size;
		uint64_t size;
		uint32_t compressed_size, options;
		uint16_t minor, major;
		uint32_t architecture, name, name_size;
		uint64_t flags, reserved;
	} entry;
	char text[512];
};

static struct image image(void)
{
	struct image whole = {
		.magic = 0xba55ed50, .version = 1, .header_size = 16, .size = sizeof(whole.entry) + sizeof(whole.text),
		.entry = {.kind = 1, .version = 0x101, .header_size = sizeof(whole.entry), .size = sizeof(whole.text)},
	};

	strcpy(whole.text, PTX_HEADER ".visible .entry nothing()\n{\nret;\n}\n");
	return whole;
}

static void load(const char *what, const void *data)
{
	CUmodule module;
	CUlibrary library;

	printf("%s: %s", what, result_name(cuModuleLoadData(&module, data)));
	printf(", %s\n", result_name(cuLibraryLoadData(&library, data, NULL, NULL, 0, NULL, NULL, 0)));
}

int main(void)
{
	struct image good = image(), broken;
	struct wrapper wrapped = {.magic = 0x466243b1, .version = 1, .data = &good};

	start();
	load("as it is", &good);
	load("wrapped", &wrapped);
	broken = image();
	broken.size = 0;
	load("empty", &broken);
	broken = image();
	broken.entry.kind = 2;
	load("machine code", &broken);
	broken = image();
	broken.entry.flags = 0x2000;
	load("compressed", &broken);
	broken = image();
	broken.entry.header_size = 0x7fffffff;
	load("long header", &broken);
	broken = image();
	broken.entry.header_size = 1;
	load("short header", &broken);
	broken = image();
	broken.entry.size = UINT64_MAX;
	load("long text", &broken);
	load("an ELF file", "\177ELF\2\1\1");
	return 0;
}
