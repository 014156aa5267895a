"""Settings from the command line and HEARTH_* variables, described once, as dataclass fields."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import ConfigError


def setting(
    default: Any, help: str, choices: tuple[str, ...] | None = None, secret: bool = False
) -> Any:
    """A dataclass field with what the command line has to know of it; a secret is never shown."""
    return dataclasses.field(
        default=default, repr=not secret, metadata={"help": help, "choices": choices}
    )


def parse_settings(
    config_types: Sequence[type],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    description: str,
) -> list[Any]:
    """Build one instance of each dataclass; an option wins over its HEARTH_* variable.

    Raises:
        ConfigError: an option is unknown, or an option or variable has a wrong value.
    """
    parser = _Parser(
        prog="app.py",
        usage="python app.py [options]",
        description=description,
        formatter_class=_help_formatter,
        allow_abbrev=False,
        epilog="An option wins over its variable. Defaults are in brackets.",
    )
    for config in config_types:
        group = parser.add_argument_group(config.__name__.removesuffix("Config").lower())
        for field in _settings_of(config):
            _add_option(group, field, _plain_type(config, field.name))
    chosen = vars(parser.parse_args(list(arguments)))
    return [config(**_values_of(config, chosen, environment)) for config in config_types]


def option_name(field_name: str) -> str:
    return "--" + field_name.replace("_", "-")


def variable_name(field_name: str) -> str:
    return "HEARTH_" + field_name.upper()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        raise ConfigError(f"{message[0].upper()}{message[1:]}. See --help.")


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    columns = int(os.environ.get("COLUMNS", "0") or 0) or 100
    return argparse.HelpFormatter(prog, max_help_position=34, width=max(60, min(columns, 110)))


def _settings_of(config: type) -> Iterable[dataclasses.Field[Any]]:
    return (field for field in dataclasses.fields(config) if "help" in field.metadata)


def _plain_type(config: type, name: str) -> type:
    hint = typing.get_type_hints(config)[name]
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.cast(type, hint)


def _add_option(group: argparse._ArgumentGroup, field: dataclasses.Field[Any], kind: type) -> None:
    shown = "" if field.default is None else f" [{field.default}]"
    text = f"{field.metadata['help']}{shown} ({variable_name(field.name)})".replace("%", "%%")
    if kind is bool:
        group.add_argument(
            option_name(field.name), action=argparse.BooleanOptionalAction, default=None, help=text
        )
        return
    choices = field.metadata["choices"]
    metavar = "{" + ",".join(choices) + "}" if choices else _METAVARS[kind]
    group.add_argument(option_name(field.name), default=None, help=text, metavar=metavar)


def _values_of(
    config: type, chosen: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    values = {}
    for field in _settings_of(config):
        kind = _plain_type(config, field.name)
        option, variable = option_name(field.name), variable_name(field.name)
        given = chosen[field.name]
        if given is not None:
            values[field.name] = given if kind is bool else _convert(option, given, field, kind)
        elif environment.get(variable, "") != "":
            values[field.name] = _convert(variable, environment[variable], field, kind)
    return values


def _convert(source: str, text: str, field: dataclasses.Field[Any], kind: type) -> Any:
    choices = field.metadata["choices"]
    if choices and text not in choices:
        raise ConfigError(f"{source} must be one of {', '.join(choices)}, not {text!r}.")
    try:
        value = _truth_of(text) if kind is bool else kind(text)
    except ValueError:
        raise ConfigError(f"{source} must be {_KIND_NAMES[kind]}, not {text!r}.") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{source} must be a finite number, not {text!r}.")
    return value


def _truth_of(text: str) -> bool:
    lowered = text.lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off"}:
        return False
    raise ValueError(text)


_METAVARS: Mapping[type, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
_KIND_NAMES: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "1 or 0",
    str: "text",
    Path: "a path",
}
