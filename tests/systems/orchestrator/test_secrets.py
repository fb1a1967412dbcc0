"""Secrets go from where they are kept to the runner that needs them, and nowhere else."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, beat, done, failed
from tests.systems.orchestrator.test_fencing import everything_stored

from interlock.errors import InvalidJob, NoSecret
from interlock.store.memory import MemoryStore
from interlock.store.records import Key
from interlock.systems.orchestrator.attachments import lines_of
from interlock.systems.orchestrator.body import Provenance, encode_body
from interlock.systems.orchestrator.vault import (
    Environment,
    SecretPolicy,
    SecretRequester,
    SecretScope,
    Vault,
    checkout_secret,
)
from interlock.systems.orchestrator.views import origin_again
from interlock.systems.settings import Settings
from interlock.wire.jobs import SHELL, RetryRule
from interlock.wire.runner import LogLine

VALUE = "correct horse battery staple"
FOR_ALL = SecretPolicy(secrets={"TOKEN": SecretScope()})
ANY = SecretRequester(task="build", queue="default")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_TOKEN", VALUE)
    monkeypatch.delenv("INTERLOCK_SECRETS_FILE", raising=False)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """With a policy that names one secret, for all."""
    opened = await House(Settings(secrets=FOR_ALL)).open()
    yield opened
    await opened.close()


def file_of(folder: Path, text: str, mode: int = 0o600) -> Vault:
    path = folder / "secrets.toml"
    path.write_text(text)
    path.chmod(mode)
    return Vault({"INTERLOCK_SECRETS_FILE": str(path), "INTERLOCK_SECRET_TOKEN": VALUE}, FOR_ALL)


async def test_a_secret_is_given_to_the_runner_of_the_job_and_is_not_stored_or_shown(house: House) -> None:
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


async def test_secrets_that_a_runner_reports_unmasked_are_masked_before_they_are_stored(house: House) -> None:
    job_id = await house.submit(secrets=("TOKEN",), retries=0)
    (grant,) = await house.claim()
    (coded,) = base64.b64encode(VALUE.encode()).decode().split()
    log_lines = (LogLine(grant.granted_at, "stdout", f"the token is {VALUE}, ü, or {coded}"),)
    await house.heard(beat(grant, log=log_lines, log_offset=0))
    again = (*log_lines, LogLine(grant.granted_at, "stdout", "after it"))
    await house.heard(failed(grant, error=f"no {VALUE}", details=f"why {VALUE}", log=again, log_offset=0))
    lines = [each.line.text for chunk in await house.chunks(job_id) for each in lines_of(chunk)]
    assert lines[0] == f"the token is {'*' * len(VALUE)}, ü, or {'*' * len(coded)}"
    assert lines[1:2] == ["after it"], "places in the log are where they were"
    view = await house.view(job_id)
    assert view.failure is not None
    assert view.failure.error == f"no {'*' * len(VALUE)}"
    (record,) = await house.store.load([Key("job", job_id)])
    assert record is not None
    assert VALUE.encode() not in record.body
    assert not any(VALUE in line for line in lines)


async def test_a_claim_that_is_answered_again_has_its_secrets_again(house: House) -> None:
    await house.submit(secrets=("TOKEN",))
    for _ in range(2):
        (grant,) = await house.claim(claim_id="once")
        assert grant.secrets == {"TOKEN": VALUE}
    assert isinstance(house.store, MemoryStore)
    assert VALUE not in everything_stored(house.store)


@pytest.mark.parametrize("acknowledge", [True, False])
async def test_an_unknown_secret_fails_the_attempt_and_is_named(house: House, acknowledge: bool) -> None:
    job_id = await house.submit(secrets=("TOKEN", "NOBODY"), retry={"tooling": RetryRule(retries=0)})
    other = await house.submit()
    grants = await house.claim(acknowledge=acknowledge)
    assert [grant.job_id for grant in grants] == [other]
    view = await house.view(job_id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "tooling"
    assert view.failure.error == "There is no secret NOBODY."
    assert "INTERLOCK_SECRET_NOBODY" in view.failure.details


async def test_withheld_secrets_are_not_granted_to_a_job_nor_to_its_retry(house: House) -> None:
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
    assert vault.find("ALL", SecretRequester(queue="anything")) == "for all"
    assert vault.find("KEY", SecretRequester(queue="deploy")) == "for few"
    assert vault.find("TOKEN", ANY) == VALUE
    with pytest.raises(
        NoSecret, match="KEY is not for this job: it is for the queue deploy, and this is default"
    ):
        vault.find("KEY", ANY)


def test_the_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    vault = file_of(tmp_path, '[secrets]\nTOKEN = "first"\n')
    assert vault.find("TOKEN", ANY) == "first"
    (tmp_path / "secrets.toml").write_text('[secrets]\nTOKEN = "another"\n')
    assert vault.find("TOKEN", ANY) == "another"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_not_used(tmp_path: Path, mode: int) -> None:
    vault = file_of(tmp_path, '[secrets]\nTOKEN = "file"\n', mode)
    with pytest.raises(NoSecret) as refused:
        vault.find("TOKEN", ANY)
    assert "other users may" in refused.value.sentence
    assert "chmod 600" in refused.value.todo


@pytest.mark.parametrize("text", ["TOKEN = hush", "[secrets]\nTOKEN = 5", '[secret]\nTOKEN = "hush"', "\xff"])
def test_a_file_that_cannot_be_understood_is_not_quoted(tmp_path: Path, text: str) -> None:
    vault = file_of(tmp_path, text)
    with pytest.raises(NoSecret) as refused:
        vault.find("TOKEN", ANY)
    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_secret_that_is_too_short_to_be_masked_is_not_given() -> None:
    with pytest.raises(NoSecret, match="shorter than 4"):
        Vault({"INTERLOCK_SECRET_PIN": "123"}).value("PIN")


async def test_a_secret_from_an_environment_variable_is_withheld_unless_a_policy_names_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_SECRET_OTHER", "correct horse battery staple")
    job_id = await house.submit(secrets=("OTHER",), retry={"tooling": RetryRule(retries=0)})
    assert await house.claim() == []
    failure = (await house.view(job_id)).failure
    assert failure is not None
    assert "no rule names the jobs that may have it" in failure.error
    assert "[secrets.OTHER]" in failure.details


MAIN = Provenance(repository="Acme/Shop", ref="refs/heads/main", environment="production")
POLICY = SecretPolicy(
    secrets={
        "KEY": SecretScope(
            repositories=("acme/*",), environments=("production",), tasks=("shop.*",), queues=("deploy",)
        )
    },
    environments={
        "production": Environment(repositories=("acme/shop",), refs=("refs/heads/main", "refs/tags/v*"))
    },
)


def requester(task: str = "shop.deploy", queue: str = "deploy", **origin: Any) -> SecretRequester:
    return SecretRequester(task=task, queue=queue, origin=msgspec.structs.replace(MAIN, **origin))


def test_every_condition_of_a_secret_must_hold() -> None:
    vault = Vault({"INTERLOCK_SECRET_KEY": VALUE}, POLICY)
    assert vault.find("KEY", requester()) == VALUE
    assert vault.find("KEY", requester(ref="refs/tags/v1.2")) == VALUE


@pytest.mark.parametrize(
    ("asking", "why"),
    [
        (requester(repository="evil/shop"), "it is for the repository acme/*, and this is evil/shop"),
        (requester(repository=""), "it is for the repository acme/*, and this job has no repository"),
        (
            requester(claimed=True),
            "the repository that a submitter claims does not count",
        ),
        (requester(environment=""), "it is for the environment production, and this job has no environment"),
        (requester(environment="staging"), "it is for the environment production, and this is staging"),
        (requester(task="interlock.shell"), "it is for the task shop.*, and this is interlock.shell"),
        (requester(queue="default"), "it is for the queue deploy, and this is default"),
        (requester(ref="refs/heads/topic"), "it is for the ref refs/heads/main or refs/tags/v*"),
        (requester(repository="acme/other"), "the environment production is not for this run"),
        (requester(from_fork=True), "a change from a fork receives no secrets"),
        (SecretRequester(task="shop.deploy", queue="deploy"), "this job has no repository"),
    ],
)
def test_a_job_for_which_a_condition_does_not_hold_is_refused_with_the_reason(
    asking: SecretRequester, why: str
) -> None:
    with pytest.raises(NoSecret) as refused:
        Vault({"INTERLOCK_SECRET_KEY": VALUE}, POLICY).find("KEY", asking)
    assert why in refused.value.sentence
    assert "[secrets.KEY]" in refused.value.todo
    assert VALUE not in str(refused.value)


def test_the_file_and_the_policy_both_limit_a_secret(tmp_path: Path) -> None:
    vault = file_of(tmp_path, '[secrets]\nTOKEN = {value = "in the file", repositories = ["acme/shop"]}\n')
    assert vault.find("TOKEN", requester(environment="")) == "in the file"
    with pytest.raises(NoSecret, match="for the repository acme/shop"):
        vault.find("TOKEN", ANY)
    text = '[secrets]\nKEY = "in the file"\n'
    path = tmp_path / "secrets.toml"
    path.write_text(text)
    limited = Vault({"INTERLOCK_SECRETS_FILE": str(path)}, POLICY)
    assert limited.find("KEY", requester()) == "in the file"
    with pytest.raises(NoSecret, match="for the queue deploy"):
        limited.find("KEY", requester(queue="default"))


def test_an_unknown_environment_gives_no_secret() -> None:
    policy = SecretPolicy(secrets={"KEY": SecretScope(environments=("*",))})
    with pytest.raises(NoSecret, match="there is no environment production"):
        Vault({"INTERLOCK_SECRET_KEY": VALUE}, policy).find("KEY", requester())


def test_the_vault_warns_about_unrestricted_and_unused_secrets_by_name(tmp_path: Path) -> None:
    text = '[secrets]\nWIDE = "for all of them"\nNARROW = {value = "for few", queues = ["deploy"]}\n'
    path = tmp_path / "secrets.toml"
    path.write_text(text)
    path.chmod(0o600)
    vault = Vault(
        {"INTERLOCK_SECRETS_FILE": str(path), "INTERLOCK_SECRET_LOST": VALUE, "INTERLOCK_SECRET_KEY": VALUE},
        POLICY,
    )
    lines = list(vault.warnings())
    assert [line.partition(" is given")[0] for line in lines] == ["the secret WIDE", "INTERLOCK_SECRET_LOST"]
    assert VALUE not in " ".join(lines)


CLONES = POLICY.naming({"acme/shop": "CLONE", "acme/hats": "CLONE", "acme/web": "KEY"})


def fetching(
    repository: str, given: bytes = b'{"checkout":{"secret":"CLONE"}}', task: str = SHELL
) -> SecretRequester:
    origin = Provenance(repository=repository, ref="refs/heads/main")
    return SecretRequester(task=task, queue="default", origin=origin, checkout=checkout_secret(task, given))


def test_the_secret_that_a_repository_is_fetched_with_is_for_that_repository() -> None:
    vault = Vault({"INTERLOCK_SECRET_CLONE": VALUE}, CLONES)
    assert vault.find("CLONE", fetching("acme/hats")) == VALUE
    with pytest.raises(NoSecret, match="for the repository acme/shop or acme/hats"):
        vault.find("CLONE", fetching("acme/web"))
    assert CLONES.secrets["KEY"] == POLICY.secrets["KEY"]


@pytest.mark.parametrize(
    ("given", "task"),
    [
        (b'{"steps":[{"run":"env"}]}', SHELL),
        (b'{"checkout":{"secret":"OTHER"}}', SHELL),
        (b'{"checkout":{"secret":"CLONE"}}', "shop.deploy"),
        (b'{"checkout":"CLONE"}', SHELL),
        (b"[]", SHELL),
    ],
)
def test_the_secret_that_a_repository_is_fetched_with_is_for_nothing_else(given: bytes, task: str) -> None:
    vault = Vault({"INTERLOCK_SECRET_CLONE": VALUE}, CLONES)
    with pytest.raises(NoSecret, match="it is for fetching the repository"):
        vault.find("CLONE", fetching("acme/shop", given, task))


async def test_a_retried_job_keeps_its_provenance_without_the_environment(
    house: House,
) -> None:
    draft_of = Provenance(repository="acme/shop", environment="production", from_fork=True)
    record = await house.record(await house.submit())
    body = msgspec.structs.replace(await house.body(record.id), origin=draft_of)
    again = origin_again(msgspec.structs.replace(record, body=encode_body(body)))
    assert again == Provenance(repository="acme/shop", from_fork=True)
