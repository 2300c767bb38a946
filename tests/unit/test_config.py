"""The configuration file: defaults, environment, and errors that fit on one line."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ledger.config import Config, Durability, Role, load, resolve_secret, with_secrets
from ledger.errors import ConfigError

# Every section and key of the documented file, with values that differ from the defaults.
WHOLE = """
[redis]
url = "redis+sentinel://127.0.0.1:26379/main"
durability = "external"
aof_local = 0
aof_replicas = 2
shards = 32
allow_ephemeral = true

[service]
port = 9000
max_body_bytes = 1
max_argument_bytes = 2
max_streams = 3
max_queued_runs = 4
max_pending_approvals = 5
rate_limit_per_second = 50

[workers]
concurrency = 6
linger_seconds = 0.5
max_parked = 7
max_sync_handlers = 8

[[tokens]]
name = "ops-agent"
sha256 = "DIGEST"
tenant = "acme"
roles = ["trigger", "read", "host"]
agents = ["ops"]
act_for_users = true

[mcp.servers.dashboards]
command = ["python", "-m", "workers.samples.dashboards"]
env = { REGION = "eu" }
cwd = "/srv"
concurrency = 9
reply_read_bytes = 10
reply_keep_bytes = 11
[mcp.servers.dashboards.tools.create]
human = "approve"
[mcp.servers.dashboards.tools.list]
read_only = true
[mcp.servers.remote]
url = "https://tools.example.test/mcp"
headers = { Authorization = "env:DASHBOARDS_TOKEN" }
[mcp.aliases]
create_dashboard = "mcp__dashboards__create"

[policy]
mutation_tools = ["mcp__dashboards__patch"]
approval_timeout_seconds = 12
requester_may_approve = true
[[policy.auto_approve]]
name = "small-refunds"
tool = "mcp__payments__refund"
when = { "/amount" = { le = 50 }, "/currency" = { in = ["EUR", "USD"] }, "/note" = { matches = "^x" } }

[budget]
tools = ["mcp__dashboards__create"]
execution_seconds = 120
request_ceiling_seconds = 900

[timing]
checkpoint_wait_seconds = 1
settlement_wait_seconds = 2
lease_seconds = 3
wrap_up_seconds = 4
cancel_drain_seconds = 5.5
stop_drain_seconds = 6
tool_timeout_seconds = 7
request_ceiling_seconds = 80
session_seconds = 70

[retention]
session_inactivity_days = 0.5
journal_hours = 1
tombstone_days = 2
tombstone_key = "env:TOMBSTONE_KEY"
erase_rewrite_minutes = 3
outcome_stream_maxlen = 4

[plugins]
modules = ["myhost.tools"]
""".replace("DIGEST", "a1" * 32)


def read(tmp_path: Path, text: str, **env: str) -> Config:
    """`text` as a file, loaded."""
    path = tmp_path / "mutation-ledger.toml"
    path.write_text(text)
    return load(path, env=env)


def refusal(tmp_path: Path, text: str, **env: str) -> str:
    """The one line with which `text` is refused, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, **env)
    line = str(caught.value)
    assert "\n" not in line
    return line.removeprefix(f"{tmp_path / 'mutation-ledger.toml'}: ")


