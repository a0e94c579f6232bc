"""How work is cut into programs."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tuning:
    """How work is cut into programs, by measurement on one H200 (results/speed); it changes the time and nothing else.

    Two warps a program make Triton use the older matrix instructions, which are faster here for tf32 than those of Hopper.
    """

    slots_collecting: int = 1
    slots_giving: int = 2
    rows: int = 32
    warps: int = 4
    stages: int = 2
    gradient_rows: int = 32
    gradient_warps: int = 4
    gradient_stages: int = 3
    gradient_parts: int = 4
    radial_rows: int = 64
    radial_stages: int = 3
    radial_last_warps: int = 4
    radial_back_rows: int = 64
    radial_back_warps: int = 4
    radial_block: int = 64
    radial_warps: int = 8
    radial_programs: int = 64

    @classmethod
    def best(cls, precision: str, rows: int) -> "Tuning":
        """For `rows` atoms in all chains together."""
        few, many = rows < 1024, rows >= 4096
        # a few atoms cannot fill a GPU: then the slots of an atom are worked on side by side
        common: dict[str, Any] = {
            "slots_collecting": 4 if rows < 256 else 1,
            "slots_giving": 4 if rows < 256 else 1 if many else 2,
            "rows": 64 if many else 32,
        }
        if precision in ("bf16x3", "mixed"):
            common |= {"stages": 3, "radial_warps": 4} | ({} if few else {"rows": 64, "slots_giving": 1})
            if precision == "bf16x3":
                return cls(**common)
            back = 2 if many else 4
            return cls(**common, gradient_rows=16, gradient_warps=2, gradient_stages=4, radial_back_warps=back)
        if precision != "tf32":
            return cls(**common)
        return cls(
            **common, gradient_rows=16, gradient_warps=2, gradient_stages=4, radial_rows=32, radial_last_warps=2,
            stages=4 if few else 2, warps=2 if many else 4, radial_back_warps=2 if many else 4,
        )  # fmt: skip
