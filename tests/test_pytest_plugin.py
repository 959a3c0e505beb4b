"""The pytest plugin: GPU tests that must leave the same memory whenever they run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import ttanalyze as tt
from tests import support

pytest_plugins = "pytester"

# A program on the driver API, through ctypes: it fills memory with a value, by a kernel.
GPU = '''
import ctypes

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry fill(.param .u64 memory, .param .u32 value)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [memory];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""


def check(result):
    assert result == 0, f"CUDA error {result}"


def fill(*values, label=None):
    """Fills 64 words with each of the values in turn; gives what the first is then."""
    cuda = ctypes.CDLL("libcuda.so.1")
    check(cuda.cuInit(0))
    context, module, kernel = (ctypes.c_void_p() for _ in range(3))
    memory, size = ctypes.c_uint64(), ctypes.c_size_t(256)
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"fill"))
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), size))
    check(cuda.cuMemsetD8_v2(memory, 0, size))
    for value in values:
        number = ctypes.c_uint32(value)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(number))
        check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, None, places, None))
        check(cuda.cuCtxSynchronize())
    out = ctypes.c_uint32()
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(out), memory, ctypes.c_size_t(4)))
    return out.value
'''


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder for tests, with the program that they use."""
    pytester.makepyfile(gpu=GPU)
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("--tt-sim", "-rA", *options)


def message(result: pytest.RunResult) -> str:
    return result.stdout.str()


# ---- what passes and what fails ----


def test_equal_memory_passes(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from gpu import fill

        @pytest.mark.gpu_determinism
        def test_marked():
            assert fill(1, 2, 3) == 3

        def test_with_the_fixture(gpu_determinism, tmp_path):
            assert gpu_determinism.recorded
            fill(4)
            gpu_determinism.epoch("done")

        def test_ordinary():
            pass
        """
    )
    result = run(suite, "--tt-verify")
    result.assert_outcomes(passed=3)
    assert "ttanalyze: tests marked gpu_determinism run twice, on the simulator" in message(result)


def test_difference_is_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import random
        import pytest
        from gpu import fill

        @pytest.mark.gpu_determinism
        @pytest.mark.parametrize("steps", [1, 3])
        def test_random(steps):
            fill(*[7] * (steps - 1), random.randrange(2**31))
        """
    )
    result = run(suite, "--tt-verify")
    result.assert_outcomes(failed=2)
    for expected in (
        "two runs of the test leave different GPU memory",
        "different: memory first diverges in epoch 2, region 0",
        "fill",
        "To examine the runs, keep them with --tt-keep DIR.",
    ):
        assert expected in message(result)
    assert "Traceback" not in message(result)
    assert "runtest" not in message(result)  # nothing of the machinery


def test_tests_run_normally_without_the_option(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os
        import pytest

        @pytest.mark.gpu_determinism
        def test_marked():
            assert "TT_OUT" not in os.environ

        def test_with_the_fixture(gpu_determinism):
            assert not gpu_determinism.recorded
            gpu_determinism.epoch("nothing happens")
        """
    )
    result = suite.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(passed=2)
    assert "ttanalyze" not in message(result).partition("collected")[2]


@pytest.mark.long
def test_failing_test_shows_its_own_failure(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os
        import pytest
        from gpu import fill

        pytestmark = pytest.mark.gpu_determinism

        def test_fails():
            print("seen so far")
            assert fill(5) == 6

        @pytest.fixture
        def broken():
            raise RuntimeError("no such device")

        def test_setup(broken):
            fill(1)

        def test_second_time():
            fill(1)
            with open(os.environ["TT_OUT"] + "/../count", "a") as file:
                file.write("x")
                assert file.tell() == 1

        def test_dies():
            fill(1)
            print("last words", flush=True)
            os.kill(os.getpid(), 9)

        def test_without_a_gpu():
            pass

        def test_skipped():
            pytest.skip("not today")

        @pytest.mark.skip(reason="not at all")
        def test_never():
            fill(1)

        @pytest.mark.xfail(reason="known")
        def test_known():
            fill(1)
            assert False
        """
    )
    result = run(suite, "--tt-verify")
    result.assert_outcomes(failed=5, skipped=2, xfailed=1)
    for expected in (
        "the test itself fails in its first run (call):",
        "E       assert 5 == 6",
        "the test itself fails in its first run (setup):",
        "no such device",
        "the test itself fails in its second run (call):",
        "the test's process ended with signal 9, in its first run",
        "nothing was recorded: the test made no CUDA context current",
        "not today",
        "not at all",
    ):
        assert expected in message(result)


# ---- golden manifests ----


