"""What inference around one network gives, kept in a folder so that an interrupted call goes on there."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from equibayes import tensor_file
from equibayes.data.dataset import Dataset
from equibayes.errors import InputError
from equibayes.files import make_folder
from equibayes.posterior.file import Posterior
from equibayes.posterior.jacobian import Rows
from equibayes.posterior.tangent_plan import Plan

FORMAT, VERSION = "equibayes-refine", 1


@dataclass(frozen=True, eq=False)
class Draws:
    """What one centre gives for every candidate λ.

    scale    [Λ]        s²
    moves    [Λ, n, m]  draws of u, float32
    members  [Λ, n, H]  predictions of the held-back labels, None without any
    held     the held-back labels
    left_out [2, F]  without held-back labels: errors of the forces of each training frame, and their variances, as
                     the other frames predict them with the usual λ; None where networks learn different labels
    """

    scale: torch.Tensor
    moves: torch.Tensor
    members: torch.Tensor | None
    held: Rows | None
    left_out: torch.Tensor | None = None


class Store:
    """One file for each network; none without a folder."""

    def __init__(self, folder: Path | None, key: str) -> None:
        self.folder, self.key = folder, key

    @classmethod
    def of(
        cls,
        folder: Path | None,
        posterior: Posterior,
        train: Dataset,
        held: Dataset | None,
        plan: Plan,
        draws: int,
        seed: int,
    ) -> "Store":
        """The key stands for everything that the result depends on."""
        if folder is None:
            return cls(None, "")
        digest = hashlib.sha256(posterior.samples.numpy().tobytes())
        about = [train.fingerprint(), "" if held is None else held.fingerprint(), asdict(plan), draws, seed]
        digest.update(json.dumps(about, sort_keys=True).encode())
        return cls(make_folder(folder), digest.hexdigest())

    def load(self, number: int) -> Draws | None:
        """What was computed already, None if it was not, or for something else."""
        if self.folder is None or not self._path(number).is_file():
            return None
        try:
            what = "part of a refinement"
            header, tensors = tensor_file.read(self._path(number), format=FORMAT, version=VERSION, what=what)
        except InputError:  # written by another version, or damaged: computed again
            return None
        if header["key"] != self.key:
            return None
        held = {name[5:]: value for name, value in tensors.items() if name.startswith("held.")}
        rows = Rows(**held, jacobian=torch.zeros(len(held["label"]), 0, dtype=torch.float32)) if held else None
        return Draws(tensors["scale"], tensors["moves"], tensors.get("members"), rows, tensors.get("left_out"))

    def save(self, number: int, draws: Draws) -> None:
        if self.folder is None:
            return
        tensors = {"scale": draws.scale, "moves": draws.moves}
        if draws.left_out is not None:
            tensors["left_out"] = draws.left_out
        if draws.members is not None and draws.held is not None:
            tensors["members"] = draws.members
            names = [each.name for each in fields(Rows) if each.name != "jacobian"]
            tensors |= {f"held.{name}": getattr(draws.held, name) for name in names}
        tensor_file.write(self._path(number), tensors, {"key": self.key}, format=FORMAT, version=VERSION)

    def clear(self) -> None:
        """Remove the folder and its files."""
        if self.folder is not None:
            for path in self.folder.glob("network-*"):
                path.unlink()
            self.folder.rmdir()

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"network-{number:04d}.safetensors"