def test_without_a_file_every_default_is_the_documented_one() -> None:
    config = load(None, env={})
    assert config.redis.url is None
    assert config.redis.durability is Durability.VERIFIED
    assert (config.redis.aof_local, config.redis.aof_replicas, config.redis.shards) == (1, 0, 16)
    assert config.redis.allow_ephemeral is False
    assert config.service.model_dump() == {
        "port": 8321,
        "max_body_bytes": 1048576,
        "max_argument_bytes": 262144,
        "max_streams": 1000,
        "max_queued_runs": 100,
        "max_pending_approvals": 100,
        "rate_limit_per_second": None,
    }
    assert config.workers.model_dump() == {
        "concurrency": 256,
        "linger_seconds": 60,
        "max_parked": 5000,
        "max_sync_handlers": 64,
    }
    assert config.timing.model_dump() == {
        "checkpoint_wait_seconds": 5,
        "settlement_wait_seconds": 5,
        "lease_seconds": 30,
        "wrap_up_seconds": 20,
        "cancel_drain_seconds": 5,
        "stop_drain_seconds": 60,
        "tool_timeout_seconds": 60,
        "request_ceiling_seconds": 900,
        "session_seconds": 880,
    }
    assert config.retention.model_dump() == {
        "session_inactivity_days": 30,
        "journal_hours": 24,
        "tombstone_days": 30,
        "tombstone_key": None,
        "erase_rewrite_minutes": 15,
        "outcome_stream_maxlen": 100000,
    }
    assert config.policy.approval_timeout_seconds == 300
    assert config.policy.requester_may_approve is False
    assert (config.tokens, config.budget, config.plugins.modules) == ([], None, [])
    assert (config.mcp.servers, config.mcp.aliases, config.policy.mutation_tools) == ({}, {}, [])


def test_every_documented_key_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert config.redis.durability is Durability.EXTERNAL
    assert config.tokens[0].roles == [Role.TRIGGER, Role.READ, Role.HOST]
    assert config.tokens[0].agents == ["ops"]
    server = config.mcp.servers["dashboards"]
    assert server.command == ["python", "-m", "workers.samples.dashboards"]
    assert server.tools["create"].human == "approve"
    assert server.tools["list"].read_only is True
    assert server.tools["list"].human is None
    assert config.mcp.servers["remote"].headers == {"Authorization": "env:DASHBOARDS_TOKEN"}
    assert config.policy.auto_approve[0].when["/amount"] == {"le": 50}
    assert config.budget is not None
    assert config.budget.execution_seconds == 120
    assert config.timing.session_seconds == 70
    assert config.plugins.modules == ["myhost.tools"]
    # No key may keep its default here: one that did would be a key that is not read.
    default = load(None, env={})
    for section in ("redis", "service", "workers", "policy", "timing", "retention"):
        plain = getattr(default, section).model_dump()
        assert [k for k, v in getattr(config, section).model_dump().items() if v == plain[k]] == [], section


def test_models_are_frozen() -> None:
    config = load(None, env={})
    with pytest.raises(ValidationError):
        config.redis.shards = 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[redis]\nurll = "redis://x"', "unknown setting redis.urll; did you mean url?"),
        ("[timings]", "unknown setting timings; did you mean timing?"),
        ("[servce]\nport = 1", "unknown setting servce; did you mean service?"),
        (
            '[mcp.servers.a]\ncommand = ["x"]\n[mcp.servers.a.tools.t]\nhumann = "approve"',
            "unknown setting mcp.servers.a.tools.t.humann; did you mean human?",
        ),
        (
            '[[policy.auto_approve]]\nname = "r"\ntool = "t"\nif = {}',
            "unknown setting policy.auto_approve.0.if; known here: name, tool, when",
        ),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_name(tmp_path: Path, text: str, line: str) -> None:
    assert refusal(tmp_path, text) == line


@pytest.mark.parametrize("value", ["true", "0", "-1", "inf", "nan", '"5"', "[]"])
@pytest.mark.parametrize("key", ["lease_seconds", "request_ceiling_seconds", "tool_timeout_seconds"])
def test_times_are_positive_finite_numbers_and_no_booleans(tmp_path: Path, key: str, value: str) -> None:
    assert refusal(tmp_path, f"[timing]\n{key} = {value}").startswith(f"timing.{key}: must")


@pytest.mark.parametrize("text", ["port = true", "port = 0", "port = 65536", "port = 1.5", 'port = "80"'])
def test_counts_are_exact(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, f"[service]\n{text}").startswith("service.port: must be")


