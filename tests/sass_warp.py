"""A warp that executes code that counts or stores registers, from the text of nvdisasm."""

from __future__ import annotations

import re
from collections import Counter

LANES, WORD = range(32), 0xFFFFFFFF
SPECIAL = {"SR_EQMASK": lambda lane: 1 << lane, "SR_LANEID": lambda lane: lane}
CLOCK = 0x1234567


def second(name: str) -> str:
    """The other register of a pair."""
    return re.sub(r"\d+", lambda m: str(int(m[0]) + 1), name)


class Warp:
    """constants: by offset in bank 0. memory: sums of reductions and what is stored, by address."""

    def __init__(self, constants: dict[int, int]) -> None:
        self.constants = constants
        self.registers: dict[str, list[int]] = {f"P{p}": [0] * 32 for p in range(7)}
        self.uniform: dict[str, int] = {}
        self.memory: Counter[int] = Counter()

    def run(self, texts: list[str], at: int, active: int, end: int = -1) -> None:
        """Executes what begins at an instruction, up to `end` or an exit."""
        while at != end and texts[at] != "EXIT":
            at = self._step(texts[at], at, active)

    def _step(self, text: str, at: int, active: int) -> int:
        guard = re.match(r"@(!?)(P\d) ", text)
        mnemonic, _, rest = text[guard.end() if guard else 0 :].partition(" ")
        names = rest.split(", ")
        if mnemonic == "BRA.U":
            return int(names[1], 16) // 16 if self.uniform[names[0]] else at + 1
        if mnemonic == "BRA":
            return int(names[0], 16) // 16
        lanes = [lane for lane in LANES if active >> lane & 1]
        if guard:
            holds = self.registers[guard[2]]
            lanes = [lane for lane in lanes if bool(holds[lane]) != bool(guard[1])]
        if mnemonic[0] == "U" or mnemonic.startswith("VOTEU"):
            self._uniform(mnemonic, names, active)
        elif mnemonic != "NOP":
            for lane in lanes:
                self._lane(mnemonic, names, lane, active)
        return at + 1

    def _get(self, name: str, lane: int = 0, wide: bool = False) -> int:
        if name[0] == "!":
            return int(not self._get(name[1:], lane))
        if name.endswith(("RZ", "PT")):
            return int(name.endswith("PT"))
        if match := re.match(r"c\[0x0\]\[(\w+)\]", name):
            return self.constants[int(match[1], 16)]
        if "0x" in name:
            return int(name, 16) & WORD
        value = self.uniform[name] if name[0] == "U" else self.registers[name][lane]
        return value | self._get(second(name), lane) << 32 if wide else value

    def _lane(self, mnemonic: str, names: list[str], lane: int, active: int) -> None:
        kind = mnemonic.split(".")[0]
        if kind == "REDG":
            match = re.match(r"desc\[UR\d+\]\[(R\d+)\.64(?:\+(0x\w+))?\]", names[0])
            assert match
            place = self._get(match[1], lane, wide=True) + int(match[2] or "0", 16)
            self.memory[place] += self._get(names[1], lane, wide=True)
        elif kind == "STG":
            match = re.match(r"desc\[UR\d+\]\[(R\d+)\.64(?:\+(0x\w+))?\]", names[0])
            assert match
            place = self._get(match[1], lane, wide=True) + int(match[2] or "0", 16)
            self.memory[place] = self._get(names[1], lane)
        elif kind == "R2P":
            for p in range(7):
                self.registers[f"P{p}"][lane] = self._get(names[1], lane) >> p & 1
        else:
            value = self._value(kind, names, lane, active, "WIDE" in mnemonic)
            self.registers.setdefault(names[0], [0] * 32)[lane] = value & WORD
            if "WIDE" in mnemonic or ".64" in mnemonic:
                self.registers.setdefault(second(names[0]), [0] * 32)[lane] = value >> 32

    def _value(self, kind: str, names: list[str], lane: int, active: int, wide: bool) -> int:
        if kind == "S2R":
            return SPECIAL[names[1]](lane)
        if kind == "CS2R":
            return CLOCK
        if kind == "ELECT":
            return int(lane == (active & -active).bit_length() - 1)
        if kind == "P2R":
            return sum(self.registers[f"P{p}"][lane] << p for p in range(7))
        if kind == "IMAD":
            product = self._get(names[1], lane) * self._get(names[2], lane)
            return product + self._get(names[3], lane, wide)
        values = [self._get(name, lane) for name in names[1:]]
        known = {
            "MOV": lambda: values[0],
            "LDC": lambda: values[0],
            "SHF": lambda: values[2] >> values[1],
            "LOP3": lambda: values[0] & values[1],
            "VIMNMX": lambda: min(values[:2]),
            "ISETP": lambda: int(values[1] != values[2]),
        }
        return known[kind]()

    def _uniform(self, mnemonic: str, names: list[str], active: int) -> None:
        first, kind = names[0], mnemonic.split(".")[0]
        if kind == "VOTEU":
            mask = active & sum(1 << lane for lane in LANES if self._get(names[2], lane))
            self.uniform |= {first: mask, names[1]: int(bool(mask))}
        elif kind == "UISETP":
            self.uniform[first] = int(self._get(names[2]) != self._get(names[3]))
        elif kind == "UPOPC":
            self.uniform[first] = self._get(names[1]).bit_count()
        elif kind == "USEL":
            self.uniform[first] = self._get(names[1] if self._get(names[3]) else names[2])
        else:
            assert kind in ("ULDC", "UMOV"), mnemonic
            value = self._get(names[1])
            self.uniform |= {first: value & WORD, second(first): value >> 32}
