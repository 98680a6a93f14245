"""Mixture-of-experts models: the auxiliary loss that keeps their routers balanced."""

from __future__ import annotations

from memcfg import Bool, Default, Fact, Forbid, NotYet, Plugin, Setting, key, only_when

model = Fact(
    "moe.model", probe="memcfg_moe.facts:model", learn="memcfg_moe.facts:fetched",
    doc="whether the model routes tokens to experts",
)  # fmt: skip
aux = Bool("moe.aux", doc="add the routers' balancing loss")
coefficient = Setting(
    "moe.aux_coef", float, default=None, nullable=True, minimum=0.0, doc="its weight; null is the model's own"
)

plugin = Plugin(
    name="moe",
    doc="balances the routers of mixture-of-experts models",
    options=[model, aux, coefficient],
    rules=[
        Default(
            aux, True, when=model.on, id="moe.aux.default", because="routers that are not balanced collapse onto few experts"
        ),
        Forbid(
            aux.on & model.off, id="moe.aux.dense", because="a dense model has no routers to balance", suggest=["moe.aux=false"]
        ),
        *only_when(aux.on, coefficient, because="no balancing loss is added"),
    ],
    active=aux.on,
    not_yet=[NotYet(aux.on, "the routers' balancing loss is not added yet (`moe.aux=false` trains without it)")],
)  # fmt: skip
