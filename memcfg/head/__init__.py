"""What the kernels of output heads share: for authors of `memcfg_head` implementations, first-party and other.

transform       what a model does to raw logits: scale, soft cap, temperature
architectures   which model types do what, and the proof that it is true of the model at hand
layer           the output layer taken apart: weight, bias, adapters on it
targets         which positions a loss reads
linear          what heads have in common that compute from the layer's own weight"""

from memcfg.head.architectures import prove, transform_of
from memcfg.head.layer import OutputLayer, output_head, output_layer
from memcfg.head.linear import LinearHead
from memcfg.head.targets import Targets, nothing, supervised
from memcfg.head.transform import HeadTransform

__all__ = [
    "HeadTransform",
    "LinearHead",
    "OutputLayer",
    "Targets",
    "nothing",
    "output_head",
    "output_layer",
    "prove",
    "supervised",
    "transform_of",
]