@pytest.mark.long
def test_golden_manifest_is_compared(suite: pytest.Pytester) -> None:
    source = """
        import pytest
        from gpu import fill

        @pytest.mark.gpu_determinism
        @pytest.mark.parametrize("value", [1, 2], ids=["one", "two/2"])
        def test_value(value):
            fill(value, {extra})

        class TestClass:
            @pytest.mark.gpu_determinism(golden=False)
            def test_without(self):
                fill({extra})
    """
    suite.makepyfile(test_it=source.format(extra=9))
    result = run(suite, "--tt-update")
    result.assert_outcomes(passed=3)
    golden = sorted((suite.path / "__gpu__" / "test_it").iterdir())
    assert [p.name.partition("-")[0] for p in golden] == [
        "test_value[one].json",
        "test_value[two_2]",
    ]
    assert message(result).count("ttanalyze: wrote ") == 2
    assert json.loads(golden[0].read_text())["format"] == "ttanalyze-manifest"
    assert "wrote" not in message(run(suite, "--tt-update", "-k", "one"))  # nothing changed

    suite.makepyfile(test_it=source.format(extra=8))
    result = run(suite, "--tt-verify")
    result.assert_outcomes(passed=1, failed=2)
    assert "GPU memory differs from " in message(result)
    assert "(--tt-update accepts the new contents)" in message(result)
    assert "memory first diverges in epoch " in message(result)
    run(suite, "--tt-update", "-k", "one").assert_outcomes(passed=1, deselected=2)

    golden[0].write_text("{")
    result = run(suite, "--tt-verify", "-k", "test_value")
    result.assert_outcomes(failed=2, deselected=1)
    assert f"{golden[0]}: offset 1: not JSON" in message(result)


@pytest.mark.long
def test_golden_manifest_is_not_written_for_differing_runs(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import random
        import pytest
        from gpu import fill

        @pytest.mark.gpu_determinism
        def test_random():
            fill(random.randrange(2**31))
        """
    )
    run(suite, "--tt-update").assert_outcomes(failed=1)
    assert not (suite.path / "__gpu__").exists()


# ---- options ----


@pytest.mark.long
def test_marker_selects_the_triggers(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_it="""
        import pytest
        from gpu import fill

        @pytest.mark.gpu_determinism
        def test_by_option():
            fill(1, 2, 3)

        @pytest.mark.gpu_determinism(epoch="kernel:^fill$")
        def test_by_marker():
            fill(1, 2)

        def test_by_itself(gpu_determinism):
            fill(1, 2)
            gpu_determinism.epoch("after the second")
        """
    )
    result = run(suite, "--tt-verify", "--tt-keep", "kept", "--tt-epoch", "launch,api")
    result.assert_outcomes(passed=3)
    triggers = {}
    for test in ("test_by_option", "test_by_marker", "test_by_itself"):
        for which in ("first", "second"):
            epochs = tt.open(suite.path / "kept" / test / which).epochs
            triggers[test] = [str(t) for t in epochs["trigger"]]
    assert triggers["test_by_option"].count("launch") == 3
    assert triggers["test_by_marker"].count("kernel-after") == 2
    assert triggers["test_by_itself"].count("api") == 1
    assert "after the second" in list(epochs["label"])
    result = run(suite, "--tt-verify", "--tt-epoch", "never")
    result.assert_outcomes(failed=2, passed=1)
    assert "never" in message(result)


@pytest.mark.long
def test_kept_runs_are_listed(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_it="""
        import random
        from gpu import fill

        class TestIt:
            def test_random(self, gpu_determinism):
                fill(random.randrange(2**31))
        """
    )
    for _ in range(2):  # what is there from before is replaced
        result = run(suite, "--tt-verify", "--tt-keep", "kept")
        result.assert_outcomes(failed=1)
    folder = suite.path / "kept" / "TestIt.test_random"
    assert f"The runs are in {folder};" in message(result)
    outcome = support.ttanalyze("diff", folder / "first", folder / "second")
    assert outcome.status == 1


def test_suite_options_and_plugins_reach_the_test(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        def pytest_addoption(parser):
            parser.addoption("--device", default="none")
            parser.addini("steps", "how many", default="1")
        """
    )
    suite.makeini("[pytest]\nsteps = 3\naddopts = -v -k 'not absent'\njunit_family = xunit1\n")
    (suite.path / "below").mkdir()
    suite.makepyfile(
        **{
            "below/test_it": """
            import pytest
            from gpu import fill

            @pytest.mark.gpu_determinism
            def test_it(request, tmp_path, pytestconfig):
                assert request.config.getoption("--device") == "7"
                assert request.config.getini("steps") == "3"
                assert not request.config.getoption("--tt-verify")
                (tmp_path / "file").write_text("x")
                fill(1)
            """
        }
    )
    options = ("--device", "7", "--junitxml", "report.xml", "-x", "--lf", "-p", "no:doctest")
    result = run(suite, "--tt-verify", *options, "below")
    result.assert_outcomes(passed=1)
    report = (suite.path / "report.xml").read_text()
    assert re.search('name="gpu_determinism" value="[1-9][0-9]* epochs are the same"', report)
    assert 'tests="1"' in report