@pytest.mark.proves("C-52")
@pytest.mark.parametrize(("ceiling", "fits"), [(25, False), (25.001, True), ("true", False), ("inf", False)])
def test_a_budget_ceiling_exceeds_wrap_up_and_drain(tmp_path: Path, ceiling: object, fits: bool) -> None:
    text = f'[budget]\ntools = ["t"]\nexecution_seconds = 1\nrequest_ceiling_seconds = {ceiling}'
    if fits:
        assert read(tmp_path, text).budget is not None
    else:
        assert "budget.request_ceiling_seconds" in refusal(tmp_path, text)


@pytest.mark.proves("C-52")
def test_the_budget_reserve_follows_the_configured_wrap_up(tmp_path: Path) -> None:
    budget = '[budget]\ntools = ["t"]\nexecution_seconds = 1\nrequest_ceiling_seconds = 50\n'
    text = f"{budget}[timing]\nwrap_up_seconds = 45"
    assert "must exceed timing.wrap_up_seconds + 5 = 50 s" in refusal(tmp_path, text)


@pytest.mark.proves("C-51")
def test_the_session_clock_is_shorter_than_the_ceiling(tmp_path: Path) -> None:
    line = refusal(tmp_path, "[timing]\nsession_seconds = 900")
    assert line == "timing: session_seconds must be below request_ceiling_seconds"
    assert read(tmp_path, "[timing]\nrequest_ceiling_seconds = 100").timing.session_seconds == 80
    assert "wrap_up_seconds" in refusal(tmp_path, "[timing]\nrequest_ceiling_seconds = 20")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[redis]\nurl = "http://x"', "redis.url: must begin with one of redis://"),
        ("[redis]\naof_local = 0", "nothing is ever confirmed"),
        ("[redis]\naof_local = 2", "redis.aof_local: must be"),
        ('[redis]\ndurability = "always"\naof_replicas = 1', "only WAITAOF can confirm replicas"),
        ('[redis]\ndurability = "maybe"', "must be 'verified', 'always' or 'external'"),
        ("[mcp.servers.a]", "give exactly one of command (stdio) and url"),
        ('[mcp.servers.a]\ncommand = ["x"]\nurl = "http://x"', "give exactly one of"),
        ('[mcp.servers.a]\nurl = "ftp://x"', "must begin with http"),
        ('[mcp.servers.a]\nurl = "http://x"\nenv = { A = "b" }', "a url takes headers"),
        ('[mcp.servers.a]\ncommand = ["x"]\nheaders = { A = "b" }', "a command takes env"),
        ('[mcp.servers.a]\ncommand = "x"', "mcp.servers.a.command: must be a valid list"),
        (
            '[mcp.servers.a]\ncommand = ["x"]\n[mcp.servers.a__b]\ncommand = ["x"]',
            "'a' and 'a__b' make tool names that read both ways",
        ),
        ('[mcp.servers."a b"]\ncommand = ["x"]', "server name 'a b' must be"),
        ('[mcp.aliases]\nx = "create"', "must name a canonical tool"),
        (
            '[mcp.servers.a]\ncommand = ["x"]\n[mcp.servers.a.tools.t]\nhuman = "approve"\nread_only = true',
            "exclude each other",
        ),
        (
            '[mcp.servers.a]\ncommand = ["x"]\n[mcp.servers.a.tools.t]\nhuman = "ask"',
            "must be 'approve', 'confirm' or",
        ),
        ('[[tokens]]\nname = "a"\nsha256 = "abc"\nroles = ["read"]', "tokens.0.sha256: must match"),
        (
            f'[[tokens]]\nname = "a"\nsha256 = "{"a" * 64}"\nroles = []',
            "tokens.0.roles: must have at least 1",
        ),
        (
            f'[[tokens]]\nname = "a"\nsha256 = "{"a" * 64}"\nroles = ["root"]',
            "tokens.0.roles.0: must be 'trigger'",
        ),
        (2 * f'[[tokens]]\nname = "a"\nsha256 = "{"a" * 64}"\nroles = ["read"]\n', "the same sha256"),
        ('[plugins]\nmodules = ["a b"]', "plugins.modules.0: must match"),
        ("[service", "is not TOML"),
        ("a = 1\na = 2", "is not TOML"),
    ],
)
def test_each_mistake_has_its_own_line(tmp_path: Path, text: str, part: str) -> None:
    assert part in refusal(tmp_path, text)


