# SPDX-License-Identifier: Apache-2.0
"""The table of difficulties (`difficulty.yaml`): what tasks are drawn, and which answers the cold start shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from verl_kernel.data.files import read_yaml
from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.kinds import Kind
from verl_kernel.generated_tasks.ops import FAMILIES

TABLE = Path(__file__).with_name("difficulty.yaml")


def _check_family(family: str) -> str:
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family}; the families are {', '.join(FAMILIES)}")
    return family


Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Family = Annotated[str, AfterValidator(_check_family)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class After(_Row):
    """Shares of second answers by the first one; what they leave is drawn as a first answer."""

    error: dict[Literal["repaired"], Share]
    partial: dict[Literal["larger", "same"], Share]
    lazy: dict[Literal["larger", "same"], Share]
    fused: dict[Literal["same"], Share]
    decoy: dict[Literal["honest", "same"], Share]


class Difficulty(_Row):
    """A row of the table: weights and shares, each from 0 to 1."""

    steps: dict[Literal[1, 2, 3, 4], Share]
    """Weights of chains by their number of steps."""
    families: dict[Family, Share]
    """Weights of the families from which a step is drawn."""
    unseen: tuple[Family, ...]
    """Families that no training task asks for, and that answers of the cold start leave to torch."""
    unfused: Share
    """Share of conversations about chains with a step of an unseen family."""
    dtypes: dict[Literal["float32", "float16", "bfloat16"], Share]
    """Weights of the types of the output."""
    hidden: dict[Literal["sizes", "dtype"], Share]
    """Shares of prompts that hide the sizes or the type."""
    first: dict[Kind, Share]
    """Weights of first answers."""
    after: After
    """Shares of second answers."""
    single_turn: Share
    """Share of conversations that end after the first answer."""
    unsaid: Share
    """Share of conversations whose second prompt does not mention the first answer."""
    sizes: Annotated[int, Field(ge=1, le=6, strict=True)] = 1
    """Sizes of a task, all of which are judged; fewer where a parameter leaves only the rows to differ."""
    tools: bool = False
    """Whether the first of two answers calls a tool, and the second follows what the tool says in place of feedback."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Difficulty:
        for name in ("steps", "dtypes", "first"):
            if not any(getattr(self, name).values()):
                raise ValueError(f"{name} holds no weight above 0: there is nothing to draw")
        if not self.seen.get("elementwise"):
            raise ValueError("the family elementwise has no weight, or is unseen: other steps need it between them")
        return self

    @property
    def seen(self) -> dict[str, float]:
        """Return the weights of the families that training shows."""
        return {family: weight for family, weight in self.families.items() if family not in self.unseen}


def read_difficulty(name: str, path: Path = TABLE) -> Difficulty:
    """Read a row of a table.

    Raises:
        ConfigError: the file cannot be read, has no such row, or the row is bad; the message names file and key.
    """
    table = read_yaml(path, f"write a table like {TABLE.name} of verl_kernel/generated_tasks")
    if name not in table:
        raise ConfigError(f"{path} has no row {name!r}; its rows are {', '.join(table)}")
    try:
        return Difficulty.model_validate(table[name])
    except ValidationError as exc:
        error = exc.errors()[0]
        key = ".".join(map(str, error["loc"]))
        text = f"{path}, {name}{key and '.'}{key}: {error['msg']} (compare {TABLE.name} of verl_kernel/generated_tasks)"
        raise ConfigError(text) from exc
