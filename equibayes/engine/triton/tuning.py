"""How the work is divided into programs, as measured on one H200 (results/speed).  It affects the time only."""

from dataclasses import dataclass
from typing import Any

import torch

ROOMY = 128 * 1024  # bytes of shared memory


@dataclass(frozen=True)
class Tuning:
    """rows, warps, stages: of the linears of versions 0 and 1;  tangent_…: of versions 2 and 3 (gradient by weights).
    pieces: into which long sums of linears are divided, since few atoms make too few programs; readers add them up.
    registers: most per thread of the convolution; with fewer than the compiler would take, more programs run at once.
    Two warps per program make Triton use older matrix instructions, which are faster for tf32 than those of Hopper.
    """

    slots_collecting: int = 1
    slots_giving: int = 2
    registers: int = 168
    tangent_registers: int = 128
    rows: int = 32
    warps: int = 4
    stages: int = 2
    tangent_rows: int = 32
    tangent_warps: int = 4
    tangent_stages: int = 2
    pieces: int = 1
    gradient_rows: int = 32
    gradient_warps: int = 4
    gradient_stages: int = 3
    gradient_parts: int = 16
    radial_rows: int = 64
    radial_columns: int = 4096
    radial_stages: int = 3
    radial_last_warps: int = 4
    radial_back_rows: int = 64
    radial_back_warps: int = 4
    radial_block: int = 64
    radial_warps: int = 8
    radial_programs: int = 64

    @classmethod
    def best(cls, precision: str, rows: int, *, narrow: bool = False) -> "Tuning":
        """For `rows` atoms in all chains together.  narrow: a GPU with little shared memory; see `narrow`."""
        few, many = rows < 1024, rows >= 4096
        # a few atoms cannot fill a GPU: then the slots of an atom, and the blocks of a sum, are worked on side by side
        chosen: dict[str, Any] = {
            "slots_collecting": 4 if rows < 256 else 1,
            "slots_giving": 4 if rows < 256 else 1 if many else 2,
            "rows": 16 if rows < 256 else 64 if many else 32,
            "warps": 4,
            "stages": 2,
        }
        if few:
            chosen |= {"pieces": 3, "radial_columns": 320}
        if many:
            chosen |= {"radial_rows": 128, "radial_last_warps": 8}
        if precision in ("bf16x3", "mixed"):
            chosen |= {"stages": 3, "radial_warps": 4} | ({} if few else {"rows": 64, "slots_giving": 1})
        if precision == "tf32":
            chosen |= {"radial_rows": 32, "radial_last_warps": 2, "stages": 4 if few else 2, "warps": 2 if many else 4}
        chosen |= {f"tangent_{name}": chosen[name] for name in ("rows", "warps", "stages")}
        if precision in ("tf32", "mixed"):
            chosen |= {"gradient_rows": 16, "gradient_warps": 2, "gradient_stages": 4}
            chosen |= {"radial_back_warps": 2 if many else 4}
        if precision == "mixed" and not few:
            chosen |= {"tangent_rows": 64 if many else 32, "tangent_warps": 2 if many else 4, "tangent_stages": 2}
        if narrow:  # fits, not timed
            chosen |= {"radial_block": 32, "radial_rows": 64, "radial_last_warps": 4}
            chosen |= {name: min(chosen[name], 3) for name in ("stages", "tangent_stages")}
            chosen |= {"radial_rows": 32, "radial_block": 16} if precision == "tf32x3" else {}
        return cls(**chosen)


def narrow(device: torch.device | str) -> bool:
    """Whether a program has less than 128 KiB of shared memory there, as on consumer GPUs (99 KiB)."""
    if torch.device(device).type != "cuda":
        return False
    room: int = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", ROOMY)
    return room < ROOMY