@pytest.mark.proves("C-43")
@pytest.mark.parametrize(
    ("when", "part"),
    [
        ('{ "amount" = { le = 5 } }', "is not a JSON Pointer"),
        ('{ "/a~2" = { le = 5 } }', "is not a JSON Pointer"),
        ('{ "/amount" = { } }', "has no condition"),
        ('{ "/amount" = { less = 5 } }', "'less' at '/amount' is not an operator; use one of eq, ne"),
        ('{ "/amount" = { le = "5" } }', "le at '/amount' compares with a number"),
        ('{ "/amount" = { le = true } }', "le at '/amount' compares with a number"),
        ('{ "/amount" = { le = nan } }', "a value that JSON does not have"),
        ('{ "/day" = { eq = 2026-01-01 } }', "a value that JSON does not have"),
        ('{ "/a" = { in = "EUR" } }', "takes a list"),
        ('{ "/a" = { in = [] } }', "takes a list"),
        ('{ "/a" = { matches = "(" } }', "is not a regular expression"),
        ('{ "/a" = { matches = 1 } }', "takes a regular expression"),
    ],
)
def test_rule_conditions_are_checked_when_read(tmp_path: Path, when: str, part: str) -> None:
    assert part in refusal(tmp_path, f'[[policy.auto_approve]]\nname = "r"\ntool = "t"\nwhen = {when}')


def test_rules_have_names_of_their_own(tmp_path: Path) -> None:
    rule = '[[policy.auto_approve]]\nname = "r"\ntool = "t"\n'
    assert "two rules are named 'r'" in refusal(tmp_path, rule * 2)


def test_several_mistakes_are_counted(tmp_path: Path) -> None:
    assert refusal(tmp_path, "[service]\nport = 0\nmax_streams = 0").endswith("(and 1 more)")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load(tmp_path / "absent.toml", env={})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"not UTF-8"):
        load(tmp_path / "bytes.toml", env={})


def test_values_are_never_quoted_in_errors(tmp_path: Path) -> None:
    secret = "hunter2-" * 3
    for text in (
        f'[redis]\nurl = "ftp://u:{secret}@h"',
        f'[retention]\ntombstone_key = ["{secret}"]',
        f'[[tokens]]\nname = "a"\nsha256 = "{secret}"\nroles = ["read"]',
        f'[timing]\nlease_seconds = "{secret}"',
    ):
        assert "hunter2" not in refusal(tmp_path, text)


def test_the_environment_overrides_the_file_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[service]\nport = 1\n[redis]\nurl = "redis://file"\nshards = 4')
    env = {"MUTATION_LEDGER__SERVICE__PORT": "2", "MUTATION_LEDGER__REDIS__URL": "redis://env", "OTHER": "x"}
    config = load(path, env=env, overrides={"redis": {"url": "redis://given"}})
    assert (config.service.port, config.redis.url, config.redis.shards) == (2, "redis://given", 4)
    assert load(path, env=env).redis.url == "redis://env"


