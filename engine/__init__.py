"""What the web application may use of the engine. `ui` and `app.py` import from here alone.

What brings torch and Transformers along is imported when it is first asked for: they take seconds,
and neither --help nor a wrong setting shall wait for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.config import BUNDLED_MODEL, EngineConfig, ModelInfo
from engine.engine import Engine, EngineState, EngineStatus, RequestStream
from engine.errors import (
    ConfigError,
    ContextLengthError,
    EngineDeadError,
    EngineNotReadyError,
    HearthError,
    InvalidParameterError,
    ModelLoadError,
    QueueFullError,
    RequestError,
)
from engine.request import (
    FinishReason,
    GenerationRequest,
    RequestOutput,
    RequestProgress,
    RequestStatus,
    RequestTimings,
    RequestTrace,
    TokenLogprob,
    TokenLogprobs,
    Usage,
)
from engine.sampling_params import MAX_LOGPROBS, SamplingParams
from engine.settings import option_name, parse_settings, setting, variable_name
from engine.stats import EngineStats, HistogramSnapshot, Percentiles
from engine.telemetry.monitor import Monitor
from engine.telemetry.snapshot import GpuSnapshot, HostSnapshot, MonitorSample

if TYPE_CHECKING:
    from engine.build import create_engine
    from engine.chat import ChatRequest, ChatService, ChatStream, PreparedChat
    from engine.model.sources import check_model_setting
    from engine.text.chat_template import ChatMessage
    from engine.text.transcript import Transcript

__all__ = [
    "BUNDLED_MODEL",
    "MAX_LOGPROBS",
    "ChatMessage",
    "ChatRequest",
    "ChatService",
    "ChatStream",
    "ConfigError",
    "ContextLengthError",
    "Engine",
    "EngineConfig",
    "EngineDeadError",
    "EngineNotReadyError",
    "EngineState",
    "EngineStats",
    "EngineStatus",
    "FinishReason",
    "GenerationRequest",
    "GpuSnapshot",
    "HearthError",
    "HistogramSnapshot",
    "HostSnapshot",
    "InvalidParameterError",
    "ModelInfo",
    "ModelLoadError",
    "Monitor",
    "MonitorSample",
    "Percentiles",
    "PreparedChat",
    "QueueFullError",
    "RequestError",
    "RequestOutput",
    "RequestProgress",
    "RequestStatus",
    "RequestStream",
    "RequestTimings",
    "RequestTrace",
    "SamplingParams",
    "TokenLogprob",
    "TokenLogprobs",
    "Transcript",
    "Usage",
    "check_model_setting",
    "create_engine",
    "option_name",
    "parse_settings",
    "setting",
    "variable_name",
]

_MODULE_OF_LATE_NAME = {
    "ChatMessage": "engine.text.chat_template",
    "ChatRequest": "engine.chat",
    "ChatService": "engine.chat",
    "ChatStream": "engine.chat",
    "PreparedChat": "engine.chat",
    "check_model_setting": "engine.model.sources",
    "Transcript": "engine.text.transcript",
    "create_engine": "engine.build",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_LATE_NAME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF_LATE_NAME[name]), name)
