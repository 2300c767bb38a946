"""The app factory: wires the parts of a front door together, nothing else."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from flask_openapi.models.info import Info
from flask_openapi.models.security_scheme import SecurityScheme
from flask_openapi.openapi import OpenAPI

from ledger.config import Config, with_secrets
from ledger.plugins import load_plugins
from ledger.proposing import Proposer, admission_limits
from ledger.store import StoreSettings, SyncStore
from ledger.store.group import GROUPS
from ledger.tokens import TokenBook
from ledger.tombstone import load_key
from ledger.wake import Waker
from service.describe import Problem, component_schemas
from service.door import EXTENSION, FrontDoor
from service.errors import init_errors
from service.incoming import SessionPart
from service.metrics import Metrics
from service.models import DecisionRequest, MetadataRequest, TriggerRequest
from service.rates import RateLimits
from service.replies import EventsReply, RunReply
from service.requests import init_requests
from service.routes import BLUEPRINTS
from service.standing import StoreCollector
from service.streams import StreamSlots
from service.waiting import Hub


def create_app(
    config: Config,
    *,
    store: SyncStore | None = None,
    waker: Waker | None = None,
    data_dir: Path | None = None,
) -> OpenAPI:
    """The front door as a WSGI app. `data_dir` holds `tokens.toml` and `tombstone.key`.

    The store is not asked here: a front door starts, and answers 503, while its store is away (C-26).

    Raises:
        ConfigError: a setting, plugin or key file cannot be used.
    """
    config = with_secrets(config)
    app = OpenAPI(
        __name__,
        info=Info(title="mutation-ledger", version=version("mutation-ledger")),
        security_schemes={"bearer": SecurityScheme(type="http", scheme="bearer")},
        validation_error_status=500,
        validation_error_model=Problem,
        doc_ui=False,
        static_folder=None,
    )
    app.openapi_version = "3.1.0"
    app.config["MAX_BODY_BYTES"] = config.service.max_body_bytes
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.url_map.converters["session"] = SessionPart
    app.extensions[EXTENSION] = _front_door(config, store, waker, data_dir)
    init_errors(app)
    init_requests(app)
    for api in BLUEPRINTS:
        app.register_api(api)
    app.components_schemas |= component_schemas(TriggerRequest, DecisionRequest, MetadataRequest, RunReply, EventsReply)
    return app


def _front_door(config: Config, store: SyncStore | None, waker: Waker | None, data_dir: Path | None) -> FrontDoor:
    plugins = load_plugins(config)
    settings = StoreSettings(config.redis, wait_seconds=config.timing.checkpoint_wait_seconds)
    store = store or SyncStore(settings, groups=GROUPS)
    url = store.settings.url
    tokens = TokenBook.load(config, data_dir)
    metrics = Metrics()
    door = FrontDoor(
        config=config,
        store=store,
        waker=waker or _rq_waker(url),
        plugins=plugins,
        tokens=tokens,
        proposer=Proposer(config, plugins, admission_limits(config, plugins.policy, load_key(config, data_dir))),
        hub=Hub(store.settings),
        metrics=metrics,
        slots=StreamSlots(config.service.max_streams, metrics.open_streams.set),
        rates=RateLimits(url, config.service.rate_limit_per_second),
    )
    metrics.registry.register(StoreCollector(lambda: door.store, tokens.tenants))
    return door


def _rq_waker(url: str) -> Waker:
    # Imported here: RQ reads its key prefix when it is imported, and a given waker needs no RQ.
    from ledger.adapters.rq_wake import RqWaker  # noqa: PLC0415

    return RqWaker(url)
