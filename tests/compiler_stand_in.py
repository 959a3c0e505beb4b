"""Stand-ins for NVRTC and NVVM, which take PTX and return it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ttanalyze.verbs.replay import compilers

COMMON = """
#include <stddef.h>
#include <string.h>
static char said[99];
static const char *kept;
int @CompileProgram(void *p, int n, const char **o)
{ strcpy(said, "code(1): error: no");
  return n < 1 || strncmp(o[0], "OPTION", strlen("OPTION")) || strstr(kept, "bad") ? 6 : !p; }
int @GetRESULTSize(void *p, size_t *n) { *n = strlen(kept) + 1; return !p; }
int @GetRESULT(void *p, char *out) { strcpy(out, kept); return !p; }
int @GetProgramLogSize(void *p, size_t *n) { *n = strlen(said) + 1; return !p; }
int @GetProgramLog(void *p, char *out) { strcpy(out, said); return !p; }
int @DestroyProgram(void **p) { return !*p; }
const char *@GetErrorString(int r) { return r ? "ERROR" : ""; }
"""
CREATE = {
    "nvrtc": """int nvrtcCreateProgram(void **p, const char *source, const char *name, int n,
char **h, char **i)
{ kept = source; *p = &kept; return n || h || i || !strstr(name, ".cu"); }""",
    "nvvm": """int nvvmCreateProgram(void **p) { *p = &kept; return 0; }
int nvvmAddModuleToProgram(void *p, const char *module, size_t n, const char *name)
{ kept = module; return !p || !n || !strstr(name, ".ll"); }
int nvvmLazyAddModuleToProgram(void *p, const char *m, size_t n, const char *name)
{ return !p || !m || !n || !name; }""",
}
RESULTS = {
    "nvrtc": ("PTX", "--gpu-architecture=compute_"),
    "nvvm": ("CompiledResult", "-arch=compute_"),
}


def use(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds the stand-in for nvrtc or nvvm in a folder, and lets the toolkit find it first."""
    library = folder / "home" / "lib64" / f"lib{name}.so.9"
    library.parent.mkdir(parents=True)
    result, option = RESULTS[name]
    text = COMMON.replace("@", name).replace("RESULT", result).replace("OPTION", option)
    (folder / "compiler.c").write_text(text + CREATE[name])
    command = ["gcc", "-shared", "-fPIC", "-o", str(library), str(folder / "compiler.c")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("CUDA_HOME", str(folder / "home"))
    constant = name.upper()
    monkeypatch.setattr(compilers, constant, (*getattr(compilers, constant)[:3], ()))
