"""Public forms of what hosts attach to a mutation; a value that cannot be judged is withheld as None."""

from ledger.sanitise.credentials import contains_credential
from ledger.sanitise.text import public_resource_id, public_title
from ledger.sanitise.urls import public_url

__all__ = ["contains_credential", "public_resource_id", "public_title", "public_url"]
