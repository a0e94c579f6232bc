"""Make the bundled data set: 2000 frames of revised MD17 ethanol.

    python -m studies.bundle_ethanol FOLDER

FOLDER holds `rmd17_ethanol.npz` (nuclear_charges, coords, energies, forces in kcal/mol and Å) and
`splits_ethanol.npz` (train_01 and test_01 as indices into its frames).  Frames 0 to 999 of the result are the official
train_01, frames 1000 to 1999 the official test_01; the two share no frame.
"""

import sys
from pathlib import Path

import numpy as np

BUNDLED = Path(__file__).resolve().parent.parent / "equibayes" / "data" / "bundled"


def main(folder: Path) -> None:
    with np.load(folder / "rmd17_ethanol.npz") as source, np.load(folder / "splits_ethanol.npz") as splits:
        train, test = splits["train_01"].astype(np.int64), splits["test_01"].astype(np.int64)
        if np.intersect1d(train, test).size:
            raise SystemExit("train_01 and test_01 share frames")
        chosen = np.concatenate([train, test])
        np.savez_compressed(
            BUNDLED / "ethanol.npz",
            nuclear_charges=source["nuclear_charges"].astype(np.uint8),
            coords=source["coords"][chosen].astype(np.float32),  # within a few Å of the origin: error below 2e-7 Å
            energies=source["energies"][chosen].astype(np.float64),  # -97 000 kcal/mol: float32 would lose 0.004
            forces=source["forces"][chosen].astype(np.float32),
            old_indices=source["old_indices"][chosen].astype(np.int32),
        )
    first, second = np.arange(len(train), dtype=np.int16), np.arange(len(train), len(chosen), dtype=np.int16)
    np.savez_compressed(BUNDLED / "ethanol.splits.npz", train=first, train_01=first, test=second, test_01=second)
    for file in sorted(BUNDLED.glob("ethanol*.npz")):
        print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
