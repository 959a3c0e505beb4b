/*
 * Runs a fuzz target over files, without libFuzzer: replay FILE...
 */
#include <stdio.h>

#include "fuzz.h"

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "rb");
		uint8_t *bytes = malloc(1 << 20);
		if (!f || !bytes) {
			fprintf(stderr, "%s: cannot be read\n", argv[i]);
			return 2;
		}
		size_t size = fread(bytes, 1, 1 << 20, f);
		fclose(f);
		printf("%s\n", argv[i]);
		fflush(stdout);
		uint8_t *exact = fuzz_copy(bytes, size);
		free(bytes);
		LLVMFuzzerTestOneInput(exact, size);
		free(exact);
	}
	return 0;
}
