"""Carries out a step: copy, forward, sample. It decides nothing and keeps nothing between steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from headwater.engine.attention import Forward
from headwater.engine.attention_plan import Costs, plan_attention
from headwater.engine.costs import costs_for
from headwater.engine.kernels import kernel_for
from headwater.engine.kv import KVPool
from headwater.engine.model import Model
from headwater.engine.sampler import Draw, nucleus_for, sample
from headwater.engine.sampling import Sampled, SamplingParams
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
        lies in their slots. From a GPU to the host there is one copy: the drawn tokens.
        """
        with torch.inference_mode():
            self.pool.copy(step.copies)
            rows = sorted({sample.row for sample in step.samples})
            logits = self.model.logits(step.tokens, step.positions, self._forward(step), rows)
            at = {row: index for index, row in enumerate(rows)}
            draws = [
                Draw(at[each.row], params[each.request], each.choice, each.position)
                for each in step.samples
            ]
            return sample(logits, draws, self.nucleus)

    def _forward(self, step: Step) -> Forward:
        device = self.pool.device
        return Forward(
            pool=self.pool,
            plan=plan_attention(step, self.costs, self.pool),
            slots=torch.tensor(step.slots).to(device),
            kernel=self.kernel,
        )
