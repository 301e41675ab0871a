"""Settings read, checked and written: TOML, ``key=value`` flags, and errors that name the setting."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

import tomlkit
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from tyro.constructors import PrimitiveConstructorSpec

from neyman._files.limits import read_bytes
from neyman.errors import ArgumentError
from neyman.presets import parse_options

_LARGEST = 2**20  # bytes of a file of settings
_DEEPEST = 16  # levels of lists and tables inside a setting


_OPTIONS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="[KEY=VALUE ...]",
    instance_from_str=parse_options,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda options: [f"{key}={value}" for key, value in options.items()],
)


def _as_toml(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse options that TOML cannot hold, as the options of every run are saved."""
    for name, value in options.items():
        _check_leaf(name, name)
        for _, item, _ in _parts(name, value):
            _check_leaf(name, item)
    return options


def _check_leaf(name: str, value: Any) -> None:
    if value is None:
        raise ValueError(f"must hold values that TOML has, but {name} is None: leave it out, or write 'none'")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must hold finite numbers, but {name} has {value}")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"must hold text that can be written, but that of {name} cannot: {error}"
            ) from None
    if not isinstance(value, bool | int | float | str | list | tuple | dict | date | time):
        raise ValueError(f"must hold values that TOML has, but {name} has a {type(value).__name__}")  # noqa: TRY004


Options: TypeAlias = Annotated[dict[str, Any], _OPTIONS, AfterValidator(_as_toml)]


Settings = TypeVar("Settings", bound="Section")


class Section(BaseModel):
    """A frozen group of settings that refuses unknown ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        _check_values(values)
        wrong = _flags_for_numbers(values, type(self))
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong.append(explain(error, type(self)))
        if wrong:
            raise ArgumentError("\n".join(wrong))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file, unchecked.

    Raises:
        ArgumentError: no such file, one larger than 1 MiB, or not TOML; the message names the place.
    """
    try:
        text = read_bytes(path, _LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the configuration {path} cannot be read: {error}") from error
    try:
        return tomllib.loads(text.replace("\r\n", "\n").replace("\r", "\n"))
    except (ValueError, RecursionError) as error:  # also an integer of more digits than Python reads
        raise ArgumentError(f"{path} is not TOML: {error}") from error


def _flags_for_numbers(values: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Return a line for each true or false in the place of a number, which pydantic would read as 1 or 0."""
    lines = []
    for name, value in values.items():
        items = value if isinstance(value, list | tuple) else (value,)
        if name in model.model_fields and any(isinstance(item, bool) for item in items):
            kinds = _kinds(model.model_fields[name].annotation)
            if kinds & {int, float} and bool not in kinds:
                lines.append(f"{name} must be a number, got {value!r:.80}")
    return lines


def _kinds(annotation: Any) -> set[Any]:
    """Return the types that an annotation is made of, down to those of a tuple's items."""
    inner = get_args(annotation)
    return {annotation} if not inner else {kind for part in inner for kind in _kinds(part)}


def _check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that cannot be shown or saved: nested too deeply for the stack, or numbers with too many digits."""
    for name, value in values.items():
        for place, item, depth in _parts(name, value):
            if isinstance(item, int) and not -(2**63) <= item < 2**63:
                raise ArgumentError(f"{place} must hold numbers of 64 bits, but has a larger one")
            if depth > _DEEPEST:
                raise ArgumentError(
                    f"{name} is nested deeper than {_DEEPEST} levels; settings are one to three levels deep"
                )


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield (place, item, depth) of a value and of all keys and items within, the shallow ones first."""
    level, depth = [(name, value)], 0
    while level:
        inner: list[tuple[str, Any]] = []
        for place, item in level:
            yield place, item, depth
            if isinstance(item, Mapping):
                inner += [(place, key) for key in item]
                inner += [(f"{place}.{key}" if isinstance(key, str) else place, x) for key, x in item.items()]
            elif isinstance(item, list | tuple):
                inner += [(place, x) for x in item]
        level, depth = inner, depth + 1


def checked(model: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Check settings against a model.

    Raises:
        ArgumentError: one line for each setting that is wrong.
    """
    return model(**values)


def dump(settings: Section) -> str:
    """Return settings as TOML: plain ones first, then a table for each section, each with its description."""
    document = tomlkit.document()
    values = settings.model_dump(mode="json", exclude_none=True)
    sections = {
        name: getattr(settings, name) for name in values if isinstance(getattr(settings, name), Section)
    }
    for name in (name for name in values if name not in sections):
        document.add(tomlkit.comment(type(settings).model_fields[name].description or ""))
        document.add(name, values[name])
    for name, section in sections.items():
        table = tomlkit.table()
        table.comment((type(section).__doc__ or "").partition("\n")[0])
        for key, value in values[name].items():
            table.add(tomlkit.comment(type(section).model_fields[key].description or ""))
            table.add(key, _inline(value) if isinstance(value, dict) else value)
        document.add(name, table)
    return tomlkit.dumps(document)


def _inline(options: dict[str, Any]) -> Any:
    table = tomlkit.inline_table()
    table.update(options)
    return table


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Turn the errors of a model into lines that name the setting, the value and the legal ones."""
    lines = []
    for found in error.errors(include_url=False):
        # A section explains itself; its tag, where it is one of several kinds, adds nothing.
        name, kind = ".".join(str(part) for part in found["loc"][:1]), found["type"]
        cause = found.get("ctx", {}).get("error")
        if isinstance(cause, ArgumentError):
            lines += [f"{name}.{line}" for line in str(cause).splitlines()]
        elif kind == "extra_forbidden":
            lines.append(f"{name} is no setting; {_nearest(name, model)}")
        elif kind == "missing":
            lines.append(f"{name} is missing: {model.model_fields[name].description}")
        elif kind.startswith("union_tag"):
            given = found["input"].get("type") if isinstance(found["input"], dict) else found["input"]
            lines.append(f"{name}.type must be one of {found['ctx'].get('expected_tags')}, got {given!r:.80}")
        elif kind == "value_error":
            lines.append(f"{name} {cause}" if name else str(cause))
        else:
            lines.append(f"{name} {found['msg'].removeprefix('Input ')}, got {found['input']!r:.80}")
    return "\n".join(lines)


def as_flags(section: str, message: str, model: type[BaseModel]) -> str:
    """Replace ``name=value`` in a message for Python by the flags that set it.

    >>> class Task(Section):
    ...     test_share: float = 0.1
    >>> as_flags("task", "pass test_share=0.2, or n=3", Task)
    'pass --task.test-share 0.2, or n=3'
    """

    def flag(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"].strip("\"'")
        return f"--{section}.{name.replace('_', '-')} {value}" if name in model.model_fields else found[0]

    return re.sub(r"""\b(?P<name>[a-z_]+)=(?P<value>"[^"]*"|'[^']*'|[\w.]*\w)""", flag, message)


def _nearest(name: str, model: type[BaseModel]) -> str:
    legal = list(model.model_fields)
    close = difflib.get_close_matches(name, legal, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"legal are {', '.join(legal)}"
