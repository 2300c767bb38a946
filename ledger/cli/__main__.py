"""`python -m ledger.cli` is `mutation-ledger`."""

from __future__ import annotations

import sys

from ledger.cli import main

sys.exit(main())
