"""Hearth: settings -> engine -> web app -> serve -> stop. Wiring only."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence

from engine import ConfigError, EngineConfig, parse_settings
from ui.chat.config import ChatConfig
from ui.server_config import ServerConfig

_DESCRIPTION = "Hearth: a chat application for a team, with a language model on its own machine."
_NOTHING_PHONES_HOME = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


def main(arguments: Sequence[str], environment: MutableMapping[str, str]) -> int:
    """Run until a signal. 0: stopped as asked, 1: the model failed, 2: a setting is wrong."""
    environment.update(_NOTHING_PHONES_HOME)
    try:
        engine_config, server_config, chat_config = parse_settings(
            [EngineConfig, ServerConfig, ChatConfig], arguments, environment, _DESCRIPTION
        )
        failure = _serve(engine_config, server_config, chat_config)
    except ConfigError as error:
        return _end(str(error), 2)
    return 0 if failure is None else _end(failure, 1)


def _serve(
    engine_config: EngineConfig, server_config: ServerConfig, chat_config: ChatConfig
) -> str | None:
    """The sentence of a failed load, or None. Raises ConfigError before anything is served."""
    # Imported late: --help and a wrong setting answer without torch and Gradio.
    from engine import Monitor, check_model_setting, create_engine
    from ui.web_server import WebServer, open_socket

    check_model_setting(engine_config)
    with open_socket(server_config) as listener:
        from ui.web import create_web_app

        engine = create_engine(engine_config)
        monitor = Monitor(engine.stats)
        app = create_web_app(
            engine=engine, monitor=monitor, config=server_config, chat_config=chat_config
        )
        server = WebServer(app, engine=engine, say=_say)
        return server.serve_on(listener)


def _say(line: str) -> None:
    print(line, flush=True)


def _end(sentence: str, exit_code: int) -> int:
    print(sentence, file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    exit_code = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    os._exit(exit_code)  # a thread in the middle of loading a model would hold the end up
