"""The transition table of the contract, and the letters that stand for it in the store."""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import pytest

from ledger.states import (
    CALL_BY_CODE,
    MUTATION_BY_CODE,
    TRANSITIONS,
    CallStatus,
    Cause,
    MutationStatus,
    RunStatus,
    may_move,
)

A, S, C, F, U = (
    MutationStatus.APPROVED,
    MutationStatus.EXECUTION_STARTED,
    MutationStatus.COMPLETED,
    MutationStatus.FAILED,
    MutationStatus.OUTCOME_UNKNOWN,
)
# C-10, move by move, whatever causes them.
MOVES = {(None, A), (A, S), (S, C), (S, F), (S, U), (S, A), (U, C), (U, A), (U, F)}


@pytest.mark.proves("C-10")
def test_exactly_the_contract_s_moves_exist() -> None:
    assert {(before, after) for before, _, after in TRANSITIONS} == MOVES
    every = itertools.product([None, *MutationStatus], Cause, MutationStatus)
    assert {move for move in every if may_move(*move)} == TRANSITIONS


@pytest.mark.proves("C-10")
def test_what_is_settled_stays_and_only_an_intent_starts() -> None:
    assert not [move for move in TRANSITIONS if move[0] in (C, F)]
    assert {move for move in TRANSITIONS if move[2] is S} == {(A, Cause.INTENT, S)}
    assert {after for before, cause, after in TRANSITIONS if cause is Cause.OWNER_LOST} == {U}
    assert {(before, after) for before, cause, after in TRANSITIONS if cause is Cause.RECONCILED} == {
        (U, C),
        (U, A),
        (S, A),
    }
    assert {after for _, cause, after in TRANSITIONS if cause is Cause.FIRST_HAND} == {C, F, A}


def test_every_status_has_one_letter_and_back() -> None:
    assert {MUTATION_BY_CODE[status.code] for status in MutationStatus} == set(MutationStatus)
    assert sorted(CALL_BY_CODE.values()) == sorted(CallStatus)


def test_the_scripts_know_the_same_call_letters() -> None:
    lua = (files("ledger") / "lua" / "lib" / "run.lua").read_text()
    told = re.search(r"-- Call status: (.*?)\n\n", lua, re.DOTALL)
    assert told is not None
    letters = dict(re.findall(r"\b([a-z]) ([a-z_]+)", told.group(1)))
    assert {letter: CallStatus(name) for letter, name in letters.items()} == CALL_BY_CODE
    ended = re.search(r"local ENDED = \{(.*?)\}", lua)
    assert ended is not None
    live = set(CALL_BY_CODE) - set(re.findall(r"(\w) = true", ended.group(1)))
    assert {CALL_BY_CODE[letter] for letter in live} == {
        CallStatus.QUEUED,
        CallStatus.WAITING_FOR_APPROVAL,
        CallStatus.RUNNING,
    }


def test_the_scripts_know_the_same_mutation_letters() -> None:
    lua = (files("ledger") / "lua" / "lib" / "entry.lua").read_text()
    told = re.search(r"s status: (.*)", lua)
    assert told is not None
    letters = dict(re.findall(r"\b([a-z]) ([a-z_]+)", told.group(1)))
    assert {letter: MutationStatus(name) for letter, name in letters.items()} == MUTATION_BY_CODE


def test_a_run_has_ended_or_lives() -> None:
    ended = {status for status in RunStatus if status.ended}
    assert ended == {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}
