"""Categories of instructions by opcode, and the opcodes that may be delayed.

The opcode is the first part of a mnemonic: LDG of LDG.E.64. An opcode that is in no list computes.
"""

from __future__ import annotations

OPCODES = {
    "load": "LD LDG LDL LDS LDC ULDC LDCU LDSM LDTM LDT TEX TLD TLD4 TXD TMML SULD ALD ILD",
    "store": "ST STG STL STS STSM STAS STTM STT SUST AST",
    "copy": "LDGSTS",  # from global to shared memory, not waited for
    "atomic": "ATOM ATOMG ATOMS SUATOM UTCATOMSWS UATOMS",
    "reduction": "RED REDG REDAS SURED",
    "barrier": "BAR UCGABAR_ARV UCGABAR_WAIT WARPSYNC BSYNC WARPGROUPSYNC",
    "mbarrier": "SYNCS ARRIVES UTCBAR USYNCS",
    "wait": "DEPBAR LDGDEPBAR WARPGROUP ACQBULK UTMACMDFLUSH NANOSLEEP YIELD",
    "fence": "MEMBAR FENCE ERRBAR CGAERRBAR",
    "TMA": "UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UBLKCP UBLKRED UBLKPF",
    "matrix": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA DGMMA MOVM WARPGROUPSET "
    "UTCHMMA UTCQMMA UTCIMMA UTCOMMA UTCMXQMMA UTCCP UTCSHIFT",
    "branch": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BREAK KILL BSSY RTT BPT BMOV BREV PREEXIT "
    "UBRA WARPJOIN",
    "vote": "VOTE VOTEU MATCH REDUX CREDUX SHFL ELECT FSWZADD",
    "cache": "CCTL CCTLL CCTLT PREFETCH",
    "convert": "F2F F2I I2F I2I I2IP I2FP F2FP F2IP FRND UF2F UF2I UI2F UI2FP UF2FP UF2IP UFRND",
    "move": "MOV UMOV S2R CS2R S2UR CS2UR R2UR UR2UP UP2UR R2P P2R B2R R2B SEL USEL PRMT UPRMT "
    "LEPC MOV32I SHADOW RPCMOV GETLMEMBASE SETLMEMBASE MOVS",
    "special": "MUFU UMUFU",
    "float": "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FMNMX FMNMX3 FSEL FSET FSETP FCHK FADD32I FMUL32I "
    "FFMA32I HADD2 HMUL2 HFMA2 HMNMX2 HSET2 HSETP2 HADD2_32I HFMA2_32I HMUL2_32I UFADD UFMUL "
    "UFFMA UFSEL UFSET UFSETP UFMNMX DADD DMUL DFMA DMNMX DSETP FHADD FHFMA",
    "nothing": "NOP",
}
CATEGORIES = {opcode: name for name, opcodes in OPCODES.items() for opcode in opcodes.split()}
COMPUTES = "integer"

# Delays come before them unless others are asked for: as interpose/delay/image.c has it.
_DELAYED = (
    "ACQBULK ARRIVES ATOM ATOMG ATOMS BAR CCTL CGAERRBAR DEPBAR ERRBAR FENCE HGMMA IGMMA LD LDG "
    "LDGDEPBAR LDGSTS LDS LDSM LDTM MEMBAR PREEXIT QGMMA RED REDG ST STAS STG STS STSM STTM SYNCS "
    "UBLKCP UBLKRED UCGABAR_ARV UCGABAR_WAIT UTCBAR UTCCP UTCHMMA UTCIMMA UTCOMMA UTCQMMA "
    "UTMACMDFLUSH UTMALDG UTMAREDG UTMASTG WARPGROUP WARPSYNC"
)
DELAYED = frozenset(_DELAYED.split())


def category(opcode: str) -> str:
    return CATEGORIES.get(opcode, COMPUTES)


def can_delay(opcode: str, patterns: str = "") -> bool:
    """Returns whether a delay may come before an instruction.

    patterns: as for `record --delay-patterns`: mnemonics separated by commas, of which only the
    opcode counts, or `*`. Default: DELAYED.
    """
    if not patterns:
        return opcode in DELAYED
    names = {pattern.partition(".")[0].strip() for pattern in patterns.split(",")}
    return opcode in names or any(name.startswith("*") for name in names)
