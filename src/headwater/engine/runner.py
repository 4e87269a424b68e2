"""Carries out a step: copy, forward, sample. It decides nothing and keeps nothing between steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwater.engine.attention import Forward
from headwater.engine.attention_plan import Costs, plan_attention
from headwater.engine.costs import costs_for
from headwater.engine.kernels import kernel_for
from headwater.engine.kv import KVPool
from headwater.engine.model import Model
from headwater.engine.sampler import Draw, nucleus_for, sample, score
from headwater.engine.sampling import Sampled, SamplingParams, TokenLogprobs
from headwater.schedule.step import Step


class StepRunner:
    """Runs steps of one model over one pool. Not thread safe: one step at a time."""

    def __init__(self, model: Model, pool: KVPool, costs: Costs | None = None) -> None:
        self.model = model
        self.pool = pool
        self.costs = costs or costs_for(pool, model.facts.heads)
        self.kernel = kernel_for(pool.device, pool.form.dtype, pool.form.head_size)
        self.nucleus = nucleus_for(pool.device)

    def run(self, step: Step, params: Mapping[int, SamplingParams]) -> Sampled:
        """Execute `step`; `params` holds the requests of its samples.

        Entry i of the result belongs to `step.samples[i]`. When this returns, the KV of all rows
        lies in their slots. From a GPU to the host there is one copy, that of the drawn tokens, and
        one for each score.
        """
        with torch.inference_mode():
            self.pool.copy(step.copies)
            rows = sorted(_rows_with_logits(step))
            logits = self.model.logits(step.tokens, step.positions, self._forward(step), rows)
            at = {row: index for index, row in enumerate(rows)}
            draws = [
                Draw(at[each.row], params[each.request], each.choice, each.position)
                for each in step.samples
            ]
            drawn = sample(logits, draws, self.nucleus)
            return Sampled(drawn.tokens, drawn.logprobs, self._scored(step, params, logits, at))

    @staticmethod
    def _scored(
        step: Step, params: Mapping[int, SamplingParams], logits: Tensor, at: Mapping[int, int]
    ) -> list[list[TokenLogprobs]]:
        """What the scores of a step ask for; `at` says where a row's logits are."""
        scored = []
        for each in step.scores:
            first, count = at[each.row], len(each.targets)
            alternatives = params[each.request].logprobs or 0
            scored.append(score(logits[first : first + count], each.targets, alternatives))
        return scored

    def _forward(self, step: Step) -> Forward:
        device = self.pool.device
        return Forward(
            pool=self.pool,
            plan=plan_attention(step, self.costs, self.pool),
            slots=torch.tensor(step.slots).to(device),
            kernel=self.kernel,
        )


def _rows_with_logits(step: Step) -> set[int]:
    rows = {sample.row for sample in step.samples}
    for each in step.scores:  # consecutive, so that what is sorted has them in one piece
        rows.update(range(each.row, each.row + len(each.targets)))
    return rows
