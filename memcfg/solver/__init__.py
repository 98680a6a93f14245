"""The constraint solver: options and rules in, a decision with its reason for every option out. Standard library only."""

from memcfg.solver.request import Choice, Request
from memcfg.solver.resolve import Resolution, resolve, why_not
from memcfg.solver.theory import Theory
