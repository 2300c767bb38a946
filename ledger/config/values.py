"""Value types shared by the configuration models. Numbers are strict: a boolean is never a number."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# A duration or amount of time; finite, above zero. The unit is in the key's name.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
# Tenants, principals, agents: they become parts of store keys, as session ids do.
Name = Annotated[str, Field(pattern=r"\A[A-Za-z0-9._:@/-]{1,128}\z")]
ToolName = Annotated[str, Field(pattern=r"\A[A-Za-z0-9_.:/@-]{1,200}\z")]


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, values never shown in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
