"""How single labels change with the weights, by the C++ functions."""

import ctypes

import torch

from equibayes.bayes.model import StochasticModel
from equibayes.data.resident import ResidentData
from equibayes.engine.interface import LabelRows
from equibayes.engine.native.module import load
from equibayes.engine.native.steps import view, view_of_data


class RowsView(ctypes.Structure):
    """`RowsView` in source/rows.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("frames", "count", "width", "stress", "threads")),
        *((name, ctypes.c_void_p) for name in ("numbers", "first", "row", "place", "column", "factor")),
        *((name, ctypes.c_void_p) for name in ("out", "value", "log_sigma")),
    )


class NativeRows:
    """Rows of any frames at one weight set."""

    def __init__(
        self,
        model: StochasticModel,
        position: torch.Tensor,
        data: ResidentData,
        column: torch.Tensor,
        sign: torch.Tensor,
    ) -> None:
        """position [P]; column, sign: see `LabelRows`."""
        self.module = load(model)
        factor, used = model.layout.scale.like(position), column >= 0
        self._weights = position.new_zeros(self.module.size)
        self._weights[self.module.places.long()] = position * factor
        self._place = self.module.places[used].to(torch.int32).contiguous()
        self._column = column[used].to(torch.int32).contiguous()
        self._factor = (factor * sign)[used].float().contiguous()
        self._width = int(self._column.max()) + 1
        self._data, self._kept = view_of_data(data)
        self._stress, self._atoms = data.stress is not None, data.frames.num_atoms[:, 0]

    def __call__(self, frames: list[int], chosen: torch.Tensor) -> LabelRows:
        numbers = torch.tensor(frames)
        counts = 3 * self._atoms[numbers] + 1 + 6 * self._stress
        first = (counts.cumsum(0) - counts).contiguous()
        row = torch.where(chosen, chosen.cumsum(0) - 1, -1)
        total = int(chosen.sum())
        out = torch.zeros(total, self._width, dtype=torch.float32)
        value, log_sigma = torch.zeros(2, total, dtype=torch.float64).unbind()
        asked = view(
            RowsView, frames=len(frames), count=len(self._place), width=self._width, stress=int(self._stress),
            threads=torch.get_num_threads(), numbers=numbers, first=first, row=row, place=self._place,
            column=self._column, factor=self._factor, out=out, value=value, log_sigma=log_sigma,
        )  # fmt: skip
        self.module.library.rows_run(
            ctypes.byref(self._data), ctypes.byref(asked), ctypes.c_void_p(self._weights.data_ptr())
        )
        return LabelRows(value, log_sigma, out)
