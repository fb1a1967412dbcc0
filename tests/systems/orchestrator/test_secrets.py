"""Secrets go from where they are kept to the runner that needs them, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, done
from tests.systems.orchestrator.test_fencing import everything_stored

from interlock.errors import InvalidJob
from interlock.store.memory import MemoryStore
from interlock.systems.orchestrator.vault import NoSecret, Vault
from interlock.wire.jobs import RetryRule

VALUE = "correct horse battery staple"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_TOKEN", VALUE)
    monkeypatch.delenv("INTERLOCK_SECRETS_FILE", raising=False)


def file_of(folder: Path, text: str, mode: int = 0o600) -> Vault:
    path = folder / "secrets.toml"
    path.write_text(text)
    path.chmod(mode)
    return Vault({"INTERLOCK_SECRETS_FILE": str(path), "INTERLOCK_SECRET_TOKEN": VALUE})


async def test_a_runner_is_given_what_the_job_names_and_nobody_else_sees_it(house: House) -> None:
    job_id = await house.submit(secrets=("TOKEN",))
    (grant,) = await house.claim()
    assert grant.secrets == {"TOKEN": VALUE}
    await house.heard(done(grant))
    view = await house.view(job_id)
    assert (view.state, view.secrets) == ("COMPLETED", ("TOKEN",))
    assert isinstance(house.store, MemoryStore)
    shown = [repr(grant), msgspec.json.encode(view), await house.history(job_id), await house.body(job_id)]
    assert VALUE not in everything_stored(house.store)
    assert VALUE not in "\n".join(map(str, shown))
    assert "'TOKEN': …" in repr(grant)


async def test_a_claim_that_is_answered_again_has_its_secrets_again(house: House) -> None:
    await house.submit(secrets=("TOKEN",))
    for _ in range(2):
        (grant,) = await house.claim(claim_id="once")
        assert grant.secrets == {"TOKEN": VALUE}
    assert isinstance(house.store, MemoryStore)
    assert VALUE not in everything_stored(house.store)


@pytest.mark.parametrize("acknowledge", [True, False])
async def test_a_secret_that_nobody_has_fails_the_attempt_and_says_which(
    house: House, acknowledge: bool
) -> None:
    job_id = await house.submit(secrets=("TOKEN", "NOBODY"), retry={"tooling": RetryRule(retries=0)})
    other = await house.submit()
    grants = await house.claim(acknowledge=acknowledge)
    assert [grant.job_id for grant in grants] == [other]
    view = await house.view(job_id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "tooling"
    assert view.failure.error == "There is no secret NOBODY for jobs of the queue default."
    assert "INTERLOCK_SECRET_NOBODY" in view.failure.details


async def test_what_is_withheld_is_not_given_not_even_when_the_job_is_retried(house: House) -> None:
    job_id = await house.submit(secrets=("TOKEN",), secrets_withheld=True)
    (grant,) = await house.claim()
    assert (grant.secrets, grant.secrets_withheld) == ({}, True)
    await house.heard(done(grant))
    again = await house.jobs.retry(job_id)
    (grant,) = await house.claim()
    assert grant.job_id == getattr(again, "id", again)
    assert (grant.secrets, grant.secrets_withheld) == ({}, True)


@pytest.mark.parametrize("names", [("a b",), ("INTERLOCK_TOKEN",), ("1A",), ("",), ("A", "A")])
async def test_a_name_that_cannot_be_a_variable_is_refused(house: House, names: Any) -> None:
    with pytest.raises(InvalidJob):
        await house.submit(secrets=names)


def test_a_secret_may_be_for_some_queues_only(tmp_path: Path) -> None:
    vault = file_of(tmp_path, '[secrets]\nALL = "for all"\nKEY = {value = "for few", queues = ["deploy"]}\n')
    assert vault.find("ALL", "anything") == "for all"
    assert vault.find("KEY", "deploy") == "for few"
    assert vault.find("TOKEN", "default") == VALUE
    with pytest.raises(NoSecret, match="no secret KEY for jobs of the queue default"):
        vault.find("KEY", "default")


def test_the_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    vault = file_of(tmp_path, '[secrets]\nTOKEN = "first"\n')
    assert vault.find("TOKEN", "default") == "first"
    (tmp_path / "secrets.toml").write_text('[secrets]\nTOKEN = "another"\n')
    assert vault.find("TOKEN", "default") == "another"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_not_used(tmp_path: Path, mode: int) -> None:
    vault = file_of(tmp_path, '[secrets]\nTOKEN = "file"\n', mode)
    with pytest.raises(NoSecret) as refused:
        vault.find("TOKEN", "default")
    assert "others than its owner" in refused.value.sentence
    assert "chmod 600" in refused.value.todo


@pytest.mark.parametrize("text", ["TOKEN = hush", "[secrets]\nTOKEN = 5", '[secret]\nTOKEN = "hush"', "\xff"])
def test_a_file_that_cannot_be_understood_is_not_quoted(tmp_path: Path, text: str) -> None:
    vault = file_of(tmp_path, text)
    with pytest.raises(NoSecret) as refused:
        vault.find("TOKEN", "default")
    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_secret_that_is_too_short_to_be_masked_is_not_given() -> None:
    with pytest.raises(NoSecret, match="shorter than 4"):
        Vault({"INTERLOCK_SECRET_PIN": "123"}).find("PIN", "default")
