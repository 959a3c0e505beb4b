"""ttanalyze.torch.checkpoint_diff: files of torch.save and safetensors, and where a recording has
their contents.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ttanalyze as tt
from tests.rundir import Writer
from ttanalyze.format.layout import BLOCK_SIZE


class Storage:
    """What torch.save keeps apart from the pickle."""

    def __init__(self, kind: str, data: bytes) -> None:
        self.kind, self.data = kind, data


def function(module: str, name: str) -> Any:
    """Stands for a name of PyTorch in pickles."""
    made = types.FunctionType((lambda *_: None).__code__, {}, name)
    made.__module__, made.__qualname__ = module, name
    sys.modules.setdefault(module, types.ModuleType(module)).__dict__[name] = made
    return made


class Tensor:
    """Pickles as PyTorch's do."""

    def __init__(self, storage: Storage, shape: Any, steps: Any, offset: int = 0, more: Any = ()):
        self.given = (storage, offset, tuple(shape), tuple(steps), False, OrderedDict(), *more)

    def __reduce__(self) -> Any:
        version = "_rebuild_tensor_v3" if len(self.given) > 6 else "_rebuild_tensor_v2"
        return function("torch._utils", version), self.given


def tensor(values: Any) -> Tensor:
    array = np.ascontiguousarray(values, "f4")
    steps = [step // 4 for step in array.strides]
    return Tensor(Storage("FloatStorage", array.tobytes()), array.shape, steps)


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torch._utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))


def saved(path: Path, value: Any) -> Path:
    """Writes a file as torch.save does."""
    storages: list[Storage] = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            if not isinstance(obj, Storage):
                return None
            storages.append(obj)
            kind = function("torch", obj.kind)
            return "storage", kind, str(len(storages) - 1), "cuda:0", len(obj.data)

    out = io.BytesIO()
    Pickler(out, protocol=2).dump(value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("name/data.pkl", out.getvalue())
        for i, storage in enumerate(storages):
            archive.writestr(f"name/data/{i}", storage.data)
    return path


def status(table: Any) -> dict[str, str]:
    return dict(zip(table["tensor"], table["status"], strict=True))


def test_files_are_compared(tmp_path: Path) -> None:
    """Also nested ones, views, other types, and what is in one of them only."""
    base = Storage("BFloat16Storage", np.arange(12, dtype="u2").tobytes())
    small = Storage("UntypedStorage", bytes(8))
    optimizer = {"state": {0: {"exp_avg": tensor([1, 2]), "step": 3}}, "lr": 0.1}
    first = OrderedDict(
        w=tensor([[1, 2], [3, 4]]),
        view=Tensor(base, (2, 3), (1, 4), 1),
        fp8=Tensor(small, (8,), (1,), 0, (function("torch", "float8_e4m3fn"), None)),
        gone=tensor([1]),
        reshaped=tensor([1, 2]),
        optimizer=optimizer,
        function=function("torch.nn", "Linear"),
    )
    second = OrderedDict(
        first, w=tensor([[1, 2], [3, 6]]), reshaped=tensor([[1, 2]]), new=base and tensor(3)
    )
    del second["gone"]
    table = tt.torch.checkpoint_diff(
        saved(tmp_path / "a.pt", first), saved(tmp_path / "b.pt", second)
    )
    assert status(table) == {
        "w": "different",
        "view": "same",
        "fp8": "same",
        "gone": "only in a",
        "reshaped": "other type or shape",
        "optimizer.state.0.exp_avg": "same",
        "new": "only in b",
    }
    row = table.set_index("tensor").loc["w"]
    assert (row["items"], row["different"], row["first"], row["max_abs"]) == (4, 1, 3, 2.0)
    assert table.set_index("tensor").loc["fp8", "type"] == "e4m3"
    assert table.set_index("tensor").loc["view", ["type", "shape"]].tolist() == ["bf16", (2, 3)]


def test_safetensors_are_read(tmp_path: Path) -> None:
    paths = []
    for number in (1.0, 2.0):
        data = np.array([0, number], "f4").tobytes()
        header = {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        }
        text = json.dumps(header).encode()
        paths.append(tmp_path / f"{number}.safetensors")
        paths[-1].write_bytes(len(text).to_bytes(8, "little") + text + data)
    assert tt.torch.checkpoint_diff(paths[0], paths[1])["first"].tolist() == [1]


@pytest.mark.parametrize("content", [b"", b"text", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0[]", None])
def test_other_files_are_one_line(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(tt.Error, match=r"file: (not a checkpoint|No such file)"):
        tt.torch.checkpoint_diff(path, path)


def test_tensor_outside_of_its_storage_is_refused(tmp_path: Path) -> None:
    wrong = Tensor(Storage("FloatStorage", bytes(8)), (3,), (1,))
    path = saved(tmp_path / "a.pt", {"w": wrong})
    with pytest.raises(tt.Error, match="outside of its storage"):
        tt.torch.checkpoint_diff(path, path)


def test_nothing_in_a_file_runs(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return exec, (f"open({str(tmp_path / 'made')!r}, 'w')",)

    path = saved(tmp_path / "a.pt", {"evil": Evil(), "w": tensor([1])})
    assert status(tt.torch.checkpoint_diff(path, path)) == {"w": "same"}
    assert not (tmp_path / "made").exists()


def test_recording_says_when_contents_were_there(run_path: Path) -> None:
    """The memory has the values of a up to epoch 2, and those of b from epoch 4 on."""
    w = Writer(run_path)
    w.born(0, bytes(BLOCK_SIZE))
    w.name(0, 256, 8, "layers.0.weight", "f32")
    for values in ([1, 2], [1, 2], [1, 2], [5, 5], [1, 3], [1, 3]):
        w.write(0, 256, np.array(values, "f4").tobytes())
        w.epoch("sync")
    w.close()
    a, b = ({"model": {"module.layers.0.weight": np.array([1, x], "f4")}} for x in (2, 3))
    table = tt.torch.checkpoint_diff(a, b, tt.open(run_path))
    assert table[["epoch_a", "epoch_b"]].values.tolist() == [[2, 4]]
    unknown = tt.torch.checkpoint_diff(
        {"v": np.ones(2, "f4")}, {"v": np.zeros(2, "f4")}, tt.open(run_path)
    )
    assert unknown[["epoch_a", "epoch_b"]].isna().all(axis=None)
