"""The published contract of outcome records (C-101) and the description of this API."""

from __future__ import annotations

from typing import cast

from flask import Response, current_app
from flask_openapi.blueprint import APIBlueprint
from flask_openapi.openapi import OpenAPI

from ledger.contracts import raw_bytes
from service.describe import operation
from service.incoming import JSON
from service.jsonio import json_response

api = APIBlueprint("contracts", __name__)


@api.get(
    "/api/contracts/mutation_outcome_v1.json",
    **operation(replies={200: {"content": {JSON: {"schema": {"type": "object"}}}}}, store=False),
)
def outcome_contract() -> Response:
    """Limits, JSON Schema and examples of `mutation_outcome/v1`."""
    return Response(raw_bytes(), content_type=JSON)


@api.get(
    "/openapi.json",
    **operation(replies={200: {"content": {JSON: {"schema": {"type": "object"}}}}}, store=False),
)
def openapi() -> Response:
    """This API as an OpenAPI 3.1 document."""
    return json_response(cast("OpenAPI", current_app).api_doc)