@pytest.mark.parametrize(
    ("name", "value", "picked"),
    [
        ("REDIS__ALLOW_EPHEMERAL", "true", lambda config: config.redis.allow_ephemeral is True),
        ("REDIS__DURABILITY", "external", lambda config: config.redis.durability is Durability.EXTERNAL),
        ("TIMING__LEASE_SECONDS", "2", lambda config: config.timing.lease_seconds == 2.0),
        ("SERVICE__RATE_LIMIT_PER_SECOND", "1.5", lambda config: config.service.rate_limit_per_second == 1.5),
        ("PLUGINS__MODULES", '["a.b", "c"]', lambda config: config.plugins.modules == ["a.b", "c"]),
        # A text setting takes its text as it is, whatever it looks like.
        ("RETENTION__TOMBSTONE_KEY", "12345", lambda config: config.retention.tombstone_key == "12345"),
        ("MCP__SERVERS__DASH__COMMAND", '["x"]', lambda config: config.mcp.servers["Dash"].command == ["x"]),
        ("MCP__SERVERS__DASH__ENV__PORT", "1", lambda config: config.mcp.servers["Dash"].env["PORT"] == "1"),
    ],
)
def test_environment_values_take_the_type_of_their_setting(tmp_path: Path, name: str, value: str, picked: Any) -> None:
    text = '[mcp.servers.Dash]\ncommand = ["y"]\nenv = { PORT = "0" }'
    assert picked(read(tmp_path, text, **{f"MUTATION_LEDGER__{name}": value}))


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("SERVICE__PROT", "1", "MUTATION_LEDGER__SERVICE__PROT: unknown setting; did you mean port?"),
        ("SERVIC__PORT", "1", "MUTATION_LEDGER__SERVIC__PORT: unknown setting; did you mean service?"),
        (
            "SERVICE__PORT",
            "eighty",
            "MUTATION_LEDGER__SERVICE__PORT: not a TOML value (a number, true, false, or a list or table)",
        ),
        ("SERVICE__PORT__X", "1", "MUTATION_LEDGER__SERVICE__PORT__X: unknown setting"),
    ],
)
def test_environment_mistakes_name_the_variable(tmp_path: Path, name: str, value: str, line: str) -> None:
    assert refusal(tmp_path, "", **{f"MUTATION_LEDGER__{name}": value}) == line


def test_an_environment_name_below_a_plain_value_is_refused(tmp_path: Path) -> None:
    line = refusal(tmp_path, "service = 1", MUTATION_LEDGER__SERVICE__PORT="1")
    assert line == "MUTATION_LEDGER__SERVICE__PORT: service is not a table"


def test_secrets_by_reference() -> None:
    assert resolve_secret("plain", {}) == "plain"
    assert resolve_secret("env:KEY", {"KEY": "value"}) == "value"
    for env in ({}, {"KEY": ""}):
        with pytest.raises(ConfigError, match=r"the environment variable KEY is not set"):
            resolve_secret("env:KEY", env)


def test_the_stores_url_by_reference() -> None:
    config = Config.model_validate(
        {"redis": {"url": "env:STORE", "shards": 3}, "retention": {"tombstone_key": "env:KEY"}}
    )
    found = with_secrets(config, {"STORE": "redis://store:6379/1"})
    assert (found.redis.url, found.redis.shards) == ("redis://store:6379/1", 3)
    assert (found.retention.tombstone_key, config.redis.url) == ("env:KEY", "env:STORE")
    assert with_secrets(Config(), {}) == Config()
    with pytest.raises(ConfigError, match=r"the environment variable STORE is not set"):
        with_secrets(config, {})
    with pytest.raises(ConfigError) as caught:
        with_secrets(config, {"STORE": "http://me:secret@store"})
    assert str(caught.value).startswith("redis.url: must begin with one of redis://, ")
    assert "secret" not in str(caught.value)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_lowercase, max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(section=st.sampled_from(sorted(Config.model_fields)), value=json_like)
def test_whatever_a_section_holds_the_answer_is_a_config_or_one_line(section: str, value: object) -> None:
    said = ""
    try:
        load(None, env={}, overrides={section: value})
    except ConfigError as error:
        said = str(error)
    assert "\n" not in said
