"""Graphs of one operator's cases: one call of `ops.onnx`, as its model of one node says."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import helper

from graphcore import DType, Graph, TensorType
from graphcore.onnx.operators.calling import NAMED
from graphcore.onnx.schemas.catalogue import entry
from graphcore.runtime.kernel_probe.kernels.build import Question, question
from graphcore.runtime.kernel_probe.kernels.case import Case
from tests.support.backend.rebuilding import rebuilt
from tests.support.operators.cases import MAPS, cases_of


@dataclass(frozen=True, slots=True)
class Place:
    """An operator and a dtype."""

    domain: str
    name: str
    dtype: DType

    @property
    def cases(self) -> list[Case]:
        """Those that are for the dtype; where none is, one that ONNX refuses in it.

        A dtype that is another one in a file is that of an operand: attributes cannot say it.
        """
        if self.name in MAPS:
            return []
        cases = cases_of(self.name, self.domain)
        own = {self.dtype, self.dtype.storage}
        found = [case for case in cases if case.only is None or own & case.only] or [cases[0]]
        return [case for case in found if self.dtype not in NAMED or self._is_fed(case)]

    def _is_fed(self, case: Case) -> bool:
        return any(dtype is self.dtype for _, dtype in self.question(case).feeds.values())

    def question(self, case: Case, dtype: DType | None = None) -> Question:
        """The model of the case at the operator's newest version, in the dtype or another one."""
        asked = question(self.name, case, dtype or self.dtype)
        version = entry(self.name, self.domain).version
        if self.domain:
            asked.model.graph.node[-1].domain = self.domain
            asked.model.opset_import.append(helper.make_opsetid(self.domain, version))
        else:
            asked.model.opset_import[0].version = version
        return asked

    def graph(self, case: Case, *, named: bool = False) -> Graph:
        """Build the call. Raises the call's errors. named: dims of the operands have names for their sizes."""
        asked = self.question(case)
        types = [
            TensorType(dtype, [f"d{size}" if named else size for size in array.shape])
            for array, dtype in asked.feeds.values()
        ]
        return rebuilt(asked.model, types)
