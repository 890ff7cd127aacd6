"""What tests of programs need. `tenuto.testing.contract` is the suite for backends."""

from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.memory_runtime import memory_runtime
from tenuto.testing.provider import Answer, Provider, provider
from tenuto.testing.scripted_model import ScriptedModel

__all__ = ["Answer", "FakeClock", "Provider", "ScriptedModel", "memory_runtime", "provider"]
