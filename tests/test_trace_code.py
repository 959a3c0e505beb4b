"""Recording code in kernels: what is inserted, as nvdisasm reads it, and what is left alone."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests import sass_patcher as sp
from tests import sass_warp
from tests.test_sass_patch import Elf, target
from ttanalyze.disassembly import tools

DATA = Path(__file__).parent / "data" / "sass"
OPCODE, ADDRESSES, TMA, COUNT = 1 << 1, 1 << 3, 1 << 5, 1 << 6
VALUES, BEATS = 1 << 4, 1 << 7  # BEATS: heartbeats, for the harness
REUSE, BRANCH, EXIT, BARRIER, LANE, OWN = (
    15 << 58,
    0x7947,
    0x94D,
    0xB1D,
    0x919,
    64,
)  # OWN: the registers that kernels here may have
VARIABLE = 0x7F0012345678
BANK, PARAM_BANK = 0x210, 0x0A  # where parameters begin in constant bank 0; their attribute
PARAMETER = struct.Struct("<5Q2I3Q6I")  # struct tt_trace_param
ADDRESS = re.compile(r"\[(U?R[Z\d]+)(?:\.64)?(?:\+(UR\d+))?(?:\+(-?0x[0-9a-f]+))?\]")
NVDISASM = tools.find("nvdisasm")

pytestmark = [pytest.mark.native, pytest.mark.large, pytest.mark.long]


@pytest.fixture(scope="module")
def patcher(tmp_path_factory: pytest.TempPathFactory) -> sp.Patcher:
    return sp.build(tmp_path_factory.mktemp("sass"))


@pytest.fixture(scope="module")
def cubin(patcher: sp.Patcher) -> sp.Cubin:
    return patcher.open((DATA / "patch_90a.cubin").read_bytes())


def code_of(cubin: sp.Cubin, kernel: sp.Kernel) -> list[tuple[int, int]]:
    return list(struct.iter_unpack("<QQ", cubin.image[kernel.code : kernel.code + kernel.size]))


def detoured(old: list[tuple[int, int]], new: list[tuple[int, int]]) -> list[int]:
    """The instructions that are branches to behind the old code."""
    return [
        i
        for i in range(len(old))
        if new[i][0] & 0xFFFF == BRANCH and target(90, 16 * i, *new[i]) >= 16 * len(old)
    ]


def only_exits(i: int, code: list[tuple[int, int]]) -> bool:
    """Whether the branch is there for counts that lanes keep until they exit."""
    return code[target(90, 16 * i, *code[i]) // 16 + 1][0] & 0xFFF == LANE


def disassemble(code: list[tuple[int, int]], folder: Path) -> list[str]:
    raw = folder / "raw"
    raw.write_bytes(b"".join(struct.pack("<QQ", *i) for i in code))
    command = [str(NVDISASM[0]), "-b", "SM90", str(raw)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [row[1] for row in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", out)]


@pytest.mark.parametrize("kinds", [COUNT, OPCODE, ADDRESSES, COUNT | ADDRESSES])
def test_each_traced_instruction_runs_once_behind_its_detour(cubin: sp.Cubin, kinds: int) -> None:
    traced = 0
    for kernel in cubin.kernels:
        old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, kinds)
        if not new.code:
            continue
        chosen = [i for i in detoured(old, new.code) if not only_exits(i, new.code)]
        assert len(chosen) == new.points > 0
        possible = [i for i, reason in enumerate(new.refused) if reason is None]
        assert set(chosen) <= set(possible) and (kinds & COUNT or chosen == possible)
        traced += len(chosen)
        ends = set[int]()
        for i in chosen:
            detour = target(90, 16 * i, *new.code[i])
            end = next(
                n
                for n in range(detour // 16, len(new.code))
                if new.code[n][0] & 0xFFFF == BRANCH
                and target(90, 16 * n, *new.code[n]) == 16 * (i + 1)
            )
            ends.add(end)
            assert len(old) * 16 <= detour < 16 * end
            (low, high), (moved, moved_high) = old[i], new.code[end - 1]
            if low & 0xFFF == BRANCH & 0xFFF:
                assert low & 0xFFFF == moved & 0xFFFF and high >> 18 == moved_high >> 18
                to = target(90, 16 * i, low, high)
                assert target(90, 16 * (end - 1), moved, moved_high) == to
            else:
                assert low & 0xFFF == EXIT or (moved, moved_high) == (low, high & ~REUSE)
        assert len(ends) == len(chosen)
        for i, (low, high) in enumerate(old):
            if i not in chosen and (low & 0xFFF != EXIT or not kinds & COUNT):
                assert (new.code[i][0], new.code[i][1] & ~REUSE) == (low, high & ~REUSE)
    assert traced > 30


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_recording_code_changes_nothing_of_the_kernel(cubin: sp.Cubin, tmp_path: Path) -> None:
    for kernel in cubin.kernels:
        new = cubin.trace(kernel, OWN + 8, COUNT | ADDRESSES)
        if not new.code:
            continue
        texts = disassemble(new.code, tmp_path)
        assert len(texts) == len(new.code)
        count = kernel.size // 16
        written = {r for t in texts[:count] for r in re.findall(r"\b(?:UR|B)\d+\b", t)}
        begins = {
            target(90, 16 * i, *new.code[i]) // 16
            for i in detoured(code_of(cubin, kernel), new.code)
        }
        for at in begins:
            if not texts[at].startswith("NOP"):  # counts
                at = next(i for i in range(at, len(texts)) if texts[i].startswith("BRA.U")) + 3
            if not texts[at + 1].startswith("P2R"):
                continue
            assert re.match(r"NOP", texts[at])
            assert re.match(r"P2R R\d+, PR, RZ, 0x7f", texts[at + 1])
            end = next(i for i in range(at, len(texts)) if texts[i].startswith("R2P PR,"))
            # the first instructions read the operands of what is traced
            body = next(i for i in range(at, end) if texts[i].startswith("BSSY"))
            for text in texts[body:end]:
                assert not written & set(re.findall(r"\b(?:UR|B)\d+\b", text)), text
                assert all(OWN <= int(r) < new.registers for r in re.findall(r"\bR(\d+)\b", text))
            inside = re.compile(r"\b(?:BRA|BSSY) .*?0x([0-9a-f]+)$")
            for text in texts[at:end]:
                if match := inside.search(text):
                    assert at < int(match[1], 16) // 16 <= end, text


def written(text: str) -> set[str]:
    """Registers and predicates that an instruction writes, as far as code that counts has such."""
    text = re.sub(r"^@!?U?P\w ", "", text)
    if re.match(r"ST|RED|BRA|NOP|EXIT|BS|MEMBAR|ERRBAR|CCTL|YIELD|WARPSYNC", text):
        return set()
    operands = text.split(" ", 1)[-1].split(", ")
    first = set(operands[:1])
    if re.match(r"VOTEU|ELECT|U?ISETP|UIADD3", text):
        first |= {one for one in operands[:2] if re.match(r"U?P\d", one)}
    wide = re.match(r"\S*(?:\.64|WIDE)", text)
    if wide and (match := re.match(r"(U?R)(\d+)", operands[0])):
        first.add(f"{match[1]}{int(match[2]) + 1}")
    return first - {"RZ", "PT", "UPT", "PR"}


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_counts_are_in_registers_that_the_kernel_does_not_have(
    cubin: sp.Cubin, tmp_path: Path
) -> None:
    """Code that adds while all lanes are there, and that which does where some are missing."""
    for kernel in cubin.kernels:
        old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, COUNT)
        if not new.code:
            continue
        before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
        names = set(re.findall(r"\bU?[RP]\d+\b", " ".join(before)))
        originals = {text.replace(".reuse", "") for text in before} - {"NOP", "EXIT"}
        saved = exits = False
        adds = parts = 0
        for at, text in enumerate(after[len(old) :], len(old)):
            if text in originals:  # moved
                continue
            saved = (saved or text.startswith("P2R")) and not text.startswith("R2P")
            exits = (exits or "SR_LANEID" in text) and text != "EXIT"
            spoilt = written(text) & names
            assert not spoilt or ((saved or exits) and spoilt == {"P0"}), (kernel.name, text)
            for name in written(text):
                assert name[0] != "R" or OWN <= int(name[1:]) < new.registers, text
                assert name != "UR63", text  # that is URZ
            if text.startswith("BRA.U"):
                adds += all(one.startswith("IMAD") for one in after[at + 1 : at + 3])
                to = target(90, 16 * at, *new.code[at]) // 16
                reduction = next(n for n in range(to, len(after)) if "REDG" in after[n])
                back = next(n for n in range(reduction, len(after)) if after[n].startswith("BRA "))
                parts += target(90, 16 * back, *new.code[back]) // 16 == at + 3
        assert adds == parts and (adds == new.points or not adds % 32)
        for i in (i for i, text in enumerate(before) if text.endswith("EXIT")):
            assert after[i].startswith((before[i].replace("EXIT", "BRA"), "BRA"))
            flush = after[target(90, 16 * i, *new.code[i]) // 16 :]
            flush = flush[flush.index(next(t for t in flush if "SR_LANEID" in t)) :]
            flush = flush[: flush.index("EXIT")]
            assert sum("REDG.E.ADD.64" in one for one in flush) == -(-adds // 32)
            assert not any(re.match(r"@?!?P?\d?\s?\S+ UR\d", one) for one in flush)


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
@pytest.mark.parametrize("name", ["reduce", "atomics", "bulk", "groups"])
def test_counts_add_up(name: str, patcher: sp.Patcher, cubin: sp.Cubin, tmp_path: Path) -> None:
    """Instructions are executed in any order by any lanes, and lanes exit in between."""
    kernel = next(k for k in cubin.kernels if k.name == name)
    traced = cubin.traced_image(kernel, COUNT, variables=VARIABLE)
    changed = patcher.open(traced.image)
    code = code_of(changed, next(k for k in changed.kernels if k.name == name))
    old = code_of(cubin, kernel)
    before, after = disassemble(old, tmp_path), disassemble(code, tmp_path)
    counts = BANK + traced.offset + 24
    warp, chance = sass_warp.Warp({0x208: 0, 0x28: 0, counts: 1 << 33}), random.Random(7)
    live, expected = 0xFFFFFFFF, Counter[int]()
    own, own_uniform = (set(re.findall(rf"\b{p}\d\b", " ".join(before))) for p in ("P", "UP"))

    def run(i: int, active: int) -> None:
        begin = target(90, 16 * i, *code[i]) // 16
        original = before[i].replace(".reuse", "")
        warp.run(after, begin, active, after.index(original, begin))
        guard = re.match(r"@(!?)(U?P\d) ", before[i])
        threads = active.bit_count()
        if guard:
            uniform = guard[2][0] == "U"
            holds = [warp.uniform[guard[2]]] * 32 if uniform else warp.registers[guard[2]]
            lanes = (lane for lane in range(32) if active >> lane & 1)
            threads = sum(bool(holds[lane]) != bool(guard[1]) for lane in lanes)
        expected[traced.slots[i]] += (1 << 32) * bool(threads) + threads

    sites = [i for i in detoured(old, code) if "EXIT" not in before[i] and traced.slots[i]]
    run(sites[0], live)
    assert sites[0] == 0 and len(sites) > 5
    guarded = {found[1] for i in sites if (found := re.match(r"@!?(UP|P\d BRA)", before[i]))}
    assert guarded or name == "groups"
    assert "UP" in guarded or name != "bulk"
    last = max(i for i, text in enumerate(before) if text == "EXIT")
    for leave in (0x0000FF03, 0x00F00000, 0xFF0F00FC):
        for _ in range(200):
            for p in range(7):
                every = chance.choice((0, 0xFFFFFFFF, chance.getrandbits(32)))
                warp.registers[f"P{p}"] = [every >> lane & 1 for lane in range(32)]
            warp.uniform |= {p: chance.getrandbits(1) for p in own_uniform}
            kept = {p: list(warp.registers[p]) for p in own}
            kept_uniform = {p: warp.uniform[p] for p in own_uniform}
            active = chance.choice((live, live, live & chance.getrandbits(32)))
            run(chance.choice(sites[1:]), active or live)
            assert kept == {p: warp.registers[p] for p in own}
            assert kept_uniform == {p: warp.uniform[p] for p in own_uniform}
        warp.run(after, target(90, 16 * last, *code[last]) // 16, leave)
        if not only_exits(last, code):
            expected[traced.slots[last]] += (1 << 32) + leave.bit_count()
        live &= ~leave
    copy = (sass_warp.CLOCK % traced.copies) * traced.stride * 8 + (1 << 33)
    assert {copy + 8 * (slot - 1): n for slot, n in expected.items() if n} == {
        place: n for place, n in warp.memory.items() if n
    }


def test_what_has_records_has_a_count(patcher: sp.Patcher, cubin: sp.Cubin) -> None:
    branches = 0
    for kernel in cubin.kernels:
        traced, counted = (cubin.traced_image(kernel, k, VARIABLE) for k in (OPCODE, COUNT))
        changed = patcher.open(traced.image)
        (same,) = (k for k in changed.kernels if k.name == kernel.name)
        code = code_of(cubin, kernel)
        for i in detoured(code, code_of(changed, same)[: len(code)]):
            never = code[i][0] & 0xF000 == 0xF000  # @!PT
            assert counted.slots[i] or never, (kernel.name, i)
            branches += code[i][0] & 0xFFF == BRANCH & 0xFFF
    assert branches > 10


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_votes_of_lanes_have_guards_of_lanes(cubin: sp.Cubin, tmp_path: Path) -> None:
    """ELECT and the like write uniform registers, but nothing of their guard is uniform."""
    kernel = next(k for k in cubin.kernels if k.name == "bulk")
    old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, OPCODE)
    before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
    seen = Counter[str]()
    for i in detoured(old, new.code):
        if not (guard := re.match(r"@(!?(U?)P\d) (\w+)", before[i])):
            continue
        begin = target(90, 16 * i, *new.code[i]) // 16
        vote = next(n for n in range(begin, len(after)) if after[n].startswith("VOTE.ANY"))
        if guard[2]:
            assert after[vote].endswith("PT, PT") and after[vote + 1].startswith("USEL ")
        else:
            assert after[vote].endswith(f", {guard[1]}"), before[i]
        seen[guard[3]] += 1
    assert seen["ELECT"] and seen["UIMAD"] and seen["BRA"]


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_the_recorded_address_is_that_of_the_operand(cubin: sp.Cubin, tmp_path: Path) -> None:
    seen = 0
    for kernel in cubin.kernels:
        new = cubin.trace(kernel, OWN, ADDRESSES)
        old = disassemble(code_of(cubin, kernel), tmp_path)
        texts = disassemble(new.code, tmp_path)
        for i in (i for i, reason in enumerate(new.refused) if reason is None):
            at = target(90, 16 * i, *new.code[i]) // 16
            base, uniform, offset = ADDRESS.findall(old[i])[-1]
            guard = re.match(r"@(!?U?P\w)", old[i])
            assert texts[at + 2].endswith(f", PT, {guard[1] if guard else 'PT'}"), old[i]
            wide = re.match(r"IMAD\.WIDE R\d+, R\d+, (-?0x\w+), (\w+)", texts[at + 4])
            narrow = re.match(r"IADD3 R\d+, (\w+), (-?0x\w+), RZ", texts[at + 4])
            found = (wide[2], wide[1]) if wide else (narrow[1], narrow[2]) if narrow else None
            assert found, texts[at + 4]
            assert found[0] == (base if base.startswith("R") else "RZ")
            added = uniform or (base if base.startswith("UR") else "")
            assert not added or f", {added}, RZ" in texts[at + 5]
            assert int(found[1], 16) == int(offset or "0", 16), (old[i], texts[at + 4])
            seen += 1
    assert seen > 20


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
@pytest.mark.parametrize("kinds", [COUNT, ADDRESSES, OPCODE | ADDRESSES, VALUES])
def test_where_no_register_is_left_some_of_the_kernel_are_saved(
    kinds: int, cubin: sp.Cubin, tmp_path: Path
) -> None:
    full = 255
    for name in ("scale", "reduce", "atomics"):
        kernel = next(k for k in cubin.kernels if k.name == name)
        old, new = code_of(cubin, kernel), cubin.trace(kernel, full, kinds)
        assert new.registers == full
        before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
        chosen = detoured(old, new.code)
        assert chosen
        for i in chosen:
            at = target(90, 16 * i, *new.code[i]) // 16
            end = next(n for n in range(at, len(new.code)) if goes_back(n, new.code, len(old)))
            detour = after[at:end]
            saved = {int(m[1]) for t in detour if (m := re.match(r"STL\.64 \[R1\S+, R(\d+)", t))}
            brought = {int(m[1]) for t in detour if (m := re.match(r"LDL\.64 R(\d+), \[R1", t))}
            own = {r + n for r in saved for n in range(2)}
            assert saved and saved == brought
            assert i or detour[0] == before[0]  # loads the stack pointer
            named = own & {int(r) for r in re.findall(r"\bR(\d+)\b", before[i])}
            assert not named or kinds in (COUNT, ADDRESSES)  # else it is needed at the end
            if kinds == ADDRESSES:  # its address is taken before its registers have others
                reads = next(n for n, t in enumerate(detour) if re.match(r"IMAD\.WIDE|IADD3", t))
                for text in detour[:reads]:
                    assert not {f"R{n}" for n in named} & written(text), text
            first = next(n for n, t in enumerate(detour) if not t.startswith(("NOP", "STL")))
            last = max(n for n, t in enumerate(detour) if t.startswith("R2P") or "REDG" in t)
            places = [re.search(r"\[R1\S+\]", t) for t in detour if re.match(r"STL|LDL", t)]
            offsets = [match[0] for match in places if match]
            assert offsets[: len(saved)] == offsets[len(saved) :]
            assert len(set(offsets)) == len(saved)
            for text in detour[first:last]:
                if text.split()[0] != before[i].split()[0]:  # itself
                    assert {int(n[1:]) for n in written(text) if n[0] == "R"} <= own, text


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_large_blocks_have_registers_for_all_threads(cubin: sp.Cubin, tmp_path: Path) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "groups")
    small, large = (
        cubin.traced_image(kernel, ADDRESSES, VARIABLE, threads) for threads in (128, 1024)
    )
    assert small.registers > 64 == large.registers and small.points == large.points
    stored = [
        any(text.startswith("STL") for text in disassemble(Elf(image).code("groups"), tmp_path))
        for image in (cubin.image, small.image, large.image)
    ]
    assert stored == [False, False, True]
    texts = disassemble(Elf(large.image).code("groups"), tmp_path)
    products = [text for text in texts if "HGMMA" in text]  # run beside other instructions
    (first,) = {int(r) for text in products for r in re.findall(r"\bR(\d+)\b", text)}
    shape = re.search(r"64x(\d+)x", products[0])
    assert shape
    saved = {int(m[1]) for text in texts if (m := re.match(r"STL\.64 \[R1\S+, R(\d+)", text))}
    assert saved and not saved & set(range(first, first + int(shape[1]) // 2))


def goes_back(at: int, code: list[tuple[int, int]], count: int) -> bool:
    return code[at][0] & 0xFFFF == BRANCH and target(90, 16 * at, *code[at]) < 16 * count


def test_what_cannot_be_traced_says_why(patcher: sp.Patcher, cubin: sp.Cubin) -> None:
    kernel = cubin.kernels[0]
    few = cubin.trace(kernel, 240, ADDRESSES | BEATS).refused
    assert set(few) == {"it leaves too few registers free"}
    assert set(cubin.trace(kernel, OWN, TMA).refused) == {"it is no copy"}
    assert set(cubin.trace(kernel, OWN, 0).refused) == {"no instruction is to be traced"}
    reasons = cubin.trace(kernel, OWN, ADDRESSES).refused
    assert {"control flow", "it has no address, or one of an unknown form"} <= set(reasons)
    other = patcher.open((DATA / "patch_120a.cubin").read_bytes())
    said = set(other.trace(other.kernels[0], OWN, COUNT).refused)
    assert said == {"no recording code for this architecture"}


def test_a_traced_image_has_the_parameter_and_the_registers(cubin: sp.Cubin) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    traced = cubin.traced_image(kernel, COUNT)
    old, new = Elf(cubin.image), Elf(traced.image)
    assert (traced.parameters, traced.offset) == (3, 24)
    size = traced.offset + PARAMETER.size
    assert new.attributes("scale")[PARAM_BANK][4:] == struct.pack("<HH", BANK, size)
    assert new.section(".nv.constant0.scale").size == BANK + size
    assert new.symbol_size("scale") == new.section(".text.scale").size > kernel.size
    for s in old.sections:
        changed = ("scale", ".nv.info", ".symtab", "nv.constant4")
        if s.kind != 8 and not s.name.endswith(changed):
            assert new.contents(new.section(s.name)) == old.contents(s), s.name


def test_an_image_changes_only_the_traced_kernel(cubin: sp.Cubin) -> None:
    for kernel in cubin.kernels:
        image = cubin.traced_image(kernel, COUNT | ADDRESSES, variables=VARIABLE).image
        new, old = Elf(image), Elf(cubin.image)
        for other in cubin.kernels:
            name = f".text.{other.name}"
            assert (new.contents(new.section(name)) == old.contents(old.section(name))) == (
                other.name != kernel.name
            )


def test_an_image_uses_the_variables_of_the_program(cubin: sp.Cubin) -> None:
    """`atomics` reads the address of `counter` at the beginning of constant bank 4."""
    kernel = next(k for k in cubin.kernels if k.name == "atomics")
    new, old = (
        Elf(image)
        for image in (cubin.traced_image(kernel, COUNT, variables=VARIABLE).image, cubin.image)
    )
    constants = new.contents(new.section(".nv.constant4"))
    assert struct.unpack_from("<Q", constants) == (VARIABLE,)
    left = new.section(".rela.nv.constant4").size
    assert left == old.section(".rela.nv.constant4").size - 24
    with pytest.raises(ValueError, match="the address of one of its module's variables is unknown"):
        cubin.traced_image(kernel, COUNT)


def test_instructions_of_a_block_share_a_count(cubin: sp.Cubin) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    slots = cubin.traced_image(kernel, COUNT).slots
    code = code_of(cubin, kernel)
    for i in range(1, len(code)):
        guarded = code[i][0] >> 12 & 15 != 7
        if guarded and slots[i]:
            alike = {code[n][0] >> 12 & 15 for n in range(len(code)) if slots[n] == slots[i]}
            assert alike == {code[i][0] >> 12 & 15}
        elif slots[i] and slots[i] == slots[i - 1]:
            assert code[i - 1][0] & 0xFFF not in (0x947, 0x94D)  # BRA, EXIT
    assert len(set(slots) - {0}) < kernel.size // 16 // 3


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_values_are_those_of_the_operands(cubin: sp.Cubin, tmp_path: Path) -> None:
    words = {"64": 2, "128": 4}
    seen = Counter[str]()
    for kernel in cubin.kernels:
        old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, VALUES)
        before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
        for i in detoured(old, new.code):
            at = target(90, 16 * i, *new.code[i]) // 16
            end = next(n for n in range(at, len(after)) if after[n].startswith("R2P PR,"))
            stores = [n for n in range(at, end) if after[n].startswith("@P0 STG.E desc")]
            stored = [after[n].rsplit(", ", 1)[1] for n in stores]
            mnemonic, operands = re.sub(r"^@!?U?P\w ", "", before[i]).split(" ", 1)
            registers = re.findall(r"\bR(?:\d+|Z)\b", re.sub(r"\[.*?\]", "", operands))
            returns = mnemonic.startswith("ATOM") and not operands.startswith(("RZ", "PT, RZ"))
            loads = mnemonic.startswith("LD") or returns
            first = registers[0] if loads else registers[-1]
            size = next((words[p] for p in mnemonic.split(".") if p in words), 1)
            following = (
                [first] if first == "RZ" else [f"R{int(first[1:]) + n}" for n in range(size)]
            )
            assert stored == following or first == "RZ" or ".U" in mnemonic or ".S" in mnemonic
            assert (after.index(before[i], at) < stores[0]) == loads
            seen[mnemonic.split(".")[0]] += 1
    assert {"LDG", "STG", "LDS", "STS", "REDG", "ATOMS"} <= set(seen), seen


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
@pytest.mark.parametrize("name", ["reduce", "numbered", "warps", "looping", "bulk", "groups"])
def test_heartbeats_are_kept_at_loops_barriers_and_exits(
    name: str, cubin: sp.Cubin, patcher: sp.Patcher, tmp_path: Path
) -> None:
    kernels = {k.name: k for k in cubin.kernels}
    kernel = kernels[{"numbered": "reduce", "looping": "warps"}.get(name, name)]
    at, (low, high) = next(
        (i, one)
        for i, one in enumerate(code_of(cubin, kernels["reduce"]))
        if one[0] & 0xFFF == BARRIER
    )
    if name == "numbered":  # one of its barriers gets another number
        cubin = patcher.open(with_instructions(cubin, kernel, {at: (low | 1 << 54, high)}))
    elif name == "looping":  # who is in its loop does not say which barriers it has passed
        texts = disassemble(code_of(cubin, kernel), tmp_path)
        at = next(i for i, text in enumerate(texts) if i and text.startswith("IADD3 "))
        cubin = patcher.open(with_instructions(cubin, kernel, {at: (low, high)}))
    old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, BEATS)
    before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
    count = len(old)

    def goes_to(i: int, code: list[tuple[int, int]]) -> int:
        return target(90, 16 * i, *code[i]) // 16

    places = Counter[str]()
    for i, text in enumerate(before):
        is_end = i and before[i - 1] == "EXIT"
        back = re.match(r"(?:@!?U?P\d )?BRA\b", text) and goes_to(i, old) <= i and not is_end
        if re.match(r"(?:@!?P\d )?EXIT$", text):
            assert after[i].startswith(text.replace("EXIT", "BRA"))
            detour = after[goes_to(i, new.code) :]
            detour = detour[: detour.index("EXIT")]
            assert any("REDG.E.OR" in one for one in detour)
            # the kernel's last stores may still read its registers
            used = {int(r) for one in detour for r in re.findall(r"\bR(\d+)\b", one)}
            assert min(used) >= OWN
            places["exit"] += 1
        elif re.search(r"\bBAR\.(?:SYNC|RED)", text):
            at = goes_to(i, new.code)
            end = next(n for n in range(at, len(after)) if after[n].startswith("BRA"))
            stores = [n for n in range(at, end) if "STG" in after[n]]
            assert after[stores[0] + 1] == text
            if name in ("reduce", "groups"):  # barriers are counted
                assert len(stores) == 1
                assert re.match(r"IADD3 (R\d+), \1, 0x10000000, RZ", after[at])
            else:
                assert len(stores) == 2
            places["barrier"] += 1
        elif back and goes_to(i, new.code) >= count:
            at = goes_to(i, new.code)
            assert after[i].split(" 0x")[0] == text.split(" 0x")[0]
            counted = re.match(r"UIADD3 (UR\d+), (UP\d), \1, 0x[0-9a-f]+, URZ", after[at + 1])
            assert counted and not re.search(rf"\b{counted[2]}\b", " ".join(before))
            assert re.match(rf"BRA\.U {counted[2]}, 0x", after[at])
            assert goes_to(at, new.code) == at + 3
            assert goes_to(at + 2, new.code) == goes_to(i, old)
            places["loop"] += 1
        elif i:
            assert (new.code[i][0], new.code[i][1] & ~REUSE) == (old[i][0], old[i][1] & ~REUSE)
    assert places["exit"]
    assert places["barrier"] or name not in ("reduce", "numbered", "looping")
    assert places["loop"] or name not in ("warps", "looping", "bulk")


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_barriers_are_not_counted_without_a_register_for_it(
    cubin: sp.Cubin, tmp_path: Path
) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "reduce")
    for own, counts in ((238, True), (242, False)):
        new = cubin.trace(kernel, own, BEATS)
        assert new.registers <= 255 and not any(new.refused)
        texts = disassemble(new.code, tmp_path)
        assert any(", 0x10000000, RZ" in text for text in texts) == counts


def test_loops_that_end_have_no_heartbeat(patcher: sp.Patcher) -> None:
    cubin = patcher.open((DATA / "loops_90a.cubin").read_bytes())
    for kernel in cubin.kernels:
        old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, BEATS)
        back = [
            i
            for i, (low, high) in enumerate(old)
            if low & 0xFFF == BRANCH & 0xFFF and target(90, 16 * i, low, high) < 16 * i
        ]
        kept = [i for i in back if new.code[i] == old[i]]
        assert back and (kept == back) == kernel.name.startswith("ends_"), kernel.name


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_lanes_that_exit_change_no_uniform_register_of_those_that_go_on(
    cubin: sp.Cubin, tmp_path: Path
) -> None:
    """A warp has one set of uniform registers, and paths of it may run in turn."""
    kernel = next(k for k in cubin.kernels if k.name == "reduce")
    traced = cubin.trace(kernel, OWN, BEATS | OPCODE)
    code = disassemble(traced.code, tmp_path)
    ends = [n for n, text in enumerate(code) if "REDG.E.OR" in text]
    assert ends
    for end in ends:
        begin = max(n for n in range(end) if code[n].startswith("VOTE.ANY"))
        assert not re.search(r"\bUR\d", " ".join(code[begin:end])), code[begin:end]


def collective(cubin: sp.Cubin, kernel: sp.Kernel, at: int, behind: int) -> bytes:
    """Its image with WARPSYNC.COLLECTIVE.ALL at an instruction, and its target."""
    code = struct.pack("<QQ", 0x7948 | (behind - at - 1) * 4 << 16, 0x03C00000 | 0xFC0 << 40)
    begin = kernel.code + 16 * at
    return cubin.image[:begin] + code + cubin.image[begin + 16 :]


def test_nothing_is_inserted_before_the_end_of_a_collective(
    patcher: sp.Patcher, cubin: sp.Cubin
) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    changed = patcher.open(collective(cubin, kernel, 4, 9))
    reasons = changed.traced_image(kernel, COUNT)
    refused = changed.refusals(kernel, sp.EMPTY)
    assert all("collective" in (refused[i] or "") for i in range(5, 9)), refused
    assert reasons.slots[9] != reasons.slots[3]


@pytest.fixture(scope="module")
def specialised(patcher: sp.Patcher) -> sp.Cubin:
    return patcher.open((DATA / "specialised_90a.cubin").read_bytes())


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
@pytest.mark.parametrize("kind", [1, 2, 3, 4, 6])
def test_warps_that_change_their_number_of_registers_get_more_of_them(
    kind: int, specialised: sp.Cubin, patcher: sp.Patcher, tmp_path: Path
) -> None:
    """Code that records has registers above those of its level, and below its new number."""
    (kernel,) = specialised.kernels
    traced = specialised.traced_image(kernel, 1 << kind, VARIABLE, threads=384)
    changed = patcher.open(traced.image)
    old = disassemble(code_of(specialised, kernel), tmp_path)
    new = code_of(changed, changed.kernels[0])
    texts = disassemble(new, tmp_path)
    levels = {
        i: (int(text.split()[-1], 16), int(texts[i].split()[-1], 16))
        for i, text in enumerate(old)
        if text.startswith("USETMAXREG")
    }
    (taken, most), (given, least) = levels.values()
    takes, gives = levels
    assert (taken, given) == (0xB8, 0x28) and least > given and traced.registers == 168
    assert 2 * most + least <= 3 * traced.registers
    own = {int(r) for text in old[takes:gives] for r in re.findall(r"\bR(\d+)\b", text)}
    seen = Counter[str]()
    for i in detoured(code_of(specialised, kernel), new):
        at = target(90, 16 * i, *new[i]) // 16
        end = next(n for n in range(at, len(new)) if goes_back(n, new, len(old)))
        own_text = old[i].split()[0]
        used = {
            int(name[1:])
            for text in texts[at:end]
            for name in (written(text) if not text.startswith(own_text) else ())
            if name[0] == "R"
        }
        where = "taken" if takes < i < gives else "given" if i > gives else "first"
        seen[where] += 1
        if where == "given":
            assert min(used) >= given and max(used) < least - 2
        elif where == "taken":
            assert min(used) > max(own) and max(used) < most - 2
        else:
            assert max(used) < traced.registers - 2
            named = {int(r) for text in old[:takes] for r in re.findall(r"\bR(\d+)\b", text)}
            assert not used & named
    assert seen["taken"] and seen["given"] and (seen["first"] or kind in (3, 4))


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
@pytest.mark.parametrize(
    ("kind", "takes", "saving"),
    [*((kind, 0xD8, {"taken"}) for kind in (1, 2, 3, 4)), (6, 0xE8, {"taken", "given"})],
)
def test_warps_that_cannot_have_more_registers_save_some(
    kind: int,
    takes: int,
    saving: set[str],
    specialised: sp.Cubin,
    patcher: sp.Patcher,
    tmp_path: Path,
) -> None:
    """All three groups of a block have 504 registers: twice 232, or 216, leave 40, or 72."""
    (kernel,) = specialised.kernels
    code = code_of(specialised, kernel)
    number = 0xFF << 32
    changes = [i for i, (low, _) in enumerate(code) if low & 0xFFF == 0x9C8]  # USETMAXREG
    more = code[changes[0]][0] & ~number | takes << 32, code[changes[0]][1]
    adds = next(i for i in range(changes[0] + 9, len(code)) if code[i][0] & 0xFFF == 0x810)  # IADD3
    last = code[adds][0] & ~(0xFF << 16) | takes - 2 << 16, code[adds][1]  # to this register
    both = {changes[0]: more, adds: last}
    changed = patcher.open(with_instructions(specialised, kernel, both))
    (kernel,) = changed.kernels
    code = code_of(changed, kernel)
    traced = patcher.open(changed.traced_image(kernel, 1 << kind, VARIABLE, threads=384).image)
    new = code_of(traced, traced.kernels[0])
    texts = disassemble(new, tmp_path)
    before = disassemble(code, tmp_path)
    taken, given = (new[i][0] >> 32 & 0xFF for i in changes)
    assert taken == takes and (given == 0x28) == ("given" in saving)
    found = set[str]()
    for i in detoured(code, new):
        at = target(90, 16 * i, *new[i]) // 16
        end = next(n for n in range(at, len(new)) if goes_back(n, new, len(code)))
        saved = {
            int(match[1]) + n
            for text in texts[at:end]
            if (match := re.match(r"STL\.64 \[\S+, R(\d+)", text))
            for n in range(2)
        }
        where = "taken" if changes[0] < i < changes[1] else "given" if i > changes[1] else "first"
        assert bool(saved) == (where in saving)
        found |= {where} if saved else set()
        for name in {n for text in texts[at:end] for n in written(text)} if saved else ():
            assert name[0] != "R" or int(name[1:]) in saved or name in written(before[i])
    assert found == saving


def test_a_block_has_registers_for_warps_that_take_more(specialised: sp.Cubin) -> None:
    (kernel,) = specialised.kernels
    for threads, why in ((512, "too few"), (100, "too few"), (384, None)):
        if why:
            with pytest.raises(ValueError, match=why):
                specialised.traced_image(kernel, OPCODE, VARIABLE, threads)
        else:
            assert specialised.traced_image(kernel, OPCODE, VARIABLE, threads).points > 400
    with pytest.raises(ValueError, match="change their number of registers"):
        specialised.traced_image(kernel, BEATS, VARIABLE, 384)


def calls(at: int, to: int) -> tuple[int, int]:
    """CALL.REL.NOINC."""
    words = (to - at - 1) * 4
    low = 0x7944 | (words & 0xFF) << 16 | (words >> 8 & 0x3FFFFFFF) << 34
    return low, 0xFEA00 << 32 | 0x3C00000 | words >> 38 & 0x3FFFF


def test_functions_behind_warps_that_change_their_number_of_registers(
    specialised: sp.Cubin, patcher: sp.Patcher
) -> None:
    """As in products of groups of matrices of CUTLASS. One that could change it is not known."""
    (kernel,) = specialised.kernels
    code = code_of(specialised, kernel)
    function = len(code) - 2
    changed = next(i for i, (low, _) in enumerate(code) if low & 0xFFF == 0x9C8)  # USETMAXREG
    returns = 0x4007950, 0xFEA0003C00000  # RET.REL.NODEC R4
    image = with_instructions(specialised, kernel, {3: calls(3, function), function: returns})
    assert target(90, 16 * 3, *calls(3, function)) == 16 * function
    (kernel,) = patcher.open(image).kernels
    assert patcher.open(image).traced_image(kernel, OPCODE, VARIABLE, threads=384).points > 400
    before = {changed + 20: calls(changed + 20, 3)}
    image = with_instructions(specialised, kernel, before)
    with pytest.raises(ValueError, match="in an unknown way"):
        patcher.open(image).traced_image(kernel, OPCODE, VARIABLE, threads=384)


def test_kernels_that_their_section_does_not_name_are_found(
    cubin: sp.Cubin, patcher: sp.Patcher
) -> None:
    """As in cubins of cuBLAS."""
    image, elf = bytearray(cubin.image), Elf(cubin.image)
    for i, section in enumerate(elf.sections):
        if section.name.startswith(".text."):
            at = elf.shoff + 64 * i + 44  # sh_info
            (info,) = struct.unpack_from("<I", image, at)
            struct.pack_into("<I", image, at, info & 0xFF000000)
    found = patcher.open(bytes(image)).kernels
    assert [k.name for k in found] == [k.name for k in cubin.kernels]


def with_instructions(
    cubin: sp.Cubin, kernel: sp.Kernel, changes: dict[int, tuple[int, int]]
) -> bytes:
    image = bytearray(cubin.image)
    for i, code in changes.items():
        struct.pack_into("<QQ", image, kernel.code + 16 * i, *code)
    return bytes(image)


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_a_kernel_without_a_stack_saves_registers_through_a_uniform_one(
    cubin: sp.Cubin, patcher: sp.Patcher, tmp_path: Path
) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    nop = 0x7918, 0xFC000 << 32
    changed = patcher.open(with_instructions(cubin, kernel, {0: nop}))
    old, new = code_of(changed, kernel), changed.trace(kernel, 255, ADDRESSES)
    texts = disassemble(new.code, tmp_path)
    chosen = detoured(old, new.code)
    assert chosen and new.registers == 255
    for i in chosen:
        at = target(90, 16 * i, *new.code[i]) // 16
        end = next(n for n in range(at, len(new.code)) if goes_back(n, new.code, len(old)))
        detour = texts[at:end]
        stored = [re.match(r"STL\.64 \[(UR\d+)\+(-0x\w+)\], R(\d+)", text) for text in detour]
        loaded = [re.match(r"LDL\.64 R(\d+), \[(UR\d+)\+(-0x\w+)\]", text) for text in detour]
        saved = {(m[1], m[2], m[3]) for m in stored if m}
        assert saved and saved == {(m[2], m[3], m[1]) for m in loaded if m}
        (pointer,) = {place for place, _, _ in saved}
        loads = [n for n, t in enumerate(detour) if t == f"ULDC {pointer}, c[0x0][0x28]"]
        first, last = (next(n for n, m in enumerate(found) if m) for found in (stored, loaded))
        assert len(loads) == 2 and loads[0] < first and first < loads[1] < last
    reads = 0xA0000007AB9 | 60 << 16, 0xFC00000000800  # ULDC UR60, c[0x0][0x28]
    changed = patcher.open(with_instructions(cubin, kernel, {0: reads}))
    refused = changed.trace(kernel, 255, ADDRESSES).refused
    assert {why for why in refused if why} == {
        "it leaves too few registers free, and has no stack pointer"
    }


def test_barriers_that_a_kernel_saves_are_its_own(cubin: sp.Cubin, patcher: sp.Patcher) -> None:
    kernel = next(k for k in cubin.kernels if k.name == "scale")
    before = {
        low >> 16 & 15 for low, _ in cubin.trace(kernel, OWN, OPCODE).code if low & 0xFFF == 0x945
    }
    last = kernel.size // 16 - 1
    saves, loads = (0x0F007355, 0x000FC00000100000), (0xE7356, 0x000FC00000000000)  # B15, B14
    image = with_instructions(cubin, kernel, {last: saves, last - 1: loads})
    code = patcher.open(image).trace(kernel, OWN, OPCODE).code
    after = {low >> 16 & 15 for low, _ in code if low & 0xFFF == 0x945}
    assert {15, 14} <= before and not {15, 14} & after and len(after) == len(before)


def test_pieces_use_few_uniform_registers() -> None:
    """Kernels of PyTorch leave five."""
    header = (sp.ROOT / "interpose" / "sass" / "trace_templates.h").read_text()
    found = re.findall(r"\[(\w+)\] = \{\w+, \d+, \d+, (\d+), \d+\}", header)
    assert len(found) == 9
    assert max(int(count) for name, count in found if not name.startswith("BEAT_ENTER")) <= 4 + 5


@pytest.mark.skipif(not NVDISASM, reason="needs nvdisasm")
def test_a_load_beside_other_records_has_the_predicates_of_the_kernel(
    cubin: sp.Cubin, tmp_path: Path
) -> None:
    seen = 0
    for kernel in cubin.kernels:
        old, new = code_of(cubin, kernel), cubin.trace(kernel, OWN, OPCODE | VALUES)
        before, after = disassemble(old, tmp_path), disassemble(new.code, tmp_path)
        for i in detoured(old, new.code):
            if not re.search(r"\bLD[GSL]?\b", before[i]):
                continue
            at = target(90, 16 * i, *new.code[i]) // 16
            itself = next(n for n in range(at, len(after)) if after[n] == before[i])
            saves = next(n for n in range(at, itself) if after[n].startswith("P2R"))
            restored = [n for n in range(saves, itself) if after[n].startswith("R2P PR,")]
            writes = [
                n for n in range(saves, itself) if re.search(r"SETP|PLOP3|VOTE\S* P", after[n])
            ]
            assert not writes or (restored and max(writes) < restored[-1]), before[i]
            seen += bool(writes)
    assert seen > 3