@pytest.mark.long
def test_plugin_works_with_xdist(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import random
        import pytest
        from gpu import fill

        @pytest.mark.gpu_determinism
        @pytest.mark.parametrize("value", range(2))
        def test_value(value):
            fill(value)

        @pytest.mark.gpu_determinism
        def test_random():
            fill(random.randrange(2**31))
        """
    )
    result = run(suite, "--tt-update", "-n", "2")
    result.assert_outcomes(passed=2, failed=1)
    assert message(result).count("ttanalyze: wrote ") == 2
    run(suite, "--tt-verify", "-n", "2").assert_outcomes(passed=2, failed=1)


@pytest.mark.long
def test_no_files_are_left(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = suite.mkdir("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    suite.makepyfile(
        """
        import random
        import pytest
        from gpu import fill

        pytestmark = pytest.mark.gpu_determinism

        def test_same(tmp_path):
            fill(1)

        def test_random():
            fill(random.randrange(2**31))

        def test_fails():
            assert fill(1) == 2
        """
    )
    run(suite, "--tt-verify", "-p", "no:cacheprovider").assert_outcomes(passed=1, failed=2)
    assert [p.name for p in scratch.iterdir() if "ttanalyze" in p.name] == []


def test_missing_driver_is_explained(suite: pytest.Pytester) -> None:
    if support.gpu_name() is not None:
        pytest.skip("there is a GPU here")
    suite.makepyfile("def test_it(gpu_determinism):\n    pass\n")
    result = suite.runpytest_subprocess("--tt-verify")
    result.assert_outcomes(failed=1)
    assert "no GPU driver (libcuda.so.1) here; add --tt-sim for the simulator" in message(result)


def test_unused_plugin_imports_nothing() -> None:
    """Pytest imports it in every project: it must bring nothing of ours, nor numpy."""
    program = "import sys, pytest\nbefore = set(sys.modules)\nimport ttanalyze.pytest_plugin\n"
    program += "print(*sorted(set(sys.modules) - before))"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=support.bare_environment(PYTHONPATH=str(support.ROOT)),
            capture_output=True,
            text=True,
            check=True,
        )
    brought = set(done.stdout.split())
    ours = {name for name in brought if name.startswith("ttanalyze")}
    modules = ("integrations", "integrations.pytest_plugin", "integrations.pytest_items")
    names = ("pytest_plugin", *modules)
    assert ours == {"ttanalyze", *(f"ttanalyze.{name}" for name in names)}
    assert not {"numpy", "pandas", "orjson", "typer", "cffi"} & brought


def test_entry_point_activates_the_plugin() -> None:
    """Pytest finds it by its entry point."""
    assert 'ttanalyze = "ttanalyze.pytest_plugin"' in Path("pyproject.toml").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    for option in ("--tt-verify", "--tt-update", "--tt-sim", "--tt-epoch=WHEN", "--tt-keep=DIR"):
        assert option in done.stdout


# ---- checks ----


@pytest.mark.long
def test_each_test_runs_under_checks(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import time
        import pytest
        from gpu import fill

        def test_clean():
            assert fill(1, 2) == 2

        def test_varies():
            fill(1, time.time_ns() % 1000003)

        def test_fails():
            assert fill(1) == 2

        def test_without_gpu(tmp_path):
            pass

        @pytest.mark.skip(reason="not today")
        def test_skipped():
            pass
        """
    )
    result = run(suite, "--tt-check", "--tt-check-only", "determinism", "--tt-keep", "kept")
    result.assert_outcomes(passed=2, failed=2, skipped=1)
    said = message(result)
    assert "each test runs alone under check, on the simulator" in said
    assert "confirmed: fill" in said and "has other parameters: bytes 8 to 11" in said
    assert "the test itself fails in a run under check" in said
    assert "_pytest" not in said[said.index("confirmed: fill") :], "frames of the test alone"
    assert re.search(r"FAILED \S+::test_varies - determinism: fill", said)
    assert "check found nothing in 2 tests, of which it did not cover 1" in said
    assert (suite.path / "kept" / "test_varies" / "check" / "plain" / "run.json").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--tt-check-only", "x"), "--tt-check-only x: unknown check 'x'"),
        (("--tt-verify",), "--tt-check cannot be combined"),
    ],
)
def test_what_pytest_refuses(suite: pytest.Pytester, options: tuple[str, ...], why: str) -> None:
    suite.makepyfile("def test_nothing(): pass")
    result = run(suite, "--tt-check", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert why in result.stderr.str() + message(result)
